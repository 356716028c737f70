// Faults of the transport, F01 to F10: what lands is not what was sealed. Ids as in
// docs/format/wire.md, conditions in testing/fault_fixture.h.
#include <gtest/gtest.h>

#include "handoff/testing/fault_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_P(FaultTest, F01AnotherRequestsStateUnderTheRightMetadata) {
  ExpectLoudAndTwin(
      [this] {
        Capture(SomeTokens(kTokens, 43));
        hostile_->Arm(SubstitutePayload(hostile_->captured(), IsStatePart));
      },
      Reason::kDigestMismatch, {Check::kStateDigest});
}

TEST_P(FaultTest, F01AnotherRequestsKv) {
  ExpectLoudAndTwin(
      [this] {
        Capture(SomeTokens(kTokens, 43));
        hostile_->Arm(
            SubstitutePayload(hostile_->captured(), [](PartKey key) { return !IsStatePart(key); }));
      },
      Reason::kBlockDigestMismatch, {Check::kBlockDigest});
}

TEST_P(FaultTest, F03StateOfAnEarlierStep) {
  ExpectLoudAndTwin(
      [this] {
        Capture({tokens_.begin(), tokens_.end() - kBlockTokens});
        hostile_->Arm(SubstitutePayload(hostile_->captured(), IsStatePart));
      },
      Reason::kDigestMismatch, {Check::kStateDigest});
}

TEST_P(FaultTest, F06TwoLayersStatesSwapped) {
  ExpectLoudAndTwin([this] { hostile_->Arm(SwapParts(Ssm(0), Ssm(3))); }, Reason::kDigestMismatch,
                    {Check::kStateDigest});
}

TEST_P(FaultTest, F06ConvOfOneLayerWithTheRecurrentTensorOfAnother) {
  ExpectLoudAndTwin([this] { hostile_->Arm(SwapParts(Conv(0), Conv(1))); }, Reason::kDigestMismatch,
                    {Check::kStateDigest});
}

TEST_P(FaultTest, F06TwoBlocksOfOneSequenceSwapped) {
  ExpectLoudAndTwin([this] { hostile_->Arm(SwapParts(BlockPartKey(0, 1), BlockPartKey(0, 2))); },
                    Reason::kBlockDigestMismatch, {Check::kBlockDigest});
}

TEST_P(FaultTest, F06SameBlockOfTwoGroupsSwapped) {
  ExpectLoudAndTwin([this] { hostile_->Arm(SwapParts(BlockPartKey(0, 3), BlockPartKey(1, 3))); },
                    Reason::kBlockDigestMismatch, {Check::kBlockDigest});
}

TEST_P(FaultTest, F07ConvWindowIsZeros) {
  ExpectLoudAndTwin([this] { hostile_->Arm(ZeroPart(Conv(1))); }, Reason::kDigestMismatch,
                    {Check::kStateDigest});
}

TEST_P(FaultTest, F07ComponentNeverOffered) {
  ExpectLoudAndTwin([this] { hostile_->Arm(DropOfferedPart(Conv(1))); }, Reason::kMissingPart,
                    {Check::kParts, Check::kLanded, Check::kStateDigest, Check::kFinite});
}

TEST_P(FaultTest, F08SuccessWithZeroBytes) {
  ExpectLoudAndTwin([this] { hostile_->Arm(MoveNothing(/*report_landed=*/false)); },
                    Reason::kShortTransfer,
                    {Check::kLanded, Check::kStateDigest, Check::kBlockDigest, Check::kFinite});
}

TEST_P(FaultTest, F08SuccessAndAllBytesClaimedHavingMovedNone) {
  ExpectLoudAndTwin([this] { hostile_->Arm(MoveNothing(/*report_landed=*/true)); },
                    Reason::kBlockDigestMismatch,
                    {Check::kStateDigest, Check::kBlockDigest, Check::kFinite});
}

TEST_P(FaultTest, F09TornPart) {
  ExpectLoudAndTwin([this] { hostile_->Arm(TearPart(Ssm(1))); }, Reason::kDigestMismatch,
                    {Check::kStateDigest});
}

