// Where a request should leave states behind. A state costs as much as the KV of thousands of
// tokens, so few are made and each where a later request is likely to part from this one:
//
//   1. the end of the rendered conversation without the generation prompt (templates rewrite what
//      follows it), floored to the grid: the next turn starts there;
//   2. the branch point, on second sight: where this request leaves a path that others took, and no
//      state lies there (a shared system prompt or document);
//   3. boundaries the caller names, such as the start of the last message;
//   4. a little before the end: the same document under another question, an edited last message;
//   5. on a wider grid, by halving the widest stretch without a state.
//
// In that order, until Options::max_new_states. Decides only: no I/O, no clock, no memory.
// Thread rule: free functions on plain values.
#ifndef BATON_CACHE_CHECKPOINT_POLICY_H_
#define BATON_CACHE_CHECKPOINT_POLICY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_index.h"

namespace baton {

struct PolicyOptions {
  int max_new_states = 4;
  // Requests that must share a prefix for its end to be a branch point: the one that was first
  // there counts. 2: the first to leave a known path makes the state as it passes. 0: never.
  uint32_t branch_sights = 2;
  // Distances before the conversation's end, in tokens, most useful first; only where they lie
  // behind what was known already.
  std::vector<int64_t> before_end = {512, 1536};
  // Least distance between states that are made for spacing alone. 0: none are.
  int64_t spacing_tokens = 2048;
};

struct PolicyRequest {
  int64_t start = 0;             // boundary the request starts computing from (a hit, or 0)
  int64_t conversation_end = 0;  // tokens of the rendered conversation without generation prompt
  std::span<const int64_t> hints = {};  // boundaries worth a state, most useful first
};

// Boundaries in (start, conversation_end] where states are to be made, ascending, multiples of
// `block_tokens`, without those in `sight.states`; at most max_new_states.
std::vector<int64_t> PlanStates(const PolicyOptions& options,
                                const PrefixIndex::Sight& sight,
                                const PolicyRequest& request,
                                int64_t block_tokens = kBlockTokens);

}  // namespace baton

#endif  // BATON_CACHE_CHECKPOINT_POLICY_H_
