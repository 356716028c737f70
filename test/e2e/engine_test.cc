// The engine around a model, with the model replaced by a rolling hash: scheduling, memory
// pressure, cancellation, draining, hand-off in both directions, retries.
#include "base/rng.h"
#include "gtest/gtest.h"
#include "support/deployment.h"
#include "support/fake_model.h"

namespace baton::testing {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;

GenerateRequest Request(uint64_t seed, size_t n, int64_t max_tokens) {
  GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, 97);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.8;
  r.sampling.seed = seed;
  return r;
}

std::vector<TokenId> Expected(std::shared_ptr<const model::Model> model, GenerateRequest r) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  auto sink = d.Start(std::move(r));
  EXPECT_TRUE(sink->Wait().reason == FinishReason::kLength);
  return sink->tokens();
}

class EngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const model::Model> model_ = std::make_shared<FakeModel>();
};

TEST_P(EngineTest, ManyRequestsOfAllLengthsGiveTheirOwnTokens) {
  DeploymentOptions options;
  options.connector = GetParam();
  options.slots = 200;
  Deployment d(model_, options);
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < 60; ++i) {
    requests.push_back(Request(i, 1 + (i * 7) % 90, 1 + static_cast<int64_t>(i % 40)));
  }
  const auto sinks = d.StartTogether(requests);
  for (size_t i = 0; i < sinks.size(); ++i) {
    const auto& result = sinks[i]->Wait();
    EXPECT_EQ(result.usage.rejects, 0);
    EXPECT_EQ(sinks[i]->tokens(), Expected(model_, requests[i])) << i;
  }
  d.ExpectNothingLeaks();
}

TEST_P(EngineTest, ScarceMemoryPreemptsAndStillGivesTheSameTokens) {
  DeploymentOptions options;
  options.connector = GetParam();
  options.slots = 6;
  options.blocks = 24;
  Deployment d(model_, options);
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < 12; ++i) {
    requests.push_back(Request(50 + i, 40 + 3 * i, 100));
  }
  const auto sinks = d.StartTogether(requests);
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->Wait().reason, FinishReason::kLength) << sinks[i]->Wait().error;
    EXPECT_EQ(sinks[i]->tokens(), Expected(model_, requests[i])) << i;
  }
  const engine::EngineStats& stats = d.decode().engine().stats();
  EXPECT_GT(stats.preemptions.load(), 0u);
  EXPECT_GT(stats.parked.load(), 0u);
  EXPECT_EQ(stats.resumed.load(), stats.parked.load());
  EXPECT_EQ(stats.park_rejects.load(), 0u);
  EXPECT_EQ(stats.parked_bytes.load(), 0u);
  d.ExpectNothingLeaks();
}

// One of many with the same prompt computes it; the others wait for its state and go on from that.
TEST(EnginePrefixTest, AStateBeingComputedIsWaitedFor) {
  const auto model = std::make_shared<FakeModel>();
  DeploymentOptions options;
  options.slots = 100;
  Deployment d(model, options);
  const GenerateRequest request = Request(11, 500, 5);
  const auto truth = Expected(model, request);
  std::vector<std::shared_ptr<Collector>> sinks;
  // All are there before the first is admitted.
  d.decode().engine().RunOnEngineThread([&](engine::Core&) {
    for (int i = 0; i < 8; ++i) sinks.push_back(d.Start(request));
  });
  for (auto& sink : sinks) {
    EXPECT_EQ(sink->Wait().reason, FinishReason::kLength);
    EXPECT_EQ(sink->tokens(), truth);
  }
  const engine::EngineStats& stats = d.decode().engine().stats();
  EXPECT_GE(stats.waits_for_prefix.load(), 7u);
  EXPECT_EQ(stats.computed_rows.load(), 500u + 7 * (500 - 496) + 8 * 4);
  d.ExpectNothingLeaks();
}

