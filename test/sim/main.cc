// baton-sim: runs seeds, replays one, or shows that deliberate defects are caught. See usage below
// and docs/simulator.md.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "sim/run.h"

namespace baton::sim {
namespace {

constexpr char kUsage[] =
    "usage: baton-sim --seed N            one seed, every event on a line of its own\n"
    "       baton-sim --seeds FROM..TO    all of them (TO included), then what fired where\n"
    "       baton-sim --defects           each deliberate defect until a seed catches it\n"
    "       baton-sim --same FROM..TO     each seed in two processes: the same trace hash?\n"
    "options: --events N    at least so many events a seed (200)\n"
    "         --defect NAME run with this defect\n"
    "         --coverage N  with --seeds: fail unless each fault fired N times at each stage\n"
    "         --jobs N      processes (one per core)\n"
    "         --hash        with --seed: print the trace hash alone\n";

struct Flags {
  RunOptions run;
  bool one = false;
  bool defects = false;
  bool same = false;
  bool hash_only = false;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t coverage = 0;
  int jobs = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
};

// What a child process tells its parent; plain bytes through a pipe.
struct Totals {
  uint64_t seeds = 0, events = 0, switches = 0, requests = 0, verified = 0, rejected = 0;
  uint64_t cancelled = 0, restarts = 0, moves = 0, failovers = 0, early = 0, shares = 0, clean = 0,
           short_runs = 0;
  uint64_t failed = 0, first_failed = 0;
  FaultTable faults;
  char violation[400] = {};

