// Rounds of a soak over workers inside this process: users that come, go and cancel at random,
// connectors that die, workers that restart, memory that is too small. Every answer is compared
// with recomputation. Thread rule: one thread.
#ifndef BATON_TEST_SOAK_IN_PROCESS_H_
#define BATON_TEST_SOAK_IN_PROCESS_H_

#include <memory>
#include <string>

#include "soak/findings.h"
#include "soak/fleet.h"

namespace baton::soak {

struct RoundOptions {
  std::string model;  // of RealModels(), or "fake"
  double seconds = 8;
  size_t users = 8;
  bool cancels = true;
  bool restarts = true;
  FleetOptions fleet;
};

// The configuration of round `n`: the models in turn, and everything that can happen to them.
RoundOptions RoundOf(uint64_t n, uint64_t seed);
void RunRound(const RoundOptions& options, Findings* findings);

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_IN_PROCESS_H_
