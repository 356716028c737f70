// Faults on the way back from rest, over every store: each is refused for its own reason, the
// object goes, nobody else is touched, and the same bundle can be stored and restored again. Each
// also runs with its check off and then reaches the destination, which proves that the injection is
// real.
#include <gtest/gtest.h>

#include <limits>

#include "handoff/checks_for_testing.h"
#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

class TierFaultTest : public StoreTest {
 protected:
  struct Fault {
    std::function<void()> tamper;
    Reason reason;
    Checks twin;  // with these the fault reaches the destination
    // What is lost with the object besides the bundle itself.
    bool takes_earlier_turn = false;
  };

  void PutAll() {
    for (const SealedHistory* h : {&turn1_, &turn2_, &other_, &bystander_})
      ASSERT_TRUE(tier_->Put(h->Source()).ok());
  }

  // The fault hits turn2_ at 528 tokens, which shares its first segment with turn1_ at 272.
  void Run(const Fault& fault) {
    Open(64 << 20);
    PutAll();
    const uint64_t bundles = tier_->Stats().bundles;
    fault.tamper();
    Landing landing(node_, turn2_.tokens);
    const Status status = tier_->Restore(landing.request).status();
    EXPECT_EQ(ReasonOf(status), fault.reason) << status;
    EXPECT_EQ(tier_->Stats().rejects[fault.reason], 1u);
    EXPECT_FALSE(tier_->Contains(turn2_.identity()));
    EXPECT_EQ(tier_->Contains(turn1_.identity()), !fault.takes_earlier_turn);
    EXPECT_EQ(tier_->Stats().bundles, bundles - (fault.takes_earlier_turn ? 2 : 1));
    EXPECT_EQ(tier_->Restore(landing.request).status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
    // I7: nobody else; and the right bundle can come back.
    ExpectRestores(bystander_.tokens);
    ASSERT_TRUE(tier_->Put(turn1_.Source()).ok());
    ASSERT_TRUE(tier_->Put(turn2_.Source()).ok());
    ExpectRestores(turn1_.tokens);
    ExpectRestores(turn2_.tokens);
    tier_->EvictTo(0);
    EXPECT_EQ(tier_->Stats().bytes, 0u);
    Twin(fault);
  }

  void Twin(const Fault& fault) {
    Open(64 << 20, nullptr, fault.twin);
    PutAll();
    fault.tamper();
    Landing landing(node_, turn2_.tokens);
    const auto restored = tier_->Restore(landing.request);
    EXPECT_TRUE(restored.ok()) << "the twin is caught by another check: " << restored.status();
    EXPECT_NE(landing.bytes, ReferenceBundle(node_, turn2_.tokens)) << "the fault is none";
    tier_->EvictTo(0);
  }

  void Forge(const ObjectName& name, const std::function<void(Forged*)>& change) {
    Forged forged = TakeApart(name);
    change(&forged);
    PutBack(name, forged);
  }
  // State parts of the object become those of another history, digests as they were.
  void StateOf(const std::vector<TokenId>& tokens, bool with_digests = false) {
    Forge(victim_, [&](Forged* f) {
      for (const BundlePart& part : BundleParts(layout_, tokens.size() / 16 * 16)) {
        if (!part.is_state) continue;
        const auto bytes = ReferenceBytes(node_.Base(), tokens, part);
        std::copy(bytes.begin(), bytes.end(), f->Part(part.key).begin());
        if (with_digests)
          f->header.seal.state_digests[part.part] =
              Digester()
                  .StateDigest(node_.IdentityOf(tokens).Key(), layout_.parts()[part.part], bytes)
                  .digest;
      }
    });
  }

  static constexpr auto Without = ChecksForTesting::Without;
  const SealedHistory turn1_{&node_, Prefix(272)};
  const SealedHistory turn2_{&node_, Prefix(528)};
  const SealedHistory other_{&node_, SomeTokens(528, 90)};
  const SealedHistory bystander_{&node_, SomeTokens(272, 91)};
  const ObjectName victim_ = BundleName(turn2_.tokens);
  const ObjectName segment1_ = SegmentName(Prefix(256));
  const ObjectName segment2_ = SegmentName(Prefix(512));
};
INSTANTIATE_TEST_SUITE_P(Stores,
                         TierFaultTest,
                         ::testing::Values(StoreKind::kHost, StoreKind::kDisk),
                         StoreKindName);

TEST_P(TierFaultTest, F01StateOfAnotherRequest) {
  Run({[&] { StateOf(other_.tokens); }, Reason::kDigestMismatch, Without({Check::kStateDigest})});
}

TEST_P(TierFaultTest, F10BitAndLineAndPageInAState) {
  for (const size_t bytes : {1, 64, 240})
    Run({[&] {
           Forge(victim_, [&](Forged* f) {
             const MutableByteSpan part = f->Part(StatePartKey(0));
             for (size_t i = 0; i < bytes; ++i) part[part.size() - 1 - i] ^= std::byte{1};
           });
         },
         Reason::kDigestMismatch, Without({Check::kStateDigest, Check::kFinite})});
}

TEST_P(TierFaultTest, F10BitInABlockOfTheBundle) {
  Run({[&] {
         Forge(victim_, [&](Forged* f) { f->Part(BlockPartKey(0, 32))[17] ^= std::byte{1}; });
       },
       Reason::kBlockDigestMismatch, Without({Check::kBlockDigest})});
}

TEST_P(TierFaultTest, F10BitInASegmentTakesAllWhoNeedIt) {
  const auto flip = [&](const ObjectName& name, uint64_t block) {
    return [this, name, block] {
      Forge(name, [&](Forged* f) { f->Part(BlockPartKey(0, block))[1] ^= std::byte{1}; });
    };
  };
  Run({flip(segment2_, 31), Reason::kBlockDigestMismatch, Without({Check::kBlockDigest})});
  Run({flip(segment1_, 0), Reason::kBlockDigestMismatch, Without({Check::kBlockDigest}), true});
}

TEST_P(TierFaultTest, F11StateSomeTokensBeforeTheBoundary) {
  for (const size_t k : {1, 15, 16})
    Run({[&] { StateOf(Prefix(528 - k)); }, Reason::kDigestMismatch,
         Without({Check::kStateDigest})});
}

TEST_P(TierFaultTest, F11ObjectOfAnotherBoundary) {
  PutAll();
  Save(victim_, Load(BundleName(turn1_.tokens)));
  Landing landing(node_, turn2_.tokens);
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kBoundaryMismatch);
  EXPECT_FALSE(tier_->Contains(turn2_.identity()));
}

