// Rounds of a soak over the processes a user runs: router, prefill and decode worker on loopback,
// clients over HTTP, workers killed with SIGKILL at random moments and started again. Every answer
// is compared with recomputation. Thread rule: one thread.
#ifndef BATON_TEST_SOAK_PROCESSES_H_
#define BATON_TEST_SOAK_PROCESSES_H_

#include <string>

#include "soak/findings.h"

namespace baton::soak {

struct ProcessRoundOptions {
  std::string binary;
  std::string connector = "shm";  // or a plan, as of `route --connector`
  double seconds = 20;
  size_t users = 6;
  uint64_t seed = 1;
  std::string log_dir;
};

ProcessRoundOptions ProcessRoundOf(uint64_t n, uint64_t seed);
void RunProcessRound(const ProcessRoundOptions& options, Findings* findings);

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_PROCESSES_H_
