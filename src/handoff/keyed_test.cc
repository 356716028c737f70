// Keyed digests, over every connector: a whole hand-off under one key, and what happens when the
// keys differ.
#include <gtest/gtest.h>

#include <vector>

#include "handoff/checks_for_testing.h"
#include "handoff/testing/handoff_fixture.h"

namespace baton {
namespace {

Digester Keyed(uint8_t key) {
  return *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(std::vector<uint8_t>(32, key)));
}

class KeyedTest : public HandoffFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  KeyedTest() : HandoffFixture(GetParam()) {}

  void SetKeys(uint8_t receiver_key, uint8_t source_key) {
    SetUpNodes([&](FakeNodeOptions* o) { o->digester = Keyed(source_key); });
    FakeNodeOptions options;
    options.layout = &layout_;
    options.clock = &clock_;
    options.digester = Keyed(receiver_key);
    receiver_ = std::make_unique<FakeNode>(options);
    client_options_.self = receiver_->self();
    client_options_.pools = receiver_->pools();
    client_options_.device = &receiver_->device();
  }
};

TEST_P(KeyedTest, OneKeyLandsTheBundleBitForBit) {
  SetKeys(1, 1);
  Serve();
  for (const size_t n : {16, 48, 320}) {
    const auto tokens = SomeTokens(n, n);
    const PullRequest request = NewRequest(tokens);
    const PullResult result = Pull(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(receiver_->BytesOf(request) == ReferenceBundle(*receiver_, tokens));
    EXPECT_EQ(result.report.seal.algorithm, DigestAlgorithm::kBlake2b);
    receiver_->FreeUnits(request);
  }
  ExpectNothingLeaked();
}

TEST_P(KeyedTest, AWrongKeyIsRefusedAtTheGreeting) {
  SetKeys(1, 2);
  Serve();
  ExpectRejected(Reason::kDigestAlgorithm);
}

// Without the greeting's comparison the digests themselves say so: intact bytes under a foreign key
// are as good as damaged ones.
TEST_P(KeyedTest, AWrongKeyFailsTheDigestsToo) {
  SetKeys(1, 2);
  client_options_.checks = ChecksForTesting::Without({Check::kPeer});
  server_options_.checks = client_options_.checks;
  Serve();
  ExpectRejected(Reason::kBlockDigestMismatch);
}

INSTANTIATE_TEST_SUITE_P(All, KeyedTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