TEST_P(TierFaultTest, F12SameSizeOtherMeaning) {
  Run({[&] {
         Forge(victim_, [&](Forged* f) {
           f->header.identity.layout.bytes[5] ^= 1;
           f->header.seal.identity.layout = f->header.identity.layout;
           const MutableByteSpan ssm = f->Part(StatePartKey(1));
           std::rotate(ssm.begin(), ssm.begin() + 64, ssm.end());
         });
       },
       Reason::kLayoutMismatch, Without({Check::kIdentity, Check::kParts, Check::kStateDigest})});
}

TEST_P(TierFaultTest, F14OtherWeightsOrTenant) {
  const auto forge = [&](Sha256 ContentIdentity::*field) {
    return [this, field] {
      Forge(victim_, [&](Forged* f) {
        (f->header.identity.*field).bytes[5] ^= 1;
        f->header.seal.identity = f->header.identity;
        f->Part(StatePartKey(1))[0] ^= std::byte{1};  // other weights, other state
      });
    };
  };
  const Checks twin = Without({Check::kIdentity, Check::kStateDigest});
  Run({forge(&ContentIdentity::model), Reason::kModelMismatch, twin});
  Run({forge(&ContentIdentity::scope), Reason::kScopeMismatch, twin});
}

TEST_P(TierFaultTest, F18Truncated) {
  for (const ObjectName& name : {victim_, segment2_})
    Run({[&] {
           auto bytes = Load(name);
           bytes.resize(bytes.size() - kObjectAlign);
           Save(name, bytes);
         },
         Reason::kShortTransfer,
         Without({Check::kLanded, Check::kStateDigest, Check::kBlockDigest, Check::kFinite})});
}

TEST_P(TierFaultTest, F18SwappedOrRenamed) {
  const auto swap = [&](ObjectName a, ObjectName b) {
    return [this, a, b] {
      const auto keep = Load(a);
      Save(a, Load(b));
      Save(b, keep);
    };
  };
  Run({swap(victim_, BundleName(other_.tokens)), Reason::kIdentityMismatch,
       Without({Check::kIdentity, Check::kStateDigest, Check::kBlockDigest})});
  const std::vector<TokenId> end(other_.tokens.begin(), other_.tokens.begin() + 512);
  Run({swap(segment2_, SegmentName(end)), Reason::kIdentityMismatch,
       Without({Check::kIdentity, Check::kBlockDigest})});
}

TEST_P(TierFaultTest, F18GoneOrOfTheOtherKind) {
  for (const ObjectName& name : {victim_, segment2_}) {
    Open(64 << 20);
    PutAll();
    ASSERT_TRUE(store_->Remove(name).ok());
    Landing landing(node_, turn2_.tokens);
    EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kMissingPart);
    EXPECT_TRUE(tier_->CheckInvariants().ok());
    ASSERT_TRUE(tier_->Put(turn2_.Source()).ok());
    Save(name, Load(name == victim_ ? segment2_ : victim_));
    EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kMalformed);
    EXPECT_FALSE(tier_->Contains(turn2_.identity()));
    tier_->EvictTo(0);
  }
}

// An intact state with its own digests, in a seal that says another boundary.
TEST_P(TierFaultTest, F23BlocksAtNStateAtM) {
  Run({[&] { StateOf(Prefix(512), true); }, Reason::kDigestMismatch,
       Without({Check::kStateDigest})});
}

