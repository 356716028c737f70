// The one verification routine and sealing, without any transport.
#include "handoff/verify.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/rng.h"
#include "handoff/checks_for_testing.h"
#include "handoff/seal_bundle.h"
#include "handoff/testing/fake_node.h"

namespace baton {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() : bundle_(*FakeBundle::Make(&node_, {node_.Base(), tokens_, tokens_})) {
    verifier_.layout = &layout_;
    verifier_.digester = &node_.self().digester;
    verifier_.device = &node_.device();
    expected_.identity = node_.IdentityOf(tokens_);
    expected_.chain = &chain_;
    expected_.attempt = Attempt(3);
    expected_.epoch = node_.self().epoch;
    claim_.attempt = Attempt(3);
    claim_.epoch = node_.self().epoch;
    claim_.seal = bundle_->seal;
    claim_.state_id = bundle_->seal.state_id;
    claim_.block_digests = bundle_->block_digests;
    bytes_ = ReferenceBundle(node_, tokens_);
    const auto parts = BundleParts(layout_, tokens_.size());
    for (size_t i = 0; i < parts.size(); ++i)
      landed_.parts.push_back(
          {parts[i], bytes_[i], parts[i].bytes, parts[i].bytes, parts[i].bytes});
  }
  Status Verify() const { return VerifyBundle(verifier_, expected_, claim_, landed_); }
  void Expect(Reason reason, const char* text) {
    const Status status = Verify();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  }

  const Layout layout_ = SmallLayout();
  FakeNode node_{{&layout_, Sha256(), Digester(), kHandoffProtocolVersion, 4, 64, nullptr}};
  const std::vector<TokenId> tokens_ = SomeTokens(64, 1);
  const PrefixChain chain_{FakeNode::Scope(), tokens_};
  std::unique_ptr<FakeBundle> bundle_;
  std::vector<std::vector<std::byte>> bytes_;
  Verifier verifier_;
  Expectation expected_;
  BundleClaim claim_;
  LandedBundle landed_;
};

TEST_F(VerifyTest, AcceptsTheTruth) {
  EXPECT_TRUE(Verify().ok()) << Verify();
  ThreadPool pool(2);
  verifier_.pool = &pool;
  EXPECT_TRUE(Verify().ok()) << Verify();
}

TEST_F(VerifyTest, EveryPartIsReallyDigested) {
  ThreadPool pool(2);
  for (ThreadPool* p : {static_cast<ThreadPool*>(nullptr), &pool}) {
    verifier_.pool = p;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i].back() ^= std::byte{1};
      const Status status = Verify();
      EXPECT_EQ(ReasonOf(status), landed_.parts[i].part.is_state ? Reason::kDigestMismatch
                                                                 : Reason::kBlockDigestMismatch);
      const std::string name = PartKeyName(layout_, landed_.parts[i].part.key);
      EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
      bytes_[i].back() ^= std::byte{1};
    }
  }
}

TEST_F(VerifyTest, FirstFailingPartIsNamedAlsoInParallel) {
  ThreadPool pool(2);
  verifier_.pool = &pool;
  for (const size_t i : {size_t{2}, size_t{5}, bytes_.size() - 1}) bytes_[i][0] ^= std::byte{1};
  Expect(Reason::kBlockDigestMismatch, PartKeyName(layout_, landed_.parts[2].part.key).c_str());
}

TEST_F(VerifyTest, ClaimsAreComparedNeverAdopted) {
  claim_.attempt = Attempt(2);
  Expect(Reason::kAttemptMismatch, "expected 3, found 2");
  claim_.attempt = Attempt(3);
  claim_.epoch.bytes[0] ^= 1;
  Expect(Reason::kEpochMismatch, claim_.epoch.Hex().c_str());
  claim_.epoch.bytes[0] ^= 1;
  claim_.state_id.bytes[0] ^= 1;
  Expect(Reason::kStateIdMismatch, claim_.state_id.Hex().c_str());
  claim_.state_id.bytes[0] ^= 1;
  expected_.state_id = RandomBytes<StateId>();
  Expect(Reason::kStateIdMismatch, expected_.state_id->Hex().c_str());
  expected_.state_id = claim_.state_id;
  EXPECT_TRUE(Verify().ok());
  claim_.seal.identity.boundary = 48;
  Expect(Reason::kBoundaryMismatch, "48");
}

TEST_F(VerifyTest, ADiskObjectHasNeitherAttemptNorEpoch) {
  expected_.attempt.reset();
  expected_.epoch.reset();
  claim_.attempt = Attempt();
  claim_.epoch = Epoch();
  EXPECT_TRUE(Verify().ok());
}

