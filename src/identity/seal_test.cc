#include "identity/seal.h"

#include <cstring>

#include "base/rng.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

template <class Bytes>
Bytes Filled(uint8_t first) {
  Bytes b;
  for (size_t i = 0; i < Bytes::kSize; ++i) b.bytes[i] = static_cast<uint8_t>(first + i);
  return b;
}

Layout TestLayout() {
  LayoutSpec spec;
  for (uint32_t l : {0u, 2u}) {
    StatePart p;
    p.layer = l;
    p.component = "ssm";
    p.shape = {4, 4};
    spec.parts.push_back(p);
  }
  KvGroup g;
  g.name = "full";
  g.layers = {1};
  g.kv_heads = 1;
  g.head_dim = 4;
  spec.groups = {g};
  return *Layout::Build(spec);
}

Seal TestSeal() {
  Seal s;
  s.identity = {Filled<Sha256>(1), TestLayout().fingerprint(), Filled<Sha256>(3), Filled<Sha256>(4),
                48};
  s.state_id = Filled<StateId>(10);
  s.parent = Filled<StateId>(11);
  s.producer = Filled<NodeId>(12);
  s.epoch = Filled<Epoch>(13);
  s.algorithm = DigestAlgorithm::kBlake2b;
  s.state_digests = {Filled<Digest128>(20), Filled<Digest128>(40)};
  s.block_root = Filled<Digest128>(60);
  s.block_count = 3;
  return s;
}

void Reseal(std::vector<uint8_t>* record) {
  const auto length = static_cast<uint32_t>(record->size());
  std::memcpy(record->data() + 8, &length, 4);
  const Sha256 sum = Sha256Of(AsBytes(*record).first(record->size() - 32));
  std::memcpy(record->data() + record->size() - 32, sum.bytes.data(), 32);
}

std::optional<Reason> ReasonOfDecode(const std::vector<uint8_t>& record) {
  return ReasonOf(DecodeSeal(AsBytes(record)).status());
}

TEST(Seal, RoundTrips) {
  Seal seal = TestSeal();
  EXPECT_EQ(*DecodeSeal(AsBytes(EncodeSeal(seal))), seal);
  seal.state_digests.clear();  // a layout without state
  seal.parent = StateId();
  EXPECT_EQ(*DecodeSeal(AsBytes(EncodeSeal(seal))), seal);
  seal.state_digests.assign(Layout::kMaxParts, Filled<Digest128>(1));
  const auto record = EncodeSeal(seal);
  EXPECT_EQ(record.size(), kMaxSealBytes);
  EXPECT_EQ(*DecodeSeal(AsBytes(record)), seal);
}

// docs/format/seal.md, field by field.
TEST(Seal, EveryFieldLiesWhereTheFormatSays) {
  const Seal s = TestSeal();
  const auto r = EncodeSeal(s);
  ASSERT_EQ(r.size(), 240u + 2 * 16 + 32);
  const auto at = [&](size_t offset, const auto& bytes) {
    return std::memcmp(r.data() + offset, bytes.data(), bytes.size()) == 0;
  };
  const auto u32 = [&](size_t offset) {
    uint32_t v;
    std::memcpy(&v, r.data() + offset, 4);
    return v;
  };
  EXPECT_TRUE(at(0, std::string("BSEL")));
  EXPECT_EQ(r[4] | r[5] << 8, 1);
  EXPECT_EQ(r[6], 2);
  EXPECT_EQ(r[7], 0);
  EXPECT_EQ(u32(8), r.size());
  EXPECT_EQ(u32(12), 2u);
  EXPECT_EQ(u32(16), 3u);
  EXPECT_EQ(u32(20), 0u);
  EXPECT_TRUE(at(24, s.identity.model.bytes));
  EXPECT_TRUE(at(56, s.identity.layout.bytes));
  EXPECT_TRUE(at(88, s.identity.scope.bytes));
  EXPECT_TRUE(at(120, s.identity.prefix.bytes));
  EXPECT_EQ(u32(152), 48u);
  EXPECT_EQ(u32(156), 0u);
  EXPECT_TRUE(at(160, s.state_id.bytes));
  EXPECT_TRUE(at(176, s.parent.bytes));
  EXPECT_TRUE(at(192, s.producer.bytes));
  EXPECT_TRUE(at(208, s.epoch.bytes));
  EXPECT_TRUE(at(224, s.block_root.bytes));
  EXPECT_TRUE(at(240, s.state_digests[0].bytes));
  EXPECT_TRUE(at(256, s.state_digests[1].bytes));
  EXPECT_TRUE(at(272, Sha256Of(AsBytes(r).first(272)).bytes));
}

