// What every tier does, over whatever store: equality with what was sealed, sharing of segments,
// budget and eviction, and lookups.
#include "tier/tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

using TierTest = StoreTest;
INSTANTIATE_TEST_SUITE_P(Stores,
                         TierTest,
                         ::testing::Values(StoreKind::kHost, StoreKind::kDisk),
                         StoreKindName);

TEST_P(TierTest, RestoredEqualsSealedAtEveryBoundary) {
  for (const size_t n : {16, 32, 240, 256, 272, 512, 784}) {
    const SealedHistory h(&node_, Prefix(n));
    ASSERT_TRUE(tier_->Put(h.Source()).ok());
    EXPECT_TRUE(tier_->Contains(h.identity()));
    Landing landing(node_, h.tokens);
    const auto restored = tier_->Restore(landing.request);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(landing.bytes, ReferenceBundle(node_, h.tokens));
    EXPECT_EQ(restored->seal, h.bundle->seal);
    EXPECT_EQ(restored->block_digests, h.bundle->block_digests);
  }
  const TierStats stats = tier_->Stats();
  EXPECT_EQ(stats.puts, 7u);
  EXPECT_EQ(stats.restores, 7u);
  EXPECT_TRUE(stats.rejects.empty());
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
}

TEST_P(TierTest, TurnsOfASessionShareTheirSegments) {
  for (const size_t n : {272, 528, 784})
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
  TierStats stats = tier_->Stats();
  EXPECT_EQ(stats.bundles, 3u);
  EXPECT_EQ(stats.segments, 3u);         // not 1 + 2 + 3
  EXPECT_EQ(stats.segments_shared, 3u);  // 0 + 1 + 2
  // The last turn alone holds all three; the first two go without taking any with them.
  EXPECT_TRUE(tier_->Remove(node_.IdentityOf(Prefix(272))));
  EXPECT_TRUE(tier_->Remove(node_.IdentityOf(Prefix(528))));
  EXPECT_FALSE(tier_->Remove(node_.IdentityOf(Prefix(528))));
  EXPECT_EQ(tier_->Stats().segments, 3u);
  ExpectRestores(Prefix(784));
  EXPECT_TRUE(tier_->Remove(node_.IdentityOf(Prefix(784))));
  stats = tier_->Stats();
  EXPECT_EQ(stats.segments, 0u);
  EXPECT_EQ(stats.bytes, 0u);
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
}

TEST_P(TierTest, PutOfWhatIsThereIsOkAndWritesNothing) {
  const SealedHistory h(&node_, Prefix(272));
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  const uint64_t bytes = tier_->Stats().bytes;
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  EXPECT_EQ(tier_->Stats().bytes, bytes);
  EXPECT_EQ(tier_->Stats().puts_present, 1u);
}

TEST_P(TierTest, FindDeepest) {
  for (const size_t n : {32, 272, 528})
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
  const auto hashes = PrefixChain::BlockHashes(FakeNode::Scope(), history_);
  const IdentityBase base = node_.Base();
  EXPECT_EQ(tier_->FindDeepest(base, hashes, 1024), 528u);
  EXPECT_EQ(tier_->FindDeepest(base, hashes, 528), 528u);
  EXPECT_EQ(tier_->FindDeepest(base, hashes, 527), 272u);
  EXPECT_EQ(tier_->FindDeepest(base, hashes, 271), 32u);
  EXPECT_EQ(tier_->FindDeepest(base, hashes, 31), std::nullopt);
  EXPECT_EQ(tier_->FindDeepest(base, std::span(hashes).first(5), 1024), 32u);
  // Another tenant, another model: nothing.
  EXPECT_EQ(tier_->FindDeepest(base, PrefixChain::BlockHashes(ScopeOf("other"), history_), 1024),
            std::nullopt);
  IdentityBase other = base;
  other.model = RandomBytes<Sha256>();
  EXPECT_EQ(tier_->FindDeepest(other, hashes, 1024), std::nullopt);
}

TEST_P(TierTest, AMissIsNotFoundAndCounted) {
  Landing landing(node_, Prefix(64));
  const auto restored = tier_->Restore(landing.request);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(restored.status()), std::nullopt);
  EXPECT_EQ(tier_->Stats().misses, 1u);
}

