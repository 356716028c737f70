#include "engine/scheduler.h"

#include "base/rng.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

TEST(Scheduler, DecodersComeFirstAndPrefillTakesTheRest) {
  const std::vector<SchedulableSequence> s = {{0, 512, 0}, {40, 41, 0}, {7, 8, 0}};
  const auto plan = PlanStep(s, 64);
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].tokens, 62);
  EXPECT_EQ(plan[1].tokens, 1);
  EXPECT_EQ(plan[2].tokens, 1);
}

TEST(Scheduler, ChunkEndsAtTheStopBoundary) {
  const std::vector<SchedulableSequence> s = {{16, 100, 48}};
  EXPECT_EQ(PlanStep(s, 512)[0].tokens, 32);
}

TEST(Scheduler, NeverExceedsTheBudgetNorStarvesTheOldest) {
  SplitMix64 rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<SchedulableSequence> s(1 + rng.Below(12));
    for (auto& q : s) {
      q.boundary = static_cast<int64_t>(rng.Below(100));
      q.known = q.boundary + static_cast<int64_t>(rng.Below(50));
      q.next_stop = rng.Below(2) ? q.boundary + 1 + static_cast<int64_t>(rng.Below(30)) : 0;
    }
    const auto budget = static_cast<int64_t>(1 + rng.Below(64));
    int64_t total = 0;
    for (const auto& c : PlanStep(s, budget)) {
      total += c.tokens;
      EXPECT_GE(c.tokens, 1);
      EXPECT_LE(s[c.index].boundary + c.tokens, s[c.index].known);
      if (s[c.index].next_stop > 0 && c.tokens > 1) {
        EXPECT_LE(s[c.index].boundary + c.tokens, s[c.index].next_stop);
      }
    }
    EXPECT_LE(total, budget);
    bool runnable = false;
    for (const auto& q : s) runnable |= q.known > q.boundary;
    EXPECT_EQ(total > 0, runnable);
  }
}

}  // namespace
}  // namespace baton::engine
