// One memory budget under pressure: states and blocks move between steps, and not one bit of any
// request's logits changes (I3, I9).
#include "base/rng.h"
#include "gtest/gtest.h"
#include "support/deployment.h"
#include "support/fake_model.h"

namespace baton::testing {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;

struct Outcome {
  std::vector<TokenId> tokens;
  Sha256 logits;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

GenerateRequest Request(uint64_t seed, size_t n, int64_t max_tokens, int64_t vocab) {
  GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, vocab);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.8;
  r.sampling.seed = seed;
  return r;
}

// Each alone, in memory with fixed shares and room to spare: nothing moves.
Outcome Undisturbed(std::shared_ptr<const model::Model> model, const GenerateRequest& r) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  auto sink = d.Start(r);
  EXPECT_EQ(sink->Wait().reason, FinishReason::kLength) << sink->Wait().error;
  EXPECT_EQ(d.decode().memory().Stats().bytes_moved, 0u);
  return {sink->tokens(), sink->logits_hash()};
}

// All at once, in a budget that they do not fit in together.
void RunAndCompare(std::shared_ptr<const model::Model> model,
                   const std::string& connector,
                   uint64_t budget_bytes,
                   const std::vector<GenerateRequest>& requests) {
  DeploymentOptions options;
  options.connector = connector;
  options.tweak_decode = options.tweak_prefill = [=](engine::WorkerOptions* o) {
    o->memory.budget_bytes = budget_bytes;
    o->engine.step_compact_bytes = uint64_t{64} << 20;  // pack in every step, not only when idle
  };
  Deployment d(model, options);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const GenerateRequest& r : requests) sinks.push_back(d.Start(r));
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->Wait().reason, FinishReason::kLength) << sinks[i]->Wait().error;
    EXPECT_EQ(sinks[i]->Wait().usage.rejects, 0);
    EXPECT_TRUE(
        (Outcome{sinks[i]->tokens(), sinks[i]->logits_hash()} == Undisturbed(model, requests[i])))
        << i;
  }
  d.ExpectNothingLeaks();
  engine::NodeMemory& memory = d.decode().memory();
  ASSERT_NE(memory.elastic(), nullptr);
  const Status invariants = memory.elastic()->CheckInvariants();
  EXPECT_TRUE(invariants.ok()) << invariants;
  const ElasticStats stats = memory.Stats();
  EXPECT_GT(stats.bytes_moved, 0u);
  EXPECT_GT(stats.border_moves, 0u);
  EXPECT_EQ(stats.bytes_used, 0u);
}

class MemoryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryTest, MovingEverythingBetweenStepsChangesNoBit) {
  auto model = std::make_shared<FakeModel>();
  std::vector<GenerateRequest> requests;
  SplitMix64 rng(11);
  for (uint64_t i = 0; i < 30; ++i)
    requests.push_back(
        Request(i, 1 + rng.Below(300), 1 + static_cast<int64_t>(rng.Below(120)), 97));
  const uint64_t budget = engine::NodeMemoryBytes(model->layout(), 14, 120);
  RunAndCompare(model, GetParam(), budget, requests);
}

INSTANTIATE_TEST_SUITE_P(Connectors, MemoryTest, ::testing::Values("", "inproc", "shm", "tcp"));

TEST(MemoryGolden, MovingEverythingBetweenStepsChangesNoBit) {
  for (const char* name :
       {"long/granitemoehybrid", "short/bamba", "short/falcon_h1", "short/zamba2"}) {
    SCOPED_TRACE(name);
    auto model = LoadModel(name);
    std::vector<GenerateRequest> requests;
    SplitMix64 rng(12);
    for (uint64_t i = 0; i < 8; ++i)
      requests.push_back(Request(i, 1 + rng.Below(90), 5 + static_cast<int64_t>(rng.Below(40)),
                                 model->vocab_size()));
    RunAndCompare(model, "", engine::NodeMemoryBytes(model->layout(), 6, 24), requests);
  }
}

// The same bytes, cut in two beforehand, would hold no more than a quarter of this.
TEST(MemoryBudget, OneLongSequenceMayHaveWhatManyShortOnesLeave) {
  auto model = std::make_shared<FakeModel>(FakeModelOptions{.max_model_len = 8192});
  DeploymentOptions options;
  const uint64_t budget = engine::NodeMemoryBytes(model->layout(), 40, 120);
  options.tweak_decode = [=](engine::WorkerOptions* o) { o->memory.budget_bytes = budget; };
  Deployment d(model, options);
  EXPECT_GT(d.decode().engine().max_model_len(), 4 * 120 * 8);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (uint64_t i = 0; i < 30; ++i) sinks.push_back(d.Start(Request(i, 20, 30, 97)));
  const GenerateRequest longer = Request(99, 5000, 20, 97);
  sinks.push_back(d.Start(longer));
  for (auto& sink : sinks) EXPECT_EQ(sink->Wait().reason, FinishReason::kLength);
  d.ExpectNothingLeaks();
  EXPECT_EQ(sinks.back()->tokens().size(), 20u);
}

}  // namespace
}  // namespace baton::testing
