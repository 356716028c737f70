// Replay audit: a kernel that writes wrong state is invisible to every digest, since the wrong
// bytes are sealed as they are; computing a hit again finds it.
#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "support/deployment.h"
#include "support/fake_model.h"

namespace baton::testing {
namespace {

using engine::EngineStats;
using engine::FinishReason;
using engine::GenerateRequest;

// Writes one wrong byte into the state of the next sequence that passes `at`.
class LyingModel final : public model::Model {
 public:
  const model::ModelConfig& config() const override { return inner_.config(); }
  const Layout& layout() const override { return inner_.layout(); }
  const Sha256& fingerprint() const override { return inner_.fingerprint(); }
  int64_t vocab_size() const override { return inner_.vocab_size(); }
  int64_t max_model_len() const override { return inner_.max_model_len(); }
  size_t weight_bytes() const override { return 0; }
  Status Forward(std::span<const model::BatchItem> batch,
                 model::Workspace* workspace,
                 ThreadPool* pool) const override {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Status status = inner_.Forward(batch, workspace, pool);
    for (const model::BatchItem& item : batch)
      if (lie.exchange(false)) {
        float* x = reinterpret_cast<float*>(item.slot + layout().parts()[1].offset);
        *x += 1;
      }
    return status;
  }
  mutable std::atomic<bool> lie{false};
  mutable std::atomic<bool> slow{false};  // so that a request is certainly still running

