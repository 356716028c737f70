// The record at the head of an object: what is written is read back, and nothing else is believed.
#include "tier/state_object.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "base/sha256.h"
#include "handoff/testing/fake_node.h"
#include "tier/bundle_plan.h"

namespace baton {
namespace {

ContentIdentity SomeIdentity(uint64_t boundary) {
  return {RandomBytes<Sha256>(), RandomBytes<Sha256>(), RandomBytes<Sha256>(),
          RandomBytes<Sha256>(), boundary};
}

ObjectHeader SomeBundle() {
  ObjectHeader h;
  h.identity = SomeIdentity(272);
  h.state_id = RandomBytes<StateId>();
  Seal seal;
  seal.identity = h.identity;
  seal.state_id = h.state_id;
  seal.block_root = RandomBytes<Digest128>();
  seal.state_digests = {RandomBytes<Digest128>(), RandomBytes<Digest128>()};
  seal.block_count = 17;
  h.seal = seal;
  for (int i = 0; i < 17; ++i) h.block_digests.push_back(RandomBytes<Digest128>());
  h.segments = {SegmentKey(SomeIdentity(256), 0)};
  h.AddPart(BlockPartKey(0, 16), 1000);
  h.AddPart(StatePartKey(0), 64);
  h.AddPart(StatePartKey(1), 4000);
  return h;
}

ObjectHeader SomeSegment() {
  ObjectHeader h;
  h.kind = ObjectKind::kSegment;
  h.group = 1;
  h.identity = SomeIdentity(512);
  for (uint64_t b = 16; b < 32; ++b) {
    h.AddPart(BlockPartKey(1, b), 512);
    h.block_digests.push_back(RandomBytes<Digest128>());
  }
  return h;
}

void FixSum(std::vector<uint8_t>* record, uint64_t header_bytes) {
  const Sha256 sum = Sha256Of(AsBytes(*record).first(header_bytes - Sha256::kSize));
  std::memcpy(record->data() + header_bytes - Sha256::kSize, sum.bytes.data(), Sha256::kSize);
}

template <class T>
void Poke(std::vector<uint8_t>* record, size_t at, T value) {
  std::memcpy(record->data() + at, &value, sizeof value);
}

TEST(StateObject, RoundTrip) {
  for (const ObjectHeader& h : {SomeBundle(), SomeSegment()}) {
    const auto record = EncodeObjectHeader(h);
    EXPECT_EQ(record.size(), h.PayloadOffset());
    EXPECT_EQ(record.size() % kObjectAlign, 0u);
    EXPECT_EQ(*PeekObjectHeaderBytes(AsBytes(record).first(kObjectFixedBytes)), h.HeaderBytes());
    const auto back = DecodeObjectHeader(AsBytes(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, h);
    EXPECT_EQ(back->ObjectBytes(), h.PayloadOffset() + (h.payload_bytes + 4095) / 4096 * 4096);
  }
}

// docs/format/state_object.md: offsets a foreign writer relies on.
TEST(StateObject, DocumentedOffsets) {
  const ObjectHeader h = SomeBundle();
  const auto record = EncodeObjectHeader(h);
  EXPECT_EQ(std::memcmp(record.data(), "BOBJ\1\0\1\0", 8), 0);
  EXPECT_EQ(std::memcmp(record.data() + 48, h.identity.model.bytes.data(), 32), 0);
  EXPECT_EQ(std::memcmp(record.data() + 184, h.identity.Key().bytes.data(), 32), 0);
  EXPECT_EQ(std::memcmp(record.data() + 216, h.state_id.bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(record.data() + 288, "BSEL", 4), 0);
  EXPECT_EQ(h.HeaderBytes(), 288u + (272 + 32) + 17 * 16 + 32 + 3 * 24 + 32);
}

TEST(StateObject, EveryFlippedBitOfTheHeaderIsRefused) {
  for (const ObjectHeader& h : {SomeBundle(), SomeSegment()}) {
    auto record = EncodeObjectHeader(h);
    for (size_t bit = 0; bit < h.HeaderBytes() * 8; ++bit) {
      record[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const auto back = DecodeObjectHeader(AsBytes(record));
      ASSERT_FALSE(back.ok()) << "bit " << bit;
      ASSERT_TRUE(ReasonOf(back.status()).has_value()) << back.status();
      record[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

TEST(StateObject, EveryLengthShortOfTheHeaderIsRefused) {
  const ObjectHeader h = SomeBundle();
  const auto record = EncodeObjectHeader(h);
  for (size_t n = 0; n < h.HeaderBytes(); ++n)
    ASSERT_EQ(ReasonOf(DecodeObjectHeader(AsBytes(record).first(n)).status()), Reason::kMalformed);
  EXPECT_TRUE(DecodeObjectHeader(AsBytes(record).first(h.HeaderBytes())).ok());
}

TEST(StateObject, ANewerVersionIsNamed) {
  auto record = EncodeObjectHeader(SomeBundle());
  record[4] = 2;
  const auto back = DecodeObjectHeader(AsBytes(record));
  EXPECT_EQ(ReasonOf(back.status()), Reason::kProtocolVersion);
  EXPECT_NE(back.status().message().find("version 2"), absl::string_view::npos) << back.status();
}

// F30: the checksum holds, the numbers are hostile.
TEST(StateObject, F30HostileNumbersUnderAValidChecksum) {
  const ObjectHeader h = SomeBundle();
  const uint64_t bytes = h.HeaderBytes();
  const size_t table = bytes - 32 - 3 * 24;
  struct Case {
    const char* what;
    size_t at;
    uint64_t value;
    size_t width;
  };
  const Case cases[] = {
      {"header_bytes huge", 8, ~uint64_t{0}, 8},
      {"header_bytes zero", 8, 0, 8},
      {"header_bytes other", 8, bytes + 24, 8},
      {"payload huge", 16, ~uint64_t{0}, 8},
      {"payload small", 16, 64, 8},
      {"seal_bytes", 32, 0xffffffff, 4},
      {"digest_count", 36, 0xffffffff, 4},
      {"segment_count", 40, 0x7fffffff, 4},
      {"part_count", 44, 0xfffffff0, 4},
      {"part_count 0", 44, 0, 4},
      {"boundary off the grid", 176, 271, 8},
      {"boundary huge", 176, uint64_t{1} << 60, 8},
      {"boundary 0", 176, 0, 8},
      {"kind", 6, 3, 1},
      {"kind segment", 6, 2, 1},
      {"encoding", 7, 4, 1},
      {"encoding bf16", 7, 1, 1},
      {"algorithm", 24, 9, 1},
      {"reserved", 25, 1, 1},
      {"reserved tail", 287, 1, 1},
      {"group", 28, 1, 4},
      {"key", 184, 5, 8},
      {"offset unaligned", table + 8, 8, 8},
      {"offset huge", table + 8, ~uint64_t{63}, 8},
      {"bytes huge", table + 16, ~uint64_t{0}, 8},
      {"bytes wrap", table + 16, ~uint64_t{0} - 63, 8},
      {"bytes overlap", table + 16, 1100, 8},
      {"bytes 0", table + 16, 0, 8},
      {"last part beyond", table + 64, 1 << 20, 8},
  };
  for (const Case& c : cases) {
    auto record = EncodeObjectHeader(h);
    std::memcpy(record.data() + c.at, &c.value, c.width);
    FixSum(&record, bytes);
    const auto back = DecodeObjectHeader(AsBytes(record));
    EXPECT_FALSE(back.ok()) << c.what;
    EXPECT_TRUE(ReasonOf(back.status()).has_value()) << c.what << ": " << back.status();
  }
}

TEST(StateObject, NamesAreExact) {
  const ObjectName name{ObjectKind::kSegment, RandomBytes<Sha256>()};
  EXPECT_EQ(ObjectName::FromFileName(name.FileName()), name);
  const std::string hex = name.key.Hex();
  for (const std::string& bad : {hex, hex + ".bundle.tmp", hex + ".segmen", "x" + hex + ".bundle",
                                 hex.substr(1) + ".bundle", std::string("LOCK"), std::string()})
    EXPECT_FALSE(ObjectName::FromFileName(bad).has_value()) << bad;
  std::string upper = name.FileName();
  upper[0] = 'A';
  EXPECT_FALSE(ObjectName::FromFileName(upper).has_value());
}

TEST(BundlePlan, EveryPartOnceAndSegmentsAreSharedByPrefix) {
  const Layout layout = SmallLayout();
  for (uint64_t boundary = 16; boundary <= 1040; boundary += 16) {
    const BundlePlan plan = PlanBundle(layout, boundary);
    std::vector<int> seen(plan.parts.size());
    for (const size_t i : plan.own) ++seen[i];
    for (const SegmentPlan& segment : plan.segments) {
      EXPECT_EQ(segment.parts.size(), kSegmentBlocks);
      for (size_t k = 0; k < segment.parts.size(); ++k) {
        ++seen[segment.parts[k]];
        EXPECT_EQ(plan.parts[segment.parts[k]].group, segment.group);
        EXPECT_EQ(plan.parts[segment.parts[k]].block, segment.segment * kSegmentBlocks + k);
      }
    }
    for (const int n : seen) EXPECT_EQ(n, 1);
    // The full group: all whole segments. The window of 24 tokens never holds a whole one.
    EXPECT_EQ(plan.segments.size(), boundary / kSegmentTokens);
  }
}

TEST(SegmentKey, DependsOnTheHistoryAndTheGroup) {
  const ContentIdentity end = SomeIdentity(256);
  ContentIdentity other = end;
  other.prefix.bytes[0] ^= 1;
  EXPECT_NE(SegmentKey(end, 0), SegmentKey(end, 1));
  EXPECT_NE(SegmentKey(end, 0), SegmentKey(other, 0));
  EXPECT_NE(SegmentKey(end, 0), end.Key());
}

}  // namespace
}  // namespace baton