// Whoever waits does not wait for ever: the one it waits for is cancelled.
TEST(EnginePrefixTest, ACancelledOneIsNotWaitedFor) {
  const auto model = std::make_shared<FakeModel>();
  Deployment d(model, {});
  const GenerateRequest request = Request(12, 3000, 5);
  const auto truth = Expected(model, request);
  std::shared_ptr<engine::Generation> first;
  std::shared_ptr<Collector> a, b;
  d.decode().engine().RunOnEngineThread([&](engine::Core&) {
    a = d.Start(request, &first);
    b = d.Start(request);
    first->Cancel();
  });
  EXPECT_EQ(a->Wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(b->Wait().reason, FinishReason::kLength);
  EXPECT_EQ(b->tokens(), truth);
  d.ExpectNothingLeaks();
}

// A shared beginning gets a state when the second request leaves it; the third starts there.
TEST(EnginePrefixTest, ABranchPointGetsAStateOnSecondSight) {
  const auto model = std::make_shared<FakeModel>();
  const auto system = RandomPrompt(1, 160, 97);
  for (const std::string connector : {"", "inproc"}) {
    SCOPED_TRACE(connector);
    DeploymentOptions options;
    options.connector = connector;
    Deployment d(model, options);
    // Who computes the prompt is who must find the beginning again.
    const auto& stats = (connector.empty() ? d.decode() : d.prefill()).engine().stats();
    uint64_t rows[4];
    for (size_t i = 0; i < 4; ++i) {
      const uint64_t before = stats.computed_rows.load();
      GenerateRequest r = Request(20 + i, 0, 1);
      r.prompt = system;
      const auto tail = RandomPrompt(30 + i, 100, 97);
      r.prompt.insert(r.prompt.end(), tail.begin(), tail.end());
      auto sink = d.Start(r);
      EXPECT_EQ(sink->Wait().usage.rejects, 0);
      EXPECT_EQ(sink->tokens(), Expected(model, r));
      rows[i] = stats.computed_rows.load() - before;
    }
    const uint64_t whole = connector.empty() ? 260 : 256;  // prefill leaves the tail to decode
    EXPECT_EQ(rows[0], whole);
    EXPECT_EQ(rows[1], whole);
    EXPECT_EQ(rows[2], whole - 160);
    EXPECT_EQ(rows[3], whole - 160);
    d.ExpectNothingLeaks();
  }
}

// No row is computed twice by a sequence that was parked, at whatever boundary it gave way.
TEST(EngineMemoryTest, AParkedSequenceComputesNothingAgain) {
  const auto model = std::make_shared<FakeModel>();
  for (const uint64_t park_bytes : {uint64_t{0}, uint64_t{1} << 30}) {
    DeploymentOptions options;
    options.slots = 8;
    options.blocks = 14;
    options.engine.prefix_caching = false;
    options.engine.park_bytes = park_bytes;
    Deployment d(model, options);
    std::vector<GenerateRequest> requests;
    uint64_t rows = 0;
    for (size_t i = 0; i < 4; ++i) {
      requests.push_back(Request(70 + i, 20 + i, 90));
      rows += requests.back().prompt.size() + 90 - 1;
    }
    const auto sinks = d.StartTogether(requests);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->Wait().reason, FinishReason::kLength) << sinks[i]->Wait().error;
      EXPECT_EQ(sinks[i]->tokens(), Expected(model, requests[i])) << i;
    }
    const engine::EngineStats& stats = d.decode().engine().stats();
    EXPECT_GT(stats.preemptions.load(), 0u);
    if (park_bytes == 0) {
      EXPECT_EQ(stats.parked.load(), 0u);
      EXPECT_GT(stats.computed_rows.load(), rows);
    } else {
      EXPECT_EQ(stats.resumed.load(), stats.preemptions.load());
      EXPECT_EQ(stats.computed_rows.load(), rows);
    }
    d.ExpectNothingLeaks();
  }
}

