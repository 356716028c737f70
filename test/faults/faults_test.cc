// Faults between two real workers that the drill (src/drill, which runs the catalogue of faults
// over every connector) does not cover: failing instead of recomputing, and a peer that truly has
// other weights. The hand-off's own tests (src/handoff) have the same catalogue on bytes.
#include <functional>

#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using ::testing::AnyOf;

GenerateRequest Request(uint64_t seed, size_t n, int64_t vocab) {
  GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, vocab);
  r.sampling.max_tokens = 12;
  r.sampling.temperature = 0;
  return r;
}

struct Outcome {
  std::vector<TokenId> tokens;
  Sha256 hash;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Undisturbed(std::shared_ptr<const model::Model> model, const GenerateRequest& r) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  auto sink = d.Start(r);
  sink->Wait();
  return {sink->tokens(), sink->logits_hash()};
}

using Param = std::tuple<std::string, std::string>;
class Faults : public ::testing::TestWithParam<Param> {};

TEST_P(Faults, FailOnRejectSaysWhy) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const GenerateRequest victim = Request(1, 75, model->vocab_size());
  static const MonotonicClock clock;
  HostileConnector* hostile = nullptr;
  DeploymentOptions options;
  options.connector = connector;
  options.engine.fail_on_reject = true;
  options.tweak_decode = [&](engine::WorkerOptions* o) {
    o->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock, o->hub));
    auto wrapped = std::make_unique<HostileConnector>(o->connectors->Take(connector));
    hostile = wrapped.get();
    o->connectors->Add(std::move(wrapped));
  };
  Deployment d(model, options);
  hostile->Arm(MoveNothing(true), 1000);
  auto sink = d.Start(victim);
  const auto& result = sink->Wait();
  EXPECT_EQ(result.reason, FinishReason::kError);
  EXPECT_TRUE(ReasonOf(result.error).has_value()) << result.error;
  EXPECT_TRUE(sink->tokens().empty());
  EXPECT_EQ(result.usage.rejects, 2);
  hostile->Disarm();
  EXPECT_EQ(d.Start(victim)->Wait().reason, FinishReason::kLength);
  d.ExpectNothingLeaks();
}

// F14: a peer with other weights or another layout is refused at hello, both values printed.
class FaultsAcrossHubs : public Faults {};
TEST_P(FaultsAcrossHubs, F14OtherWeightsAreRefusedAtHello) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const std::string long_dir = "long/" + dir.substr(dir.find('/') + 1);
  auto other = LoadModel(long_dir);
  DeploymentOptions options;
  options.connector = connector;
  Deployment mine(model, options), theirs(other, options);
  GenerateRequest r = Request(1, 75, std::min(model->vocab_size(), other->vocab_size()));
  r.prefill_endpoint = theirs.prefill().EndpointOf(connector);
  auto sink = mine.Start(r);
  const auto& result = sink->Wait();
  ASSERT_FALSE(result.handoffs.empty());
  EXPECT_THAT(result.handoffs[0].reason, AnyOf("model_mismatch", "layout_mismatch"));
  const Outcome truth = Undisturbed(model, r);
  EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), truth);
}

const auto kGoldens =
    ::testing::Values("short/llama", "short/granitemoehybrid", "short/bamba", "short/jamba");
const auto kModels = ::testing::Values(
    "short/llama", "short/granitemoehybrid", "short/bamba", "short/jamba", "demo");
std::vector<std::string> Strings(const std::vector<const char*>& names) {
  return {names.begin(), names.end()};
}
std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  const std::string dir = std::get<0>(info.param);
  return dir.substr(dir.find('/') + 1) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Models,
                         Faults,
                         ::testing::Combine(kModels, ::testing::ValuesIn(Strings(Connectors()))),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Models,
                         FaultsAcrossHubs,
                         ::testing::Combine(kGoldens, ::testing::ValuesIn(Strings(ConnectorsAcrossHubs()))),
                         NameOf);

}  // namespace
}  // namespace baton::testing
