#include "engine/scheduler.h"

#include <algorithm>

namespace baton::engine {

std::vector<PlannedChunk> PlanStep(std::span<const SchedulableSequence> sequences,
                                   int64_t token_budget) {
  std::vector<int64_t> grant(sequences.size(), 0);
  int64_t left = token_budget;
  for (size_t i = 0; i < sequences.size() && left > 0; ++i) {
    if (sequences[i].known - sequences[i].boundary != 1) continue;
    grant[i] = 1;
    --left;
  }
  for (size_t i = 0; i < sequences.size() && left > 0; ++i) {
    const SchedulableSequence& s = sequences[i];
    if (s.known - s.boundary <= 1) continue;
    int64_t want = s.known - s.boundary;
    if (s.next_stop > s.boundary) want = std::min(want, s.next_stop - s.boundary);
    grant[i] = std::min(want, left);
    left -= grant[i];
  }
  std::vector<PlannedChunk> plan;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (grant[i] > 0) plan.push_back({i, grant[i]});
  return plan;
}

}  // namespace baton::engine