TEST_P(FaultTest, F09ConnectorThatCannotProveQuietQuarantinesItsDestination) {
  NewServer(Checks());
  hostile_->Arm(NeverQuiet());
  const PullRequest request = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kPeerUnavailable);
  const uint64_t units = layout_.TotalBlocks(kTokens) + 1;
  for (const UnitState state : receiver_->StatesOf(request))
    EXPECT_EQ(state, UnitState::kQuarantined);
  EXPECT_EQ(receiver_->UnitsQuarantined(), units);
  EXPECT_EQ(stats_.quarantined_units, units);
  ExpectHonestRetry();
  // Proven quiet later, they come back.
  for (size_t g = 0; g < request.blocks.size(); ++g)
    for (const BlockHandle& handle : request.blocks[g])
      EXPECT_TRUE(receiver_->pools().blocks[g]->ProvenQuiet(handle).ok());
  EXPECT_TRUE(receiver_->pools().slots->ProvenQuiet(*request.slot).ok());
  ExpectNothingLeaked();
}

TEST_P(FaultTest, F10BitLineAndPageFlipsInEveryKindOfPart) {
  struct Flip {
    PartKey part;
    Reason reason;
    Check check;
  };
  const Flip flips[] = {{Ssm(0), Reason::kDigestMismatch, Check::kStateDigest},
                        {Conv(3), Reason::kDigestMismatch, Check::kStateDigest},
                        {BlockPartKey(0, 0), Reason::kBlockDigestMismatch, Check::kBlockDigest},
                        {BlockPartKey(1, 3), Reason::kBlockDigestMismatch, Check::kBlockDigest}};
  for (const Flip& flip : flips) {
    for (const uint64_t bytes : {1, 64, 4096}) {
      // Low mantissa bits: the values stay finite, so only the digest can see it.
      ExpectLoudAndTwin([&] { hostile_->Arm(FlipBytes(flip.part, 128, bytes, 1)); }, flip.reason,
                        {flip.check});
    }
  }
}

TEST_P(FaultTest, F10FlipsInTheOfferAndTheSeal) {
  for (const uint64_t bit : {3, 200, 450, 900, 4000, 9000})
    ExpectLoud([&] { hostile_->Arm(FlipOfferBit(bit, /*fix_checksum=*/false)); },
               Reason::kMalformed);
  for (const uint64_t bit : {100, 800, 1500, 2100})
    ExpectLoud([&] { hostile_->Arm(FlipSealBit(bit)); }, Reason::kMalformed);
  // With every checksum made good by the attacker, the digest itself has to say no.
  const auto flip_digest = [this] {
    hostile_->Arm(RewriteOffer([](Offer* o) { o->claim.seal.state_digests[2].bytes[5] ^= 8; }));
  };
  ExpectLoud(flip_digest, Reason::kDigestMismatch);
  ExpectSilent(flip_digest, {Check::kStateDigest}, /*wrong_bytes=*/false);
  const auto flip_block = [this] {
    hostile_->Arm(RewriteOffer([](Offer* o) { o->claim.block_digests[0][1].bytes[5] ^= 8; }));
  };
  ExpectLoud(flip_block, Reason::kBlockDigestMismatch);
  ExpectSilent(flip_block, {Check::kBlockDigest}, /*wrong_bytes=*/false);
}

TEST_P(FaultTest, F10FlippedAddressInTheOffer) {
  if (std::string(GetParam()) != "shm") GTEST_SKIP() << "only shm reads by address";
  // Another layer's address: in range, right size, wrong bytes.
  const auto arm = [this] {
    hostile_->Arm(RewriteOffer([this](Offer* o) {
      for (OfferPart& a : o->parts)
        for (const OfferPart& b : o->parts)
          if (a.key == Ssm(0) && b.key == Ssm(1)) a.address = b.address;
    }));
  };
  ExpectLoudAndTwin(arm, Reason::kDigestMismatch, {Check::kStateDigest});
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
