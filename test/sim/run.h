// Runs one seed: builds a World on a Scheduler and says what came of it.
// Thread rule: one OS thread; one run at a time.
#ifndef BATON_TEST_SIM_RUN_H_
#define BATON_TEST_SIM_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "sim/defects.h"
#include "sim/faults.h"

namespace baton::sim {

struct RunOptions {
  uint64_t seed = 0;
  uint64_t events = 200;  // at least; requests arrive until then
  bool print = false;
  std::optional<Defect> defect;
};

struct RunResult {
  uint64_t hash = 0;
  uint64_t events = 0;
  uint64_t switches = 0;
  uint64_t requests = 0;
  uint64_t verified = 0;  // hand-offs
  uint64_t rejected = 0;
  uint64_t cancelled = 0;
  uint64_t restarts = 0;
  uint64_t moves = 0;
  uint64_t failovers = 0;
  uint64_t early_blocks = 0;  // landed before their bundle's offer
  uint64_t shares_moved = 0;  // parts that another connector brought
  bool clean = false;         // no fault was drawn
  FaultTable faults;
  std::string violation;  // the first; empty: none
};

RunResult RunSeed(const RunOptions& options);

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_RUN_H_