 private:
  FakeModel inner_;
};

GenerateRequest Request(std::vector<TokenId> prompt, int64_t max_tokens = 8) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

const EngineStats& WaitForAudits(Deployment& d, uint64_t n) {
  const EngineStats& stats = d.decode().engine().stats();
  while (stats.audits.load() + stats.audits_skipped.load() < n)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return stats;
}

class AuditTest : public ::testing::Test {
 protected:
  DeploymentOptions Options(double share, double zero_share) {
    DeploymentOptions o;
    o.engine.audit_share = share;
    o.engine.audit_zero_share = zero_share;
    o.engine.audit_every_steps = 2;
    return o;
  }
  std::vector<TokenId> Tokens(std::shared_ptr<Collector> sink) {
    EXPECT_EQ(sink->Wait().reason, FinishReason::kLength) << sink->Wait().error;
    return sink->tokens();
  }
  std::shared_ptr<LyingModel> model_ = std::make_shared<LyingModel>();
  const std::vector<TokenId> prompt_ = RandomPrompt(5, 100, 97);
};

TEST_F(AuditTest, HonestHitsPassFromZeroAndFromAnEarlierCheckpoint) {
  for (const double zero : {0.0, 1.0}) {
    Deployment d(model_, Options(1, zero));
    const auto first = Tokens(d.Start(Request(prompt_)));
    std::vector<TokenId> longer = prompt_;
    longer.insert(longer.end(), first.begin(), first.end());
    Tokens(d.Start(Request(longer)));
    EXPECT_EQ(Tokens(d.Start(Request(prompt_))), first);
    const EngineStats& stats = WaitForAudits(d, 2);
    EXPECT_EQ(stats.audits.load(), 2u);
    EXPECT_EQ(stats.audits_from_zero.load(), zero == 1 ? 2u : 0u);
    EXPECT_EQ(stats.audit_mismatches.load(), 0u);
    EXPECT_GT(stats.prefix_hits.load(), 0u);
    d.ExpectNothingLeaks();
  }
}

TEST_F(AuditTest, AKernelThatSealsWrongBytesIsFoundAndItsCheckpointRevoked) {
  std::vector<TokenId> truth;
  {
    Deployment d(model_, Options(0, 0));
    truth = Tokens(d.Start(Request(prompt_)));
  }
  for (const double share : {0.0, 1.0}) {
    Deployment d(model_, Options(share, 1));
    model_->lie = true;
    const auto wrong = Tokens(d.Start(Request(prompt_)));
    ASSERT_NE(wrong, truth);  // a wrong kernel computes wrong tokens: no check can help that
    EXPECT_EQ(Tokens(d.Start(Request(prompt_))), wrong);  // every digest agrees
    if (share == 0) {
      EXPECT_EQ(Tokens(d.Start(Request(prompt_))), wrong);  // and so on for ever
      continue;
    }
    const EngineStats& stats = WaitForAudits(d, 1);
    EXPECT_EQ(stats.audit_mismatches.load(), 1u);
    EXPECT_EQ(Tokens(d.Start(Request(prompt_))), truth);
    WaitForAudits(d, stats.audits.load());
    d.ExpectNothingLeaks();
  }
}

TEST_F(AuditTest, DescendantsGoWithTheRevokedOneAndOthersStay) {
  Deployment d(model_, Options(0, 1));
  const auto other = RandomPrompt(6, 64, 97);
  const auto other_truth = Tokens(d.Start(Request(other)));
  model_->lie = true;
  const auto wrong = Tokens(d.Start(Request(prompt_)));
  std::vector<TokenId> turn = prompt_;
  turn.insert(turn.end(), wrong.begin(), wrong.end());
  turn.resize(turn.size() + 64, 3);
  const auto wrong_turn = Tokens(d.Start(Request(turn)));
  size_t before = 0;
  size_t revoked = 0;
  d.decode().engine().RunOnEngineThread([&](engine::Core& core) {
    before = core.checkpoints();
    const PrefixChain chain(ScopeOf(""), std::span<const TokenId>(prompt_).first(96));
    const auto bad = core.FindCheckpoint(core.BaseOf("").At(chain));
    ASSERT_NE(bad, nullptr);
    revoked = core.Revoke(bad->seal().state_id);
  });
  EXPECT_GE(revoked, 2u);
  EXPECT_LT(revoked, before);
  EXPECT_NE(Tokens(d.Start(Request(turn))), wrong_turn);
  EXPECT_EQ(Tokens(d.Start(Request(other))), other_truth);
  EXPECT_GT(d.decode().engine().stats().prefix_hits.load(), 0u);
  d.ExpectNothingLeaks();
}

// A running descendant is ended by name, not served on.
TEST_F(AuditTest, ASequenceThatGoesOnFromARevokedStateEndsWithAnError) {
  Deployment d(model_, Options(0, 1));
  Tokens(d.Start(Request(prompt_)));
  model_->slow = true;
  auto sink = d.Start(Request(prompt_, 3000));
  sink->WaitForTokens(1);
  d.decode().engine().RunOnEngineThread([&](engine::Core& core) {
    const PrefixChain chain(ScopeOf(""), std::span<const TokenId>(prompt_).first(96));
    const auto bad = core.FindCheckpoint(core.BaseOf("").At(chain));
    ASSERT_NE(bad, nullptr);
    EXPECT_GE(core.Revoke(bad->seal().state_id), 2u);
  });
  model_->slow = false;
  EXPECT_EQ(sink->Wait().reason, FinishReason::kError);
  EXPECT_EQ(ReasonOf(sink->Wait().error), Reason::kAuditMismatch) << sink->Wait().error;
  d.ExpectNothingLeaks();
}

// Audits give way: under load that leaves no room they are skipped, and nothing else changes.
TEST_F(AuditTest, AuditsGiveWayUnderPressure) {
  DeploymentOptions options = Options(1, 1);
  options.slots = 5;
  options.blocks = 24;
  Deployment d(model_, options);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 30; ++i) sinks.push_back(d.Start(Request(prompt_, 20)));
  const auto truth = Tokens(sinks[0]);
  for (auto& sink : sinks) EXPECT_EQ(Tokens(sink), truth);
  const EngineStats& stats = d.decode().engine().stats();
  while (d.decode().engine().stats().running.load() != 0) std::this_thread::yield();
  EXPECT_EQ(stats.audit_mismatches.load(), 0u);
  EXPECT_GT(stats.audits.load() + stats.audits_skipped.load(), 0u);
  d.ExpectNothingLeaks();
}

}  // namespace
}  // namespace baton::testing