TEST_P(TierFaultTest, F23StateAtNBlocksOfAnother) {
  Run({[&] {
         Forge(victim_, [&](Forged* f) {
           const BundlePart part = BundleParts(layout_, 528)[32];
           const auto bytes = ReferenceBytes(node_.Base(), other_.tokens, part);
           std::copy(bytes.begin(), bytes.end(), f->Part(part.key).begin());
           f->header.block_digests[32] = other_.bundle->block_digests[0][32];
         });
       },
       Reason::kBlockDigestMismatch, Without({Check::kBlockDigest})});
}

TEST_P(TierFaultTest, F29NanOrInfinityUnderARightDigest) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    Run({[&] {
           Forge(victim_, [&](Forged* f) {
             const MutableByteSpan part = f->Part(StatePartKey(1));
             std::memcpy(part.data() + 400, &bad, sizeof bad);
             f->header.seal.state_digests[1] =
                 Digester().StateDigest(victim_.key, layout_.parts()[1], part).digest;
           });
         },
         Reason::kNonFinite, Without({Check::kFinite})});
}

TEST_P(TierFaultTest, F30HostileTableUnderAValidChecksum) {
  const auto last = [](Forged* f) -> ObjectPart& { return f->header.parts.back(); };
  const Checks bytes_off = Without(
      {Check::kLanded, Check::kParts, Check::kStateDigest, Check::kBlockDigest, Check::kFinite});
  Run({[&] { Forge(victim_, [&](Forged* f) { last(f).bytes -= 64; }); }, Reason::kShortTransfer,
       bytes_off});
  // Another part's bytes under this part's key: within bounds, and not what was sealed.
  Run({[&] {
         Forge(victim_, [&](Forged* f) {
           std::swap(f->header.parts[f->header.parts.size() - 1].key,
                     f->header.parts[f->header.parts.size() - 3].key);
         });
       },
       Reason::kDigestMismatch, Without({Check::kStateDigest})});
  Run({[&] { Forge(victim_, [&](Forged* f) { last(f).key = StatePartKey(4711); }); },
       Reason::kMissingPart, bytes_off});
  Run({[&] { Forge(victim_, [&](Forged* f) { f->header.parts.pop_back(); }); },
       Reason::kMissingPart, bytes_off});
}

TEST_P(TierFaultTest, F30MorePartsThanTheBundleHas) {
  PutAll();
  Forge(victim_, [&](Forged* f) {
    f->header.AddPart(StatePartKey(4711), 64);
    f->payload.resize(f->header.payload_bytes);
  });
  Landing landing(node_, turn2_.tokens);
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kUnknownPart);
}

// Wherever a bit flips or the object ends: refused, or what was sealed (padding carries nothing).
TEST_P(TierFaultTest, F10AnyBitAndF18AnyLengthNeverServesWrongBytes) {
  PutAll();
  const auto reference = ReferenceBundle(node_, turn2_.tokens);
  int refused = 0;
  for (const ObjectName& name : {victim_, segment2_}) {
    ASSERT_TRUE(tier_->Put(turn2_.Source()).ok());
    const std::vector<std::byte> good = Load(name);
    const auto check = [&](const std::vector<std::byte>& bytes) {
      ASSERT_TRUE(tier_->Put(turn2_.Source()).ok());
      Save(name, bytes);
      Landing landing(node_, turn2_.tokens);
      const auto restored = tier_->Restore(landing.request);
      if (restored.ok()) {
        ASSERT_EQ(landing.bytes, reference);
      } else {
        ASSERT_TRUE(ReasonOf(restored.status()).has_value()) << restored.status();
        ++refused;
      }
    };
    for (size_t bit = 0; bit < good.size() * 8; bit += 797) {
      auto bytes = good;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      check(bytes);
    }
    for (size_t length = 0; length < good.size(); length += 509) {
      auto bytes = good;
      bytes.resize(std::max<size_t>(length, 1));
      check(bytes);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_TRUE(tier_->CheckInvariants().ok());
  ExpectRestores(bystander_.tokens);
}

// Two computations of one history that differ: the second is not mixed with the first.
TEST_P(TierFaultTest, ASegmentOfTheSameHistoryWithOtherBytesIsAConflict) {
  const SealedHistory long_one(&node_, Prefix(544));
  const SealedHistory short_one(&node_, Prefix(272));
  for (const BundlePart& part : BundleParts(layout_, 272)) {
    if (part.is_state || part.group != 0 || part.block != 3) continue;
    short_one.BytesOf(part)[0] ^= std::byte{1};
    const Sha256 end = node_.Base().AtBlockEnd(short_one.chain, 3).Key();
    short_one.bundle->block_digests[0][3] =
        Digester().BlockDigest(end, 0, layout_.groups()[0], short_one.BytesOf(part)).digest;
  }
  std::vector<Digest128> all;
  for (const auto& group : short_one.bundle->block_digests)
    all.insert(all.end(), group.begin(), group.end());
  short_one.bundle->seal.block_root = Digester().BlockRoot(all);
  ASSERT_TRUE(tier_->Put(long_one.Source()).ok());
  const Status status = tier_->Put(short_one.Source());
  EXPECT_EQ(ReasonOf(status), Reason::kBlockDigestMismatch) << status;
  ExpectRestores(long_one.tokens);
  EXPECT_FALSE(tier_->Contains(short_one.identity()));
}

}  // namespace
}  // namespace baton