// Found by the simulator: the engine preempted and admitted the sequence again as fast as it could.
TEST(EngineMemoryTest, APreemptedSequenceWaitsForMemoryThatATransferHolds) {
  const auto model = std::make_shared<FakeModel>();
  DeploymentOptions options;
  options.blocks = 8;
  Deployment d(model, options);
  BlockPool* pool = d.decode().memory().blocks(0);
  std::vector<BlockHandle> landing;
  std::vector<BlockLease> leases;
  for (int i = 0; i < 5; ++i) {
    landing.push_back(pool->Reserve({OwnerId(1u << 30), Attempt(1), FillMode::kZero}).value());
    ASSERT_TRUE(pool->Land(landing.back(), Attempt(1)).ok());
    leases.push_back(pool->Acquire(landing.back(), LeaseFor::kLand).value());
  }
  const GenerateRequest request = Request(9, 30, 60);
  auto sink = d.Start(request);
  while (d.decode().engine().stats().preemptions.load() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_LE(d.decode().engine().stats().preemptions.load(), 2u);
  leases.clear();
  for (const BlockHandle& handle : landing) {
    ASSERT_TRUE(pool->Quarantine(handle).ok());
    ASSERT_TRUE(pool->ProvenQuiet(handle).ok());
  }
  d.decode().engine().RunOnEngineThread([](engine::Core&) {});  // as the end of a transfer does
  EXPECT_EQ(sink->Wait().reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens(), Expected(model, request));
  d.ExpectNothingLeaks();
}

TEST_P(EngineTest, ARequestThatCannotFitFailsAndHarmsNobody) {
  DeploymentOptions options;
  options.connector = GetParam();
  options.slots = 4;
  options.blocks = 8;
  Deployment d(model_, options);
  GenerateRequest big = Request(1, 100, 20);
  big.sampling.max_tokens = 1000;
  auto sink = d.Start(big);
  auto small = d.Start(Request(2, 20, 10));
  sink->Wait();  // ends at the effective context of 128 tokens
  EXPECT_EQ(sink->tokens().size(), 28u);
  EXPECT_EQ(small->Wait().reason, FinishReason::kLength);
  auto too_long = d.decode().engine().Start(Request(3, 128, 1), std::make_shared<Collector>());
  EXPECT_EQ(too_long.status().code(), absl::StatusCode::kInvalidArgument);
  d.ExpectNothingLeaks();
}

TEST_P(EngineTest, CancelAtAnyMomentLeaksNothing) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  SplitMix64 rng(5);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 150; ++i) {
    std::shared_ptr<engine::Generation> handle;
    sinks.push_back(d.Start(Request(static_cast<uint64_t>(i), 1 + rng.Below(200), 200), &handle));
    if (rng.Below(3) == 0) sinks.back()->WaitForTokens(rng.Below(20));
    if (rng.Below(3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(2000)));
    handle->Cancel();
    if (i % 10 == 0) handle->Cancel();
  }
  for (auto& sink : sinks) {
    const auto reason = sink->Wait().reason;
    EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
  }
  EXPECT_EQ(d.decode().engine().active(), 0);
  d.ExpectNothingLeaks();
}

TEST_P(EngineTest, StoppingWithRequestsInFlightEndsThemAll) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (uint64_t i = 0; i < 40; ++i) sinks.push_back(d.Start(Request(i, 150, 3000)));
  sinks[0]->WaitForTokens(3);
  d.decode().Stop();
  int cancelled = 0;
  for (auto& sink : sinks) {  // on a busy machine the first ones may have come to their end
    const FinishReason reason = sink->Wait().reason;
    EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
    cancelled += reason == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_GT(cancelled, 0);
}

TEST_P(EngineTest, ContinuationElsewhereIsTheSameStream) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  const GenerateRequest whole = Request(9, 70, 60);
  auto sink = d.Start(whole);
  sink->Wait();
  const auto tokens = sink->tokens();
  for (const size_t cut : {size_t{1}, size_t{10}, size_t{26}, size_t{59}}) {
    Deployment other(model_, options);
    GenerateRequest rest = whole;
    rest.prompt_len = 70;
    rest.prompt.insert(rest.prompt.end(), tokens.begin(),
                       tokens.begin() + static_cast<ptrdiff_t>(cut));
    auto tail = other.Start(rest);
    EXPECT_EQ(tail->Wait().reason, FinishReason::kLength);
    EXPECT_EQ(tail->tokens(),
              std::vector<TokenId>(tokens.begin() + static_cast<ptrdiff_t>(cut), tokens.end()));
  }
}