TEST_P(TierTest, LeastRecentlyUsedGoesFirst) {
  const SealedHistory a(&node_, SomeTokens(32, 1)), b(&node_, SomeTokens(32, 2)),
      c(&node_, SomeTokens(32, 3)), d(&node_, SomeTokens(32, 4));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  const uint64_t one = tier_->Stats().bytes;
  Open(3 * one);
  for (const SealedHistory* h : {&a, &b, &c}) ASSERT_TRUE(tier_->Put(h->Source()).ok());
  ExpectRestores(a.tokens);
  ASSERT_TRUE(tier_->Put(d.Source()).ok());
  EXPECT_TRUE(tier_->Contains(a.identity()));
  EXPECT_FALSE(tier_->Contains(b.identity()));
  EXPECT_TRUE(tier_->Contains(c.identity()));
  EXPECT_EQ(tier_->Stats().evictions, 1u);
  EXPECT_LE(tier_->Stats().bytes, 3 * one);
  tier_->EvictTo(one);
  EXPECT_EQ(tier_->Stats().bundles, 1u);
  EXPECT_TRUE(tier_->Contains(d.identity()));
}

TEST_P(TierTest, AScoreDecidesWhatGoes) {
  const SealedHistory deep(&node_, SomeTokens(96, 1)), shallow(&node_, SomeTokens(16, 2)),
      middle(&node_, SomeTokens(48, 3));
  Open(1 << 20, [](const TierEntry& e) { return static_cast<double>(e.identity.boundary); });
  for (const SealedHistory* h : {&deep, &middle, &shallow})
    ASSERT_TRUE(tier_->Put(h->Source()).ok());
  ASSERT_EQ(tier_->Entries().size(), 3u);
  tier_->EvictTo(tier_->Stats().bytes - 1);
  EXPECT_FALSE(tier_->Contains(shallow.identity()));
  EXPECT_TRUE(tier_->Contains(deep.identity()));
  tier_->EvictTo(tier_->Stats().bytes - 1);
  EXPECT_TRUE(tier_->Contains(deep.identity()));
  EXPECT_FALSE(tier_->Contains(middle.identity()));
}

TEST_P(TierTest, WhatCannotFitIsRefusedAndLeavesNothing) {
  Open(2 * kObjectAlign);
  const SealedHistory h(&node_, Prefix(272));
  const Status status = tier_->Put(h.Source());
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
  EXPECT_EQ(tier_->Stats().bytes, 0u);
  EXPECT_EQ(tier_->Stats().puts_no_room, 1u);
  EXPECT_TRUE(tier_->CheckInvariants().ok());
}

TEST_P(TierTest, WhatDoesNotVerifyIsNeverStored) {
  const SealedHistory h(&node_, Prefix(528));
  for (const BundlePart& part : BundleParts(layout_, 528)) {
    h.BytesOf(part)[part.bytes / 2] ^= std::byte{4};
    const Status status = tier_->Put(h.Source());
    EXPECT_EQ(ReasonOf(status),
              part.is_state ? Reason::kDigestMismatch : Reason::kBlockDigestMismatch);
    h.BytesOf(part)[part.bytes / 2] ^= std::byte{4};
    EXPECT_FALSE(tier_->Contains(h.identity()));
    EXPECT_EQ(tier_->Stats().bytes, 0u) << "segments of a failed put stay behind";
  }
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  ExpectRestores(h.tokens);
}

TEST_P(TierTest, ClaimsThatAreWrongAreNotStored) {
  const SealedHistory h(&node_, Prefix(64));
  BundleSource source = h.Source();
  const PrefixChain other(FakeNode::Scope(), SomeTokens(64, 99));
  source.chain = &other;
  EXPECT_EQ(ReasonOf(tier_->Put(source)), Reason::kIdentityMismatch);
  const PrefixChain scope(ScopeOf("other"), h.tokens);
  source.chain = &scope;
  EXPECT_EQ(ReasonOf(tier_->Put(source)), Reason::kScopeMismatch);
  source = h.Source();
  auto digests = h.bundle->block_digests;
  digests[0][1].bytes[3] ^= 1;
  source.block_digests = &digests;
  EXPECT_EQ(ReasonOf(tier_->Put(source)), Reason::kBlockDigestMismatch);
  Seal seal = h.bundle->seal;
  seal.identity.boundary = 63;
  source = h.Source();
  source.seal = &seal;
  EXPECT_EQ(tier_->Put(source).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tier_->Stats().puts_refused, 4u);
  EXPECT_EQ(tier_->Stats().bytes, 0u);
}

