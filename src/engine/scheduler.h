// Decides what one engine step computes. Bookkeeping only: no clock, no I/O, no memory; the engine
// does what the plan says.
//
// Policy: every decoding sequence gets its one row first; what is left of the token budget goes to
// prefilling sequences, oldest first, in chunks. A chunk ends at the sequence's next stop boundary
// (hand-off or checkpoint), so that a state exists exactly there. The total never exceeds the
// budget: a prefill cannot lengthen a decode step beyond it.
#ifndef BATON_ENGINE_SCHEDULER_H_
#define BATON_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

struct SchedulableSequence {
  int64_t boundary = 0;   // tokens absorbed
  int64_t known = 0;      // tokens known (prompt and sampled); boundary < known when runnable
  int64_t next_stop = 0;  // 0: none; else a boundary > `boundary` where a chunk must end
};

struct PlannedChunk {
  size_t index;    // into the span given to PlanStep
  int64_t tokens;  // >= 1
};

// `sequences` in order of arrival. Returns chunks in the same order; the sum of tokens is at most
// `token_budget` (>= 1). A sequence with known == boundary gets nothing.
std::vector<PlannedChunk> PlanStep(std::span<const SchedulableSequence> sequences,
                                   int64_t token_budget);

}  // namespace baton::engine

#endif  // BATON_ENGINE_SCHEDULER_H_