TEST_P(EngineTest, PrefillWorkerGoneMeansRecomputeWithTheSameTokens) {
  if (std::string(GetParam()).empty()) return;  // needs a prefill worker
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  const std::string gone = d.prefill().EndpointOf(options.connector);
  d.prefill().Stop();
  GenerateRequest r = Request(3, 90, 20);
  r.prefill_endpoint = gone;
  auto sink = d.Start(r);
  const auto& result = sink->Wait();
  EXPECT_EQ(sink->tokens(), Expected(model_, r));
  EXPECT_EQ(result.usage.rejects, 2);  // the try and its retry
  EXPECT_EQ(result.usage.recomputed_tokens, 80);
  ASSERT_FALSE(result.handoffs.empty());
  EXPECT_EQ(result.handoffs[0].reason, "peer_unavailable");
}

// F12: the same sizes, another axis order; F14: other weights.
TEST_P(EngineTest, PeerWithAnotherLayoutOrModelIsRefusedAndNothingIsLost) {
  const std::string connector = GetParam();
  if (connector.empty() || connector == "inproc") return;  // two deployments share no hub
  FakeModelOptions axes, weights;
  axes.axes = "H,P,N";
  weights.weights = 2;
  for (const auto& [other, reason] :
       {std::pair(axes, "layout_mismatch"), std::pair(weights, "model_mismatch")}) {
    DeploymentOptions options;
    options.connector = connector;
    Deployment mine(model_, options), theirs(std::make_shared<FakeModel>(other), options);
    GenerateRequest r = Request(8, 90, 20);
    r.prefill_endpoint = theirs.prefill().EndpointOf(connector);
    auto sink = mine.Start(r);
    const auto& result = sink->Wait();
    ASSERT_FALSE(result.handoffs.empty());
    EXPECT_EQ(result.handoffs[0].reason, reason) << result.handoffs[0].message;
    r.prefill_endpoint.clear();
    EXPECT_EQ(sink->tokens(), Expected(model_, r));
    mine.ExpectNothingLeaks();
    theirs.ExpectNothingLeaks();
  }
}

TEST_P(EngineTest, TenantsDoNotShareState) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  GenerateRequest r = Request(4, 64, 8);
  d.Start(r)->Wait();
  EXPECT_GT(d.Start(r)->Wait().usage.cached_tokens, 0);
  r.cache_salt = "tenant";
  auto other = d.Start(r);
  EXPECT_EQ(other->Wait().usage.cached_tokens, 0);
  EXPECT_EQ(other->tokens(), Expected(model_, r));
}

TEST_P(EngineTest, SeedsOfOnePromptStayApart) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  GenerateRequest a = Request(6, 50, 30), b = a;
  b.sampling.seed = a.sampling.seed + 1;
  auto sa = d.Start(a), sb = d.Start(b);
  sa->Wait();
  sb->Wait();
  EXPECT_NE(sa->tokens(), sb->tokens());
  EXPECT_EQ(sa->tokens(), Expected(model_, a));
  EXPECT_EQ(sb->tokens(), Expected(model_, b));
}

TEST_P(EngineTest, AbsurdRequestsAreRefusedByName) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  auto refuse = [&](GenerateRequest r, const std::string& word) {
    auto started = d.decode().engine().Start(std::move(r), std::make_shared<Collector>());
    ASSERT_FALSE(started.ok());
    EXPECT_NE(std::string(started.status().message()).find(word), std::string::npos)
        << started.status();
  };
  GenerateRequest r = Request(1, 5, 5);
  r.prompt.clear();
  refuse(r, "empty");
  r = Request(1, 5, 5);
  r.prompt[2] = 97;
  refuse(r, "97");
  r = Request(1, 5000, 5);
  refuse(r, "context");
  r = Request(1, 5, 5);
  r.sampling.top_p = 2;
  refuse(r, "top_p");
}

INSTANTIATE_TEST_SUITE_P(
    Connectors, EngineTest, ::testing::ValuesIn(EveryConnector()), [](const auto& info) {
      return std::string(info.param).empty() ? "all_in_one" : std::string(info.param);
    });

}  // namespace
}  // namespace baton::testing
