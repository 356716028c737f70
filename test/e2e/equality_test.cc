// The main promise: logits and tokens of a request are the same bits however it is served, and each
// run says that it really was served that way (bytes landed, nothing rejected or recomputed).
#include "gtest/gtest.h"
#include "model/test_types.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::GenerateRequest;
using engine::GenerateResult;

struct Outcome {
  std::vector<TokenId> tokens;
  Sha256 hash;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::vector<GenerateRequest> Requests(const model::Model& model, size_t count, bool greedy) {
  static constexpr size_t kLengths[] = {33, 5, 16, 17, 48, 100, 200, 31};
  std::vector<GenerateRequest> requests(count);
  for (size_t i = 0; i < count; ++i) {
    GenerateRequest& r = requests[i];
    r.prompt = RandomPrompt(100 + i, kLengths[i % 8], model.vocab_size());
    r.sampling.max_tokens = 40;
    r.sampling.temperature = greedy ? 0.0 : 0.9;
    r.sampling.top_p = greedy ? 1.0 : 0.95;
    r.sampling.seed = 7 + i;
  }
  return requests;
}

// Every hand-off moved exactly what the layout says, over the connector asked for.
void ExpectHonest(const Deployment& d,
                  const GenerateRequest& r,
                  const GenerateResult& result,
                  const std::string& connector) {
  EXPECT_EQ(result.reason, engine::FinishReason::kLength) << result.error;
  EXPECT_EQ(result.usage.rejects, 0);
  EXPECT_EQ(result.usage.recomputed_tokens, 0);
  const int64_t g = HandoffBoundary(static_cast<int64_t>(r.prompt.size()));
  if (!d.disaggregated() || g == 0) {
    EXPECT_TRUE(result.handoffs.empty());
    return;
  }
  EXPECT_LE(result.usage.local_prefill_tokens, 16);
  ASSERT_EQ(result.handoffs.size(), 1u);
  const engine::HandoffRecord& h = result.handoffs[0];
  const Layout& layout = const_cast<Deployment&>(d).model().layout();
  EXPECT_TRUE(h.verified);
  EXPECT_EQ(h.boundary, g);
  EXPECT_EQ(h.connector, connector);
  EXPECT_EQ(h.state_bytes, static_cast<int64_t>(layout.state_payload_bytes()));
  EXPECT_EQ(h.kv_bytes, static_cast<int64_t>(layout.KvPayloadBytes(static_cast<uint64_t>(g))));
  EXPECT_GT(h.state_bytes + h.kv_bytes, 0);
}

// First turn of all requests at once, then a second turn that continues each conversation.
std::vector<Outcome> RunTwoTurns(Deployment& d,
                                 const std::vector<GenerateRequest>& requests,
                                 const std::string& connector) {
  std::vector<Outcome> outcomes;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const GenerateRequest& r : requests) sinks.push_back(d.Start(r));
  std::vector<GenerateRequest> second = requests;
  for (size_t i = 0; i < sinks.size(); ++i) {
    ExpectHonest(d, requests[i], sinks[i]->Wait(), connector);
    outcomes.push_back({sinks[i]->tokens(), sinks[i]->logits_hash()});
    second[i].prompt.insert(second[i].prompt.end(), outcomes[i].tokens.begin(),
                            outcomes[i].tokens.end());
    const auto more = RandomPrompt(900 + i, 45, d.model().vocab_size());
    second[i].prompt.insert(second[i].prompt.end(), more.begin(), more.end());
  }
  sinks.clear();
  for (const GenerateRequest& r : second) sinks.push_back(d.Start(r));
  for (size_t i = 0; i < sinks.size(); ++i) {
    ExpectHonest(d, second[i], sinks[i]->Wait(), connector);
    EXPECT_GE(sinks[i]->Wait().usage.cached_tokens, FloorToGrid(requests[i].sampling.max_tokens))
        << "the second turn did not resume";
    outcomes.push_back({sinks[i]->tokens(), sinks[i]->logits_hash()});
  }
  return outcomes;
}

// Without any cache: every prompt computed from token 0.
std::vector<Outcome> RunCold(std::shared_ptr<const model::Model> model,
                             const std::vector<GenerateRequest>& requests) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  std::vector<Outcome> outcomes;
  std::vector<GenerateRequest> turn = requests;
  Deployment d(model, options);
  for (int t = 0; t < 2; ++t) {
    for (size_t i = 0; i < turn.size(); ++i) {
      auto sink = d.Start(turn[i]);
      EXPECT_EQ(sink->Wait().usage.cached_tokens, 0);
      outcomes.push_back({sink->tokens(), sink->logits_hash()});
      turn[i].prompt.insert(turn[i].prompt.end(), outcomes.back().tokens.begin(),
                            outcomes.back().tokens.end());
      const auto more = RandomPrompt(900 + i, 45, model->vocab_size());
      turn[i].prompt.insert(turn[i].prompt.end(), more.begin(), more.end());
    }
  }
  return outcomes;
}

