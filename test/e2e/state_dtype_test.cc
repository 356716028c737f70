// Narrow recurrent state through the engine: damage to the tail that lies behind the slot off the
// grid, hand-off of fewer bytes, and peers of another dtype. Equality over every connector is
// equality_test's, preemption preemption_test's.
#include <algorithm>
#include <atomic>
#include <string>

#include "engine/worker.h"
#include "gtest/gtest.h"
#include "handoff/checks_for_testing.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::GenerateRequest;

class StateDType : public ::testing::TestWithParam<const char*> {
 protected:
  // "short/bamba" of "short/bamba@bf16".
  static std::string Golden() {
    const std::string name = GetParam();
    return name.substr(0, name.find('@'));
  }
  std::shared_ptr<const model::Model> model_ = LoadModel(GetParam());
};

INSTANTIATE_TEST_SUITE_P(All,
                         StateDType,
                         ::testing::Values("short/bamba@bf16",
                                           "short/bamba@f16",
                                           "short/bamba@fp8_e4m3",
                                           "short/qwen3_5@bf16",
                                           "short/olmo_hybrid@fp8_e4m3",
                                           "short/minimax@fp8_e4m3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '@', '_');
                           return name.substr(name.find('/') + 1);
                         });

// Four sequences that give way to each other; each parked tail has the top bit of its first
// element's mantissa flipped.
class DamagedTails {
 public:
  DamagedTails(std::shared_ptr<const model::Model> model, Checks checks) {
    DeploymentOptions options;
    options.slots = 8;
    options.blocks = 14;
    options.engine.prefix_caching = false;
    options.tweak_decode = [&](engine::WorkerOptions* o) {
      o->checks = checks;
      o->on_parked = [&](engine::ParkedBundle* parked) {
        if (parked->tail().empty()) return;
        parked->TailForTesting()[2] ^= std::byte{0x40};
        ++damaged;
      };
    };
    Deployment d(model, options);
    std::vector<GenerateRequest> requests;
    for (size_t i = 0; i < 4; ++i) requests.push_back(RandomRequest(*model, 70 + i, 20 + i, 90));
    const auto sinks = d.StartTogether(requests);
    for (size_t i = 0; i < sinks.size(); ++i) {
      wrong += AnswerOf(*sinks[i]) != ColdAnswer(model, requests[i]);
    }
    rejects = d.decode().engine().stats().park_rejects.load();
    d.ExpectNothingLeaks();
  }

  std::atomic<uint64_t> damaged{0};
  uint64_t rejects = 0;
  int wrong = 0;  // answers
};

// F25 off the grid: a tail that was damaged at rest is refused, and the sequence computes again.
TEST_P(StateDType, ADamagedTailIsRefusedAndTheAnswerStaysRight) {
  const DamagedTails run(model_, Checks());
  EXPECT_GT(run.damaged.load(), 0u);
  EXPECT_EQ(run.rejects, run.damaged.load());
  EXPECT_EQ(run.wrong, 0);
}

TEST_P(StateDType, WithTheDigestOffADamagedTailReachesCompute) {
  const DamagedTails run(model_, ChecksForTesting::Without({Check::kStateDigest}));
  EXPECT_GT(run.damaged.load(), 0u);
  EXPECT_EQ(run.rejects, 0u);
  EXPECT_GT(run.wrong, 0);
}

TEST_P(StateDType, FewerBytesAreHandedOver) {
  DeploymentOptions options;
  options.connector = "inproc";
  Deployment d(model_, options);
  const GenerateRequest request = RandomRequest(*model_, 5, 75, 20);
  auto sink = d.Start(request);
  ASSERT_EQ(sink->Wait().handoffs.size(), 1u);
  const engine::HandoffRecord& h = sink->Wait().handoffs[0];
  EXPECT_TRUE(h.verified);
  EXPECT_EQ(h.boundary, 64);
  EXPECT_EQ(h.state_bytes, static_cast<int64_t>(model_->layout().state_payload_bytes()));
  EXPECT_LT(model_->layout().state_payload_bytes(),
            LoadModel(Golden())->layout().state_payload_bytes());
  EXPECT_EQ(AnswerOf(*sink), ColdAnswer(model_, request));
  d.ExpectNothingLeaks();
}

// A peer with another dtype is refused when they meet; the request is computed from its tokens.
TEST_P(StateDType, AnotherDTypeIsRefused) {
  for (const std::string other : {"", "@bf16", "@f16", "@fp8_e4m3"}) {
    const auto peer = LoadModel(Golden() + other);
    const bool same = peer->layout().fingerprint() == model_->layout().fingerprint();
    EXPECT_EQ(same, Golden() + other == GetParam());
    engine::WorkerOptions prefill, decode;
    prefill.listen = {"tcp:127.0.0.1:0"};
    auto source = engine::Worker::Create(peer.get(), std::move(prefill));
    auto sink_worker = engine::Worker::Create(model_.get(), std::move(decode));
    ASSERT_TRUE(source.ok() && sink_worker.ok());
    GenerateRequest request = RandomRequest(*model_, 6, 50, 5);
    const Answer expected = ColdAnswer(model_, request);
    request.prefill_endpoint = (*source)->EndpointOf("tcp");
    auto sink = std::make_shared<Collector>();
    ASSERT_TRUE((*sink_worker)->engine().Start(std::move(request), sink).ok());
    const engine::GenerateResult& result = sink->Wait();
    EXPECT_EQ(AnswerOf(*sink), expected);
    EXPECT_EQ(result.usage.recomputed_tokens, same ? 0 : 48);
    EXPECT_EQ(result.usage.rejects > 0, !same);
    if (!same) {
      ASSERT_FALSE(result.handoffs.empty());
      EXPECT_EQ(result.handoffs[0].reason, ReasonName(Reason::kLayoutMismatch))
          << result.handoffs[0].message;
    }
  }
}

}  // namespace
}  // namespace baton::testing
