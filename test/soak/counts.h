// What has to be back at zero, or at its start value, when nothing runs any more: of a worker and
// of a process. Thread rule: pure functions.
#ifndef BATON_TEST_SOAK_COUNTS_H_
#define BATON_TEST_SOAK_COUNTS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "engine/worker.h"
#include "soak/findings.h"

namespace baton::soak {

struct WorkerCounts {
  uint64_t used = 0;  // slots and blocks that are not FREE
  uint64_t leases = 0;
  uint64_t references = 0;
  uint64_t quarantined = 0;  // units
  uint64_t quarantine_bytes = 0;
  uint64_t conversations = 0;
  int64_t requests = 0;  // running, waiting, pulling
  bool zero() const {
    return used + leases + references + quarantined + quarantine_bytes + conversations == 0 &&
           requests == 0;
  }
  std::string Text() const;
};
WorkerCounts CountsOf(engine::Worker* worker);

// Drops the checkpoints of a worker that nobody uses any more, waits a bounded while for peers and
// writers that are still letting go, and reports whatever is then not zero, or not consistent.
// `stopped`: its engine takes no more work and has dropped its checkpoints itself.
void ExpectEmpty(engine::Worker* worker, const std::string& name, bool stopped, Findings* findings);

struct ProcessCounts {
  int fds = 0;
  int threads = 0;
  friend bool operator==(const ProcessCounts&, const ProcessCounts&) = default;
  std::string Text() const;
};
// Of a process of this user; zeros if it is gone.
ProcessCounts CountsOfProcess(pid_t pid);

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_COUNTS_H_