class Equality : public ::testing::TestWithParam<std::string> {};

TEST_P(Equality, SameBitsHoweverServed) {
  auto model = LoadModel(GetParam());
  for (const bool greedy : {true, false}) {
    for (const size_t count : {size_t{1}, size_t{8}}) {
      const auto requests = Requests(*model, count, greedy);
      const std::vector<Outcome> cold = RunCold(model, requests);
      for (const std::string connector : EveryConnector()) {
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(::testing::Message()
                       << "connector '" << connector << "', " << count << " requests, greedy "
                       << greedy << ", " << threads << " threads");
          DeploymentOptions options;
          options.connector = connector;
          options.threads = threads;
          Deployment d(model, options);
          EXPECT_EQ(RunTwoTurns(d, requests, connector), cold);
          EXPECT_GT(d.decode().engine().stats().checkpoints_made.load(), 0u);
          if (d.disaggregated()) {
            EXPECT_EQ(d.decode().handoff_stats().verified.load(),
                      d.decode().handoff_stats().pulls.load());
            // The second turn's deeper bundle lies on the decode worker: prefill pulled it.
            EXPECT_GT(d.prefill().handoff_stats().verified.load(), 0u);
          } else {
            EXPECT_GT(d.decode().engine().stats().prefix_hits.load(), 0u);
          }
          d.ExpectNothingLeaks();
        }
      }
    }
  }
}

// The comparison can fail: another history gives another hash.
TEST_P(Equality, AnotherHistoryGivesAnotherHash) {
  auto model = LoadModel(GetParam());
  auto requests = Requests(*model, 1, true);
  const auto a = RunCold(model, requests);
  requests[0].prompt[3] = (requests[0].prompt[3] + 1) % static_cast<TokenId>(model->vocab_size());
  EXPECT_NE(RunCold(model, requests)[0].hash, a[0].hash);
}

Digester Keyed(uint8_t key) {
  return *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(std::vector<uint8_t>(32, key)));
}

TEST(KeyedDigests, SameBitsWithKeyedDigestsOverEveryConnector) {
  auto model = LoadModel("demo");
  const auto requests = Requests(*model, 4, false);
  const std::vector<Outcome> cold = RunCold(model, requests);
  for (const std::string connector : EveryConnector()) {
    SCOPED_TRACE(connector);
    DeploymentOptions options;
    options.connector = connector;
    options.tweak_decode = [](engine::WorkerOptions* o) { o->digester = Keyed(1); };
    options.tweak_prefill = options.tweak_decode;
    Deployment d(model, options);
    EXPECT_EQ(RunTwoTurns(d, requests, connector), cold);
    d.ExpectNothingLeaks();
  }
}

// F28. The peers say so when they meet; the request is computed from its tokens instead.
TEST(KeyedDigests, AWrongKeyIsRefusedWithItsReasonAndHarmsNoRequest) {
  auto model = LoadModel("demo");
  const auto requests = Requests(*model, 4, true);
  const std::vector<Outcome> cold = RunCold(model, requests);
  for (const std::string connector : Connectors()) {
    SCOPED_TRACE(connector);
    DeploymentOptions options;
    options.connector = connector;
    options.tweak_prefill = [](engine::WorkerOptions* o) { o->digester = Keyed(1); };
    options.tweak_decode = [](engine::WorkerOptions* o) { o->digester = Keyed(2); };
    Deployment d(model, options);
    for (size_t i = 0; i < requests.size(); ++i) {
      auto sink = d.Start(requests[i]);
      sink->Wait();
      EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), cold[i]);
    }
    const HandoffStats& stats = d.decode().handoff_stats();
    EXPECT_GT(stats.rejects[static_cast<size_t>(Reason::kDigestAlgorithm)], 0u);
    EXPECT_EQ(stats.verified, 0u);
    d.ExpectNothingLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Goldens,
    Equality,
    ::testing::ValuesIn(EveryType({"short/nemotron_h@bf16", "short/granitemoehybrid@bf16",
                                   "short/bamba@fp8_e4m3", "short/qwen3_5@bf16",
                                   "short/qwen3_next@fp8_e4m3", "short/minimax@fp8_e4m3", "demo"})),
    [](const auto& info) { return model::TestName(info.param.substr(info.param.find('/') + 1)); });

}  // namespace
}  // namespace baton::testing