  void Add(const RunResult& r, uint64_t seed, uint64_t events_min) {
    ++seeds;
    events += r.events;
    switches += r.switches;
    requests += r.requests;
    verified += r.verified;
    rejected += r.rejected;
    cancelled += r.cancelled;
    restarts += r.restarts;
    moves += r.moves;
    failovers += r.failovers;
    early += r.early_blocks;
    shares += r.shares_moved;
    clean += r.clean;
    short_runs += r.events < events_min;
    faults.Add(r.faults);
    if (!r.violation.empty() && failed++ == 0) {
      first_failed = seed;
      std::snprintf(violation, sizeof violation, "%s", r.violation.c_str());
    }
  }
  void Add(const Totals& o) {
    seeds += o.seeds, events += o.events, switches += o.switches, requests += o.requests;
    verified += o.verified, rejected += o.rejected, cancelled += o.cancelled;
    restarts += o.restarts, moves += o.moves, failovers += o.failovers, early += o.early,
        shares += o.shares, clean += o.clean;
    short_runs += o.short_runs;
    faults.Add(o.faults);
    if (o.failed != 0 && (failed == 0 || o.first_failed < first_failed)) {
      first_failed = o.first_failed;
      std::memcpy(violation, o.violation, sizeof violation);
    }
    failed += o.failed;
  }
};

// Runs every jobs-th seed in each of `jobs` child processes.
Totals RunSeeds(const Flags& flags) {
  std::vector<int> pipes;
  // The seed each child is at: what is left of one that died.
  const size_t bytes = static_cast<size_t>(flags.jobs) * sizeof(uint64_t);
  void* const shared =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BATON_CHECK(shared != MAP_FAILED);
  auto* const running = static_cast<uint64_t*>(shared);
  for (int job = 0; job < flags.jobs; ++job) {
    int fds[2];
    BATON_CHECK(pipe(fds) == 0);
    const pid_t pid = fork();
    BATON_CHECK(pid >= 0);
    if (pid == 0) {
      Totals totals;
      RunOptions run = flags.run;
      for (run.seed = flags.from + static_cast<uint64_t>(job); run.seed <= flags.to;
           run.seed += static_cast<uint64_t>(flags.jobs)) {
        running[job] = run.seed;
        const RunResult r = RunSeed(run);
        if (!r.violation.empty())
          std::printf("seed %llu: %s\n", static_cast<unsigned long long>(run.seed),
                      r.violation.c_str());
        std::fflush(stdout);
        totals.Add(r, run.seed, run.events);
        if (totals.failed >= 20) break;
      }
      std::fflush(stdout);
      const bool written = write(fds[1], &totals, sizeof totals) == sizeof totals;
      _exit(written ? 0 : 1);
    }
    close(fds[1]);
    pipes.push_back(fds[0]);
  }
  Totals sum;
  for (size_t job = 0; job < pipes.size(); ++job) {
    const int fd = pipes[job];
    Totals part;
    size_t got = 0;
    ssize_t n = 0;
    while (got < sizeof part &&
           (n = read(fd, reinterpret_cast<char*>(&part) + got, sizeof part - got)) > 0)
      got += static_cast<size_t>(n);
    close(fd);
    if (got == sizeof part) {
      sum.Add(part);
    } else {
      part = Totals();
      part.failed = 1;
      part.first_failed = running[job];
      std::snprintf(part.violation, sizeof part.violation, "the process died in this seed");
      sum.Add(part);
    }
  }
  while (wait(nullptr) > 0) {
  }
  munmap(shared, bytes);
  return sum;
}

// Rows of faults, columns of stages; "-" where a fault cannot happen. The least that fired.
uint64_t PrintTable(const FaultTable& table) {
  std::printf("%-17s", "");
  for (size_t s = 0; s < kStages; ++s)
    std::printf("%11s", std::string(StageName(static_cast<Stage>(s))).c_str());
  std::printf("\n");
  uint64_t least = UINT64_MAX;
  for (size_t f = 0; f < kFaults; ++f) {
    std::printf("%-17s", std::string(FaultName(static_cast<Fault>(f))).c_str());
    for (size_t s = 0; s < kStages; ++s) {
      if (!Applies(static_cast<Fault>(f), static_cast<Stage>(s))) {
        std::printf("%11s", "-");
        continue;
      }
      least = std::min(least, table.fired[f][s]);
      std::printf("%11llu", static_cast<unsigned long long>(table.fired[f][s]));
    }
    std::printf("\n");
  }
  return least;
}

int Seeds(const Flags& flags) {
  const Totals t = RunSeeds(flags);
  const auto n = [](uint64_t x) { return static_cast<unsigned long long>(x); };
  std::printf("%llu seeds (%llu without faults), %llu events, %llu switches\n", n(t.seeds),
              n(t.clean), n(t.events), n(t.switches));
  std::printf(
      "%llu requests, %llu cancelled; hand-offs: %llu verified, %llu refused; %llu restarts, "
      "%llu failovers, %llu moves\n%llu blocks landed early, %llu parts moved to another "
      "connector\n\n",
      n(t.requests), n(t.cancelled), n(t.verified), n(t.rejected), n(t.restarts), n(t.failovers),
      n(t.moves), n(t.early), n(t.shares));
  const uint64_t least = PrintTable(t.faults);
  std::printf("\n");
  bool ok = t.failed == 0;
  if (t.failed != 0)
    std::printf("FAILED: %llu seeds; the first: %s\n  baton-sim --seed %llu --events %llu\n",
                n(t.failed), t.violation, n(t.first_failed), n(flags.run.events));
  if (t.short_runs != 0) {
    std::printf("FAILED: %llu seeds had fewer than %llu events\n", n(t.short_runs),
                n(flags.run.events));
    ok = false;
  }
  if (flags.coverage != 0 && least < flags.coverage) {
    std::printf("FAILED: a fault fired only %llu times at a stage, wanted %llu\n", n(least),
                n(flags.coverage));
    ok = false;
  }
  if (ok) std::printf("all invariants held\n");
  return ok ? 0 : 1;
}

int Defects(Flags flags) {
  bool all = true;
  if (flags.to == 0) flags.to = 4999;
  for (size_t d = 0; d < kDefects; ++d) {
    const auto defect = static_cast<Defect>(d);
    flags.run.defect = defect;
    // A process of its own: a run that was given up cannot be taken apart. An abort is a catch too.
    int fds[2];
    BATON_CHECK(pipe(fds) == 0);
    const pid_t pid = fork();
    BATON_CHECK(pid >= 0);
    if (pid == 0) {
      RunOptions run = flags.run;
      for (run.seed = flags.from; run.seed <= flags.to; ++run.seed) {
        BATON_CHECK(write(fds[1], &run.seed, sizeof run.seed) == sizeof run.seed);
        const RunResult r = RunSeed(run);
        if (r.violation.empty()) continue;
        std::printf("%s", r.violation.substr(0, 150).c_str());
        std::fflush(stdout);
        _exit(7);
      }
      _exit(0);
    }
    close(fds[1]);
    std::printf("%-21s %-66s ", std::string(DefectName(defect)).c_str(),
                std::string(DefectText(defect)).c_str());
    std::fflush(stdout);
    uint64_t last = 0;
    uint64_t seeds = 0;
    while (read(fds[0], &last, sizeof last) == sizeof last) ++seeds;
    close(fds[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    const bool caught = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 7);
    if (WIFSIGNALED(status)) std::printf("the process aborts");
    std::printf("\n%-21s %s after %llu seeds\n", "", caught ? "caught" : "NOT CAUGHT",
                static_cast<unsigned long long>(seeds));
    std::fflush(stdout);
    all = all && caught;
  }
  return all ? 0 : 1;
}

// Two processes, each with its own addresses and its own history.
int Same(const Flags& flags, const std::string& program) {
  for (uint64_t seed = flags.from; seed <= flags.to; ++seed) {
    std::string hash[2];
    for (std::string& h : hash) {
      const std::string command = program + " --hash --seed " + std::to_string(seed) +
                                  " --events " + std::to_string(flags.run.events);
      FILE* out = popen(command.c_str(), "r");
      BATON_CHECK(out != nullptr);
      char line[64] = {};
      if (std::fgets(line, sizeof line, out) != nullptr) h = line;
      pclose(out);
    }
    if (hash[0].empty() || hash[0] != hash[1]) {
      std::printf("FAILED: seed %llu has the traces %s and %s\n",
                  static_cast<unsigned long long>(seed), hash[0].c_str(), hash[1].c_str());
      return 1;
    }
  }
  std::printf("seeds %llu to %llu: the same trace in two processes\n",
              static_cast<unsigned long long>(flags.from),
              static_cast<unsigned long long>(flags.to));
  return 0;
}

int One(Flags flags) {
  flags.run.print = !flags.hash_only;
  const RunResult r = RunSeed(flags.run);
  if (flags.hash_only) {
    std::printf("%016llx\n", static_cast<unsigned long long>(r.hash));
  } else {
    std::printf(
        "trace hash %016llx, %llu events, %llu switches, %llu requests, %llu hand-offs "
        "verified, %llu refused\n",
        static_cast<unsigned long long>(r.hash), static_cast<unsigned long long>(r.events),
        static_cast<unsigned long long>(r.switches), static_cast<unsigned long long>(r.requests),
        static_cast<unsigned long long>(r.verified), static_cast<unsigned long long>(r.rejected));
    std::printf("%s\n",
                r.violation.empty() ? "all invariants held" : ("FAILED: " + r.violation).c_str());
  }
  std::fflush(stdout);
  _exit(r.violation.empty() ? 0 : 1);
}

[[noreturn]] void Usage() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  const auto number = [&](int* i) {
    if (*i + 1 >= argc) Usage();
    return std::strtoull(argv[++*i], nullptr, 10);
  };
  const auto range = [&](int* i) {
    if (*i + 1 >= argc) Usage();
    const char* dots = std::strstr(argv[++*i], "..");
    if (dots == nullptr) Usage();
    flags.from = std::strtoull(argv[*i], nullptr, 10);
    flags.to = std::strtoull(dots + 2, nullptr, 10);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--seed") {
      flags.one = true;
      flags.run.seed = number(&i);
    } else if (a == "--seeds") {
      range(&i);
    } else if (a == "--same") {
      flags.same = true;
      range(&i);
    } else if (a == "--defects") {
      flags.defects = true;
    } else if (a == "--events") {
      flags.run.events = number(&i);
    } else if (a == "--coverage") {
      flags.coverage = number(&i);
    } else if (a == "--jobs") {
      flags.jobs = std::max(1, static_cast<int>(number(&i)));
    } else if (a == "--hash") {
      flags.hash_only = true;
    } else if (a == "--defect" && i + 1 < argc) {
      ++i;
      for (size_t d = 0; d < kDefects; ++d)
        if (DefectName(static_cast<Defect>(d)) == argv[i])
          flags.run.defect = static_cast<Defect>(d);
      if (!flags.run.defect.has_value()) Usage();
    } else {
      Usage();
    }
  }
  return flags;
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) {
  using namespace baton::sim;
  const Flags flags = Parse(argc, argv);
  if (!flags.one || flags.hash_only) baton::SetLogLevel(baton::LogLevel::kError);
  if (flags.one) return One(flags);
  if (flags.defects) return Defects(flags);
  if (flags.same) return Same(flags, argv[0]);
  if (flags.to == 0) Usage();
  return Seeds(flags);
}