TEST(SealI6, EveryFlippedBitTruncationAndTrailingByteIsRefused) {
  const auto record = EncodeSeal(TestSeal());
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    auto bad = record;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_FALSE(DecodeSeal(AsBytes(bad)).ok()) << bit;
  }
  for (size_t n = 0; n < record.size(); ++n)
    ASSERT_EQ(ReasonOf(DecodeSeal(AsBytes(record).first(n)).status()), Reason::kMalformed) << n;
  auto longer = record;
  longer.push_back(0);
  EXPECT_EQ(ReasonOfDecode(longer), Reason::kMalformed);
  longer.insert(longer.end(), 15, 0);
  Reseal(&longer);
  EXPECT_EQ(ReasonOfDecode(longer), Reason::kMalformed);
}

TEST(SealI6, UnknownVersionAndAlgorithmAreRefusedByName) {
  auto record = EncodeSeal(TestSeal());
  record[4] = 9;
  Reseal(&record);
  const Status s = DecodeSeal(AsBytes(record)).status();
  EXPECT_EQ(ReasonOf(s), Reason::kProtocolVersion);
  EXPECT_THAT(std::string(s.message()), HasSubstr("version 9, this build reads 1"));
  for (uint8_t algorithm : {0, 3, 255}) {
    record = EncodeSeal(TestSeal());
    record[6] = algorithm;
    Reseal(&record);
    EXPECT_EQ(ReasonOfDecode(record), Reason::kDigestAlgorithm);
  }
}

// F28: a sender that sends no digest.
TEST(SealF28, AnAbsentDigestIsAnError) {
  Seal seal = TestSeal();
  seal.state_digests[1] = Digest128();
  EXPECT_EQ(ReasonOfDecode(EncodeSeal(seal)), Reason::kDigestAlgorithm);
  seal = TestSeal();
  seal.block_root = Digest128();
  EXPECT_EQ(ReasonOfDecode(EncodeSeal(seal)), Reason::kDigestAlgorithm);
}

TEST(SealF30, HostileCountsInsideAValidChecksumAreRefused) {
  for (uint32_t count : {0u, 1u, 3u, 0x10000000u, 0x0FFFFFFFu, UINT32_MAX}) {
    auto record = EncodeSeal(TestSeal());
    std::memcpy(record.data() + 12, &count, 4);
    Reseal(&record);
    EXPECT_EQ(ReasonOfDecode(record), Reason::kMalformed) << count;
  }
  for (size_t reserved : {7, 20, 23}) {
    auto record = EncodeSeal(TestSeal());
    record[reserved] = 1;
    Reseal(&record);
    EXPECT_EQ(ReasonOfDecode(record), Reason::kMalformed);
  }
  Seal seal = TestSeal();
  seal.identity.boundary = UINT64_MAX;
  EXPECT_EQ(ReasonOfDecode(EncodeSeal(seal)), Reason::kMalformed);
  seal = TestSeal();
  seal.state_id = StateId();
  EXPECT_EQ(ReasonOfDecode(EncodeSeal(seal)), Reason::kMalformed);
  const std::vector<uint8_t> huge(kMaxSealBytes + 1);
  EXPECT_EQ(ReasonOfDecode(huge), Reason::kMalformed);
}

TEST(SealI6, PartsAreWhatTheLayoutSaysNeverWhatThePeerOffers) {
  const Layout layout = TestLayout();
  Seal seal = TestSeal();
  EXPECT_TRUE(MatchSealToLayout(seal, layout).ok());
  const auto reason = [&](auto change) {
    Seal other = seal;
    change(&other);
    return ReasonOf(MatchSealToLayout(other, layout));
  };
  EXPECT_EQ(reason([](Seal* s) { s->state_digests.pop_back(); }), Reason::kMissingPart);
  EXPECT_EQ(reason([](Seal* s) { s->state_digests.resize(3); }), Reason::kUnknownPart);
  EXPECT_EQ(reason([](Seal* s) { s->block_count = 2; }), Reason::kMissingPart);
  EXPECT_EQ(reason([](Seal* s) { s->block_count = 4; }), Reason::kUnknownPart);
  EXPECT_EQ(reason([](Seal* s) { s->identity.boundary = 49; }), Reason::kMissingPart);
  EXPECT_EQ(reason([](Seal* s) { s->identity.layout.bytes[0] ^= 1; }), Reason::kLayoutMismatch);
}

}  // namespace
}  // namespace baton