TEST_F(VerifyTest, I4EveryPartWholeOrNothing) {
  LandedPart& part = landed_.parts[3];
  const std::string name = PartKeyName(layout_, part.part.key);
  for (uint64_t LandedPart::*field :
       {&LandedPart::planned, &LandedPart::posted, &LandedPart::landed}) {
    part.*field -= 1;
    Expect(Reason::kShortTransfer, name.c_str());
    part.*field += 1;
  }
  const LandedPart kept = part;
  landed_.parts.push_back(kept);
  Expect(Reason::kUnknownPart, name.c_str());
  landed_.parts.pop_back();
  landed_.parts.erase(landed_.parts.begin() + 3);
  Expect(Reason::kMissingPart, name.c_str());
}

TEST_F(VerifyTest, I6UnknownOrMissingDigestsAreRefused) {
  claim_.block_digests[0].pop_back();
  Expect(Reason::kMissingPart, "full");
  claim_.block_digests[0].resize(6, RandomBytes<Digest128>());
  Expect(Reason::kUnknownPart, "full");
  claim_.block_digests = bundle_->block_digests;
  claim_.block_digests.emplace_back();
  Expect(Reason::kUnknownPart, "groups");
  claim_.block_digests = bundle_->block_digests;
  claim_.seal.state_digests.pop_back();
  EXPECT_EQ(ReasonOf(Verify()), Reason::kMissingPart);
}

TEST_F(VerifyTest, RootOverTheBlocksIsChecked) {
  claim_.block_digests[0][1].bytes[0] ^= 1;
  Expect(Reason::kBlockDigestMismatch, "root");
}

TEST_F(VerifyTest, F28AbsentDigestIsNoPassAndItsTwin) {
  claim_.seal.state_digests[2] = Digest128();
  bytes_[layout_.TotalBlocks(64) + 2][0] ^= std::byte{1};
  Expect(Reason::kDigestAlgorithm, "no digest");
  verifier_.checks = ChecksForTesting::Without({Check::kAlgorithm});
  EXPECT_EQ(ReasonOf(Verify()), Reason::kDigestMismatch);
  verifier_.checks = ChecksForTesting::Without({Check::kAlgorithm, Check::kStateDigest});
  EXPECT_TRUE(Verify().ok());
}

TEST_F(VerifyTest, StaleDestinationIsRefusedAndItsTwin) {
  landed_.check_handles = [] { return Reject(Reason::kStaleHandle, "slot 0/1#2 is gone"); };
  Expect(Reason::kStaleHandle, "slot 0/1#2");
  verifier_.checks = ChecksForTesting::Without({Check::kHandle});
  EXPECT_TRUE(Verify().ok());
}

TEST_F(VerifyTest, PartMadeByHandDoesNotIndexOutsideTheLayout) {
  landed_.parts[0].part.group = 99;
  EXPECT_EQ(ReasonOf(Verify()), Reason::kUnknownPart);
  landed_.parts[0].part.is_state = true;
  landed_.parts[0].part.part = 99;
  EXPECT_EQ(ReasonOf(Verify()), Reason::kUnknownPart);
}

// Sealing.

TEST_F(VerifyTest, SealRefusesAClaimThatIsNotWhatTheSlotHolds) {
  const LiveRecord live(node_.Base(), chain_);
  SealRequest request;
  request.claim = live.Identity();
  request.live = &live;
  request.slot = bundle_->slot.bytes();
  request.block_digests = bundle_->block_digests;
  EXPECT_TRUE(SealBundle(node_.self(), node_.device(), request).ok());

  for (const size_t n : {63, 49, 48}) {
    const LiveRecord other(node_.Base(),
                           PrefixChain(FakeNode::Scope(), std::span(tokens_).first(n)));
    request.live = &other;
    EXPECT_EQ(ReasonOf(SealBundle(node_.self(), node_.device(), request).status()),
              Reason::kBoundaryMismatch)
        << n;
  }
  const LiveRecord stranger(node_.Base(), PrefixChain(FakeNode::Scope(), SomeTokens(64, 2)));
  request.live = &stranger;
  EXPECT_EQ(ReasonOf(SealBundle(node_.self(), node_.device(), request).status()),
            Reason::kIdentityMismatch);
}

TEST_F(VerifyTest, SealRefusesNonFiniteAndMisshapenBundles) {
  const LiveRecord live(node_.Base(), chain_);
  SealRequest request;
  request.claim = live.Identity();
  request.live = &live;
  std::vector<std::byte> slot(bundle_->slot.bytes().begin(), bundle_->slot.bytes().end());
  request.slot = slot;
  request.block_digests = bundle_->block_digests;
  const float inf = std::numeric_limits<float>::infinity();
  std::memcpy(slot.data() + layout_.parts()[4].offset, &inf, sizeof inf);
  EXPECT_EQ(ReasonOf(SealBundle(node_.self(), node_.device(), request).status()),
            Reason::kNonFinite);
  request.slot = request.slot.first(64);
  EXPECT_EQ(SealBundle(node_.self(), node_.device(), request).status().code(),
            absl::StatusCode::kInvalidArgument);
  request.slot = bundle_->slot.bytes();
  request.block_digests[1].pop_back();
  EXPECT_EQ(SealBundle(node_.self(), node_.device(), request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
