#include "cache/checkpoint_policy.h"

#include <random>

#include "gtest/gtest.h"

namespace baton {
namespace {

using Boundaries = std::vector<int64_t>;

PolicyOptions Bare() {
  PolicyOptions options;
  options.before_end = {};
  options.spacing_tokens = 0;
  return options;
}

TEST(CheckpointPolicyTest, ConversationEndIsFlooredToTheGrid) {
  EXPECT_EQ(PlanStates(Bare(), {}, {.start = 0, .conversation_end = 100}), Boundaries{96});
  EXPECT_EQ(PlanStates(Bare(), {}, {.start = 0, .conversation_end = 15}), Boundaries{});
  EXPECT_EQ(PlanStates(Bare(), {}, {.start = 96, .conversation_end = 100}), Boundaries{});
}

TEST(CheckpointPolicyTest, BranchPointOnTheSightAskedFor) {
  PrefixIndex::Sight sight;
  sight.known = 48;
  sight.leaves = true;
  sight.leavers = 1;
  PolicyOptions options = Bare();
  EXPECT_EQ(PlanStates(options, sight, {.conversation_end = 100}), (Boundaries{48, 96}));
  options.branch_sights = 3;
  EXPECT_EQ(PlanStates(options, sight, {.conversation_end = 100}), Boundaries{96});
  sight.leavers = 2;
  EXPECT_EQ(PlanStates(options, sight, {.conversation_end = 100}), (Boundaries{48, 96}));
  options.branch_sights = 0;
  EXPECT_EQ(PlanStates(options, sight, {.conversation_end = 100}), Boundaries{96});
}

TEST(CheckpointPolicyTest, FewStatesTheMostUsefulFirst) {
  PrefixIndex::Sight sight;
  sight.known = 480;
  sight.leaves = true;
  sight.leavers = 1;
  const Boundaries hints = {1000};
  PolicyRequest request{.conversation_end = 4000, .hints = hints};
  PolicyOptions options;
  options.before_end = {160, 320};
  options.spacing_tokens = 256;
  const auto plan = [&](int n) {
    options.max_new_states = n;
    return PlanStates(options, sight, request);
  };
  EXPECT_EQ(plan(0), Boundaries{});
  EXPECT_EQ(plan(1), Boundaries{4000});
  EXPECT_EQ(plan(2), (Boundaries{480, 4000}));
  EXPECT_EQ(plan(3), (Boundaries{480, 992, 4000}));
  EXPECT_EQ(plan(4), (Boundaries{480, 992, 3840, 4000}));
  EXPECT_EQ(plan(5), (Boundaries{480, 992, 3680, 3840, 4000}));
  EXPECT_EQ(plan(6), (Boundaries{480, 992, 2336, 3680, 3840, 4000}));
}

TEST(CheckpointPolicyTest, BeforeTheEndOnlyBehindWhatWasKnown) {
  PolicyOptions options = Bare();
  options.before_end = {160};
  PrefixIndex::Sight sight;
  sight.known = 320;
  EXPECT_EQ(PlanStates(options, sight, {.start = 320, .conversation_end = 480}), Boundaries{480});
  sight.known = 304;
  EXPECT_EQ(PlanStates(options, sight, {.start = 304, .conversation_end = 480}),
            (Boundaries{320, 480}));
}

TEST(CheckpointPolicyTest, PlansAreBoundedSortedOnTheGridAndNew) {
  std::mt19937 rng(7);
  const auto pick = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(rng); };
  for (int i = 0; i < 5000; ++i) {
    PrefixIndex::Sight sight;
    sight.known = 16 * pick(60);
    sight.leaves = pick(1) == 1;
    sight.leavers = static_cast<uint32_t>(pick(3));
    for (int64_t b = 16; b < 1000; b += 16)
      if (pick(9) == 0) sight.states.push_back(b);
    PolicyOptions options;
    options.max_new_states = static_cast<int>(pick(6));
    options.branch_sights = static_cast<uint32_t>(pick(3));
    options.before_end = {pick(200), pick(200)};
    options.spacing_tokens = pick(300);
    const Boundaries hints = {pick(1200), pick(1200) - 100};
    const PolicyRequest request{
        .start = 16 * pick(40), .conversation_end = pick(1100), .hints = hints};
    const Boundaries plan = PlanStates(options, sight, request);
    EXPECT_LE(plan.size(), static_cast<size_t>(options.max_new_states));
    int64_t last = request.start;
    for (const int64_t b : plan) {
      EXPECT_GT(b, last);
      EXPECT_EQ(b % kBlockTokens, 0);
      EXPECT_LE(b, request.conversation_end);
      EXPECT_EQ(std::count(sight.states.begin(), sight.states.end(), b), 0);
      last = b;
    }
  }
}

}  // namespace
}  // namespace baton
