// baton-soak: what months in production do to a worker, in minutes. See usage below and
// docs/soak.md.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "soak/clean.h"
#include "soak/findings.h"
#include "soak/in_process.h"
#include "soak/processes.h"

namespace baton::soak {
namespace {

constexpr char kUsage[] =
    "usage: baton-soak --clean N [--seed S]     N hand-offs that nothing disturbs\n"
    "       baton-soak --seconds N [--seed S]   load, faults, restarts and kills\n"
    "options: --baton FILE       the binary whose processes are started; none: no processes\n"
    "         --round N          just this round, for looking into one\n"
    "         --round-seconds N  of one round (8); over processes 2.5 times that\n"
    "         --log              with the workers' warnings\n";

// Beyond the time asked for, until everything has happened that has to.
constexpr uint64_t kMoreRoundsMax = 24;
// Every so many rounds one is over processes.
constexpr uint64_t kProcessesEvery = 5;

struct Flags {
  uint64_t clean = 0;
  double seconds = 0;
  double round_seconds = 8;
  uint64_t seed = 1;
  int64_t round = -1;
  std::string baton;
  bool log = false;
};

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--log") {
      flags->log = true;
      continue;
    }
    if (++i == argc) return false;
    if (name == "--clean")
      flags->clean = std::strtoull(argv[i], nullptr, 10);
    else if (name == "--seconds")
      flags->seconds = std::strtod(argv[i], nullptr);
    else if (name == "--round-seconds")
      flags->round_seconds = std::strtod(argv[i], nullptr);
    else if (name == "--seed")
      flags->seed = std::strtoull(argv[i], nullptr, 10);
    else if (name == "--round")
      flags->round = std::strtoll(argv[i], nullptr, 10);
    else if (name == "--baton")
      flags->baton = argv[i];
    else
      return false;
  }
  return flags->clean > 0 || flags->seconds > 0 || flags->round >= 0;
}

// What a soak without which would have shown nothing.
std::string Missing(const Findings& findings, bool processes) {
  std::string missing;
  const auto need = [&](const char* name) {
    if (findings.Counted(name) == 0) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  };
  for (const char* name :
       {"answers compared", "answers cancelled in mid-stream, compared",
        "requests cancelled before their first token", "requests continued elsewhere",
        "bytes moved by compaction", "border moves", "preemptions", "hand-offs verified",
        "failovers", "shares moved", "units quarantined", "early blocks", "links joined",
        "bytes flipped", "restarts at the same endpoints", "restarts elsewhere"})
    need(name);
  if (!processes) return missing;
  for (const char* name : {"processes killed", "HTTP streams compared", "HTTP answers compared",
                           "HTTP clients that hung up", "bytes moved by compaction, in processes",
                           "pulls, in processes"})
    need(name);
  return missing;
}

void RunOne(const Flags& flags, uint64_t n, Findings* findings) {
  if (!flags.baton.empty() && n % kProcessesEvery == 2) {
    ProcessRoundOptions options = ProcessRoundOf(n / kProcessesEvery, flags.seed);
    options.binary = flags.baton;
    options.seconds = 2.5 * flags.round_seconds;
    options.log_dir = std::filesystem::temp_directory_path();
    return RunProcessRound(options, findings);
  }
  RoundOptions options = RoundOf(n, flags.seed);
  options.seconds = flags.round_seconds;
  RunRound(options, findings);
}

void RunSoak(const Flags& flags, Findings* findings) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t n = 0;
  for (; seconds() < flags.seconds; ++n) {
    RunOne(flags, n, findings);
    std::printf("%.0f s, round %llu, %llu wrong\n", seconds(), static_cast<unsigned long long>(n),
                static_cast<unsigned long long>(findings->wrong()));
    std::fflush(stdout);
  }
  const bool processes = !flags.baton.empty();
  const uint64_t last = n + kMoreRoundsMax;
  for (; n < last && !Missing(*findings, processes).empty(); ++n) RunOne(flags, n, findings);
  const std::string missing = Missing(*findings, processes);
  if (!missing.empty()) findings->Wrong("never happened: " + missing);
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, &flags)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  // Of a clean run every warning is news.
  if (flags.clean == 0 && !flags.log) SetLogLevel(LogLevel::kError);
  // A sanitizer starts a thread of its own with the first: before threads are counted.
  std::thread([] {}).join();
  Findings findings;
  if (flags.clean > 0) RunClean(flags.clean, flags.seed, &findings);
  if (flags.round >= 0)
    RunOne(flags, static_cast<uint64_t>(flags.round), &findings);
  else if (flags.seconds > 0)
    RunSoak(flags, &findings);
  findings.Print();
  std::printf("%llu wrong, %llu answers that differ from recomputation\n",
              static_cast<unsigned long long>(findings.wrong()),
              static_cast<unsigned long long>(findings.Counted("wrong answers")));
  return findings.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::soak

int main(int argc, char** argv) { return baton::soak::Main(argc, argv); }