TEST_P(TierTest, CancelledPutAndRestoreLeaveNothing) {
  const SealedHistory h(&node_, Prefix(272));
  CancelSource cancel;
  cancel.request_stop();
  EXPECT_EQ(ReasonOf(tier_->Put(h.Source(), cancel.get_token())), Reason::kCancelled);
  EXPECT_EQ(tier_->Stats().bytes, 0u);
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  Landing landing(node_, h.tokens);
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request, cancel.get_token()).status()),
            Reason::kCancelled);
  EXPECT_TRUE(tier_->Contains(h.identity()));
  EXPECT_TRUE(tier_->Stats().rejects.empty());
}

TEST_P(TierTest, ALostDestinationIsNotTheObjectsFault) {
  const SealedHistory h(&node_, Prefix(272));
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  Landing landing(node_, h.tokens);
  landing.request.check_handles = [] { return Reject(Reason::kStaleHandle, "gone"); };
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kStaleHandle);
  EXPECT_TRUE(tier_->Contains(h.identity()));
  landing.request.check_handles = nullptr;
  landing.request.expected.state_id = RandomBytes<StateId>();
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kStateIdMismatch);
  EXPECT_TRUE(tier_->Contains(h.identity()));
}

TEST_P(TierTest, RevokeTakesTheDescendants) {
  const SealedHistory a(&node_, Prefix(32)), b(&node_, Prefix(64)), c(&node_, Prefix(96)),
      other(&node_, SomeTokens(32, 50));
  b.bundle->seal.parent = a.bundle->seal.state_id;
  c.bundle->seal.parent = b.bundle->seal.state_id;
  for (const SealedHistory* h : {&a, &b, &c, &other}) ASSERT_TRUE(tier_->Put(h->Source()).ok());
  EXPECT_EQ(tier_->Revoke(a.bundle->seal.state_id), 3u);
  EXPECT_EQ(tier_->Stats().bundles, 1u);
  EXPECT_TRUE(tier_->Contains(other.identity()));
  EXPECT_TRUE(tier_->CheckInvariants().ok());
}

TEST_P(TierTest, ThreadsPutRestoreAndEvictAtOnce) {
  std::vector<std::unique_ptr<SealedHistory>> all;
  for (const size_t n : {32, 272, 288, 528, 544})
    all.push_back(std::make_unique<SealedHistory>(&node_, Prefix(n)));
  for (uint64_t seed = 20; seed < 23; ++seed)
    all.push_back(std::make_unique<SealedHistory>(&node_, SomeTokens(272, seed)));
  for (const auto& h : all) ASSERT_TRUE(tier_->Put(h->Source()).ok());
  const uint64_t need = tier_->Stats().bytes;
  Open(need * 2 / 3);
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      SplitMix64 rng(static_cast<uint64_t>(t));
      for (int i = 0; i < 200; ++i) {
        const SealedHistory& h = *all[rng.Below(all.size())];
        const Status put = tier_->Put(h.Source());
        if (!put.ok() && ReasonOf(put) != Reason::kNoCapacity) ++bad;
        Landing landing(node_, h.tokens);
        const auto restored = tier_->Restore(landing.request);
        if (restored.ok() ? landing.bytes != ReferenceBundle(node_, h.tokens)
                          : restored.status().code() != absl::StatusCode::kNotFound)
          ++bad;
        if (rng.Below(8) == 0) tier_->Remove(h.identity());
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0);
  EXPECT_TRUE(tier_->Stats().rejects.empty());
  EXPECT_LE(tier_->Stats().bytes, tier_->budget_bytes());
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
  tier_->EvictTo(0);
  EXPECT_EQ(tier_->Stats().bytes, 0u);
}

}  // namespace
}  // namespace baton
