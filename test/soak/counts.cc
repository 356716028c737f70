#include "soak/counts.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"

namespace baton::soak {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr auto kPause = std::chrono::milliseconds(5);

int EntriesOf(const std::string& dir) {
  std::error_code error;
  int n = 0;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error))
    ++n;
  return n;
}

}  // namespace

std::string WorkerCounts::Text() const {
  return absl::StrCat(used, " units in use, ", leases, " leases, ", references, " references, ",
                      quarantined, " units (", quarantine_bytes, " bytes) in quarantine, ",
                      conversations, " conversations, ", requests, " requests");
}

WorkerCounts CountsOf(engine::Worker* worker) {
  WorkerCounts c;
  const auto add = [&](const PoolStats& s) {
    c.used += s.used;
    c.leases += s.leases;
    c.references += s.references;
    c.quarantined += s.quarantined;
  };
  const PoolSet pools = worker->memory().pools();
  if (pools.slots != nullptr) add(pools.slots->Stats());
  for (const BlockPool* pool : pools.blocks) add(pool->Stats());
  c.quarantine_bytes = worker->client().quarantine().bytes();
  c.conversations = worker->handoff_stats().conversations_now.load();
  const engine::EngineStats& s = worker->engine().stats();
  c.requests = s.running.load() + s.waiting.load() + s.pulling.load() + worker->engine().active();
  return c;
}

void ExpectEmpty(engine::Worker* worker,
                 const std::string& name,
                 bool stopped,
                 Findings* findings) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  WorkerCounts counts;
  do {
    if (!stopped)
      worker->engine().RunOnEngineThread([](engine::Core& core) {
        if (core.Empty()) core.DropCheckpoints();
      });
    worker->client().quarantine().Sweep();
    counts = CountsOf(worker);
    if (counts.zero()) break;
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < until);
  findings->Count("workers counted");
  if (!counts.zero()) findings->Wrong(absl::StrCat(name, " is not empty: ", counts.Text()));
  const auto check = [&](const Status& status) {
    if (!status.ok()) findings->Wrong(absl::StrCat(name, ": ", status.message()));
  };
  const PoolSet pools = worker->memory().pools();
  if (pools.slots != nullptr) check(pools.slots->CheckInvariants());
  for (const BlockPool* pool : pools.blocks) check(pool->CheckInvariants());
  if (worker->memory().elastic() != nullptr) {
    check(worker->memory().elastic()->CheckInvariants());
    if (worker->memory().Stats().bytes_used != 0)
      findings->Wrong(absl::StrCat(name, ": ", worker->memory().Stats().bytes_used,
                                   " bytes of the budget are in use by nobody"));
  }
}

std::string ProcessCounts::Text() const { return absl::StrCat(fds, " fds, ", threads, " threads"); }

ProcessCounts CountsOfProcess(pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  return {EntriesOf(proc + "/fd"), EntriesOf(proc + "/task")};
}

}  // namespace baton::soak
