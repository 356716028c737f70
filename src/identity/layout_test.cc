#include "identity/layout.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/rng.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

StatePart Part(uint32_t layer,
               std::string component,
               std::vector<int64_t> shape,
               std::string axes,
               ElementType dtype = ElementType::kF32) {
  StatePart p;
  p.layer = layer;
  p.component = std::move(component);
  p.dtype = dtype;
  p.shape = std::move(shape);
  p.axes = std::move(axes);
  return p;
}

KvGroup Group(std::string name, std::vector<uint32_t> layers, uint32_t window = 0) {
  KvGroup g;
  g.name = std::move(name);
  g.layers = std::move(layers);
  g.window = window;
  g.kv_heads = 2;
  g.head_dim = 8;
  return g;
}

LayoutSpec HybridSpec() {
  LayoutSpec spec;
  spec.parts = {Part(0, "conv", {3, 5}, "tap-oldest-first,channel"),
                Part(0, "ssm", {4, 8, 16}, "H,N,P"),
                Part(2, "conv", {3, 5}, "tap-oldest-first,channel"),
                Part(2, "ssm", {4, 8, 16}, "H,N,P", ElementType::kBF16)};
  spec.groups = {Group("full", {1, 3})};
  spec.numerics_tag.bytes[0] = 7;
  spec.extra = "tp=0/1";
  return spec;
}

Layout MustBuild(LayoutSpec spec) {
  StatusOr<Layout> layout = Layout::Build(std::move(spec));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *layout : Layout();
}

TEST(Layout, PlacesPartsAlignedInOrderWithoutOverlap) {
  const Layout layout = MustBuild(HybridSpec());
  uint64_t end = 0;
  uint64_t payload = 0;
  for (const StatePart& p : layout.parts()) {
    EXPECT_EQ(p.offset % Layout::kPartAlign, 0u);
    EXPECT_GE(p.offset, end);
    EXPECT_LT(p.offset - end, Layout::kPartAlign);
    end = p.offset + p.bytes;
    payload += p.bytes;
  }
  EXPECT_EQ(layout.parts()[0].bytes, 60u);
  EXPECT_EQ(layout.parts()[1].offset, 64u);
  EXPECT_EQ(layout.parts()[3].bytes, 1024u);
  EXPECT_EQ(layout.slot_bytes() % Layout::kSlotAlign, 0u);
  EXPECT_GE(layout.slot_bytes(), end);
  EXPECT_EQ(layout.state_payload_bytes(), payload);
  EXPECT_EQ(layout.PartName(3), "l2.ssm");
  EXPECT_EQ(layout.FindPart(2, "ssm"), std::optional<size_t>(3));
  EXPECT_EQ(layout.FindPart(1, "ssm"), std::nullopt);
}

// The block as nested loops would walk it.
TEST(Layout, BlockOffsetsTileTheBlockExactly) {
  const Layout layout = MustBuild(HybridSpec());
  const KvGroup& g = layout.groups()[0];
  uint64_t next = 0;
  for (size_t layer = 0; layer < g.layers.size(); ++layer) {
    for (size_t head = 0; head < g.kv_heads; ++head, next += 8 * 16)
      EXPECT_EQ(g.KOffset(layer, head), next);
    for (size_t head = 0; head < g.kv_heads; ++head, next += 16 * 8)
      EXPECT_EQ(g.VOffset(layer, head), next);
  }
  EXPECT_EQ(g.block_bytes, next * 4);
  EXPECT_EQ(layout.kv_bytes_per_token() * kBlockTokens, g.block_bytes);
  EXPECT_EQ(layout.BlockName(0, 17), "full[17]");
}

// Reference: which positions can the next token see?
TEST(Layout, BlockCountIsWhatTheNextTokenCanSee) {
  LayoutSpec spec;
  spec.groups = {Group("full", {0}), Group("w1", {1}, 1), Group("w16", {2}, 16),
                 Group("w40", {3}, 40)};
  const Layout layout = MustBuild(spec);
  for (uint64_t boundary = 0; boundary < 200; ++boundary) {
    uint64_t total = 0;
    for (size_t g = 0; g < layout.groups().size(); ++g) {
      const uint64_t window = layout.groups()[g].window;
      uint64_t first = 0;
      uint64_t count = 0;
      for (uint64_t block = 0; block * 16 < boundary; ++block) {
        bool seen = boundary / 16 == block;  // a partial block: the next token goes there
        for (uint64_t t = block * 16; t < std::min(boundary, block * 16 + 16); ++t)
          seen |= window == 0 || boundary - t < window;
        if (seen && count++ == 0) first = block;
      }
      ASSERT_EQ(layout.BlockCount(g, boundary), count) << g << " at " << boundary;
      if (count > 0) {
        ASSERT_EQ(layout.FirstBlock(g, boundary), first) << g << " at " << boundary;
      }
      total += count;
    }
    ASSERT_EQ(layout.TotalBlocks(boundary), total);
  }
}

TEST(Layout, PureAttentionAndPureRecurrentAreLegal) {
  LayoutSpec attention;
  attention.groups = {Group("full", {0, 1})};
  const Layout llama = MustBuild(attention);
  EXPECT_FALSE(llama.has_state());
  EXPECT_EQ(llama.slot_bytes(), 0u);
  LayoutSpec recurrent;
  recurrent.parts = {Part(0, "ssm", {4}, "N")};
  const Layout mamba = MustBuild(recurrent);
  EXPECT_EQ(mamba.TotalBlocks(1000), 0u);
  EXPECT_EQ(mamba.slot_bytes(), 4096u);
  EXPECT_EQ(Layout().fingerprint(), MustBuild({}).fingerprint());
}

TEST(Layout, RefusesWhatItCannotPlace) {
  const auto error = [](auto change) {
    LayoutSpec spec = HybridSpec();
    change(&spec);
    const StatusOr<Layout> layout = Layout::Build(spec);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].component = "conv"; }),
              HasSubstr("l0.conv: name is used twice"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].component = ""; }), HasSubstr("component"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].component = "a.b"; }), HasSubstr("component"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].shape = {}; }), HasSubstr("rank 0"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].shape = {4, 0}; }), HasSubstr("extent 0"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].shape = {4, -1}; }), HasSubstr("extent -1"));
  EXPECT_THAT(error([](LayoutSpec* s) {
                s->parts[1].shape = {INT64_MAX, INT64_MAX};
              }),
              HasSubstr("1 TiB"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].axes = "H\n"; }), HasSubstr("axes"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].layer = UINT32_MAX; }), HasSubstr("layer"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts[1].dtype = static_cast<ElementType>(9); }),
              HasSubstr("dtype"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->parts.resize(Layout::kMaxParts + 1); }),
              HasSubstr("at most"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->groups.push_back(s->groups[0]); }), HasSubstr("twice"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->groups[0].layers = {1, 1}; }), HasSubstr("twice"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->groups[0].layers = {}; }), HasSubstr("layers"));
  EXPECT_THAT(error([](LayoutSpec* s) { s->groups[0].kv_heads = 0; }), HasSubstr("kv_heads"));
  EXPECT_THAT(error([](LayoutSpec* s) {
                s->groups[0].kv_heads = UINT32_MAX;
                s->groups[0].head_dim = UINT32_MAX;
              }),
              HasSubstr("1 TiB"));
  EXPECT_THAT(error([](LayoutSpec* s) {
                s->parts.clear();
                for (uint32_t i = 0; i < 3; ++i)
                  s->parts.push_back(Part(i, "ssm", {int64_t{1} << 37}, "N"));
              }),
              HasSubstr("slot is larger"));
}

TEST(Layout, SlotsBeyondFourGiBHave64BitOffsets) {
  LayoutSpec spec;
  for (uint32_t i = 0; i < 3; ++i) spec.parts.push_back(Part(i, "ssm", {int64_t{1} << 30}, "N"));
  const Layout layout = MustBuild(spec);
  EXPECT_EQ(layout.parts()[2].offset, uint64_t{2} << 32);
  EXPECT_EQ(layout.slot_bytes(), uint64_t{3} << 32);
}

// F12: same byte size, different meaning.
TEST(LayoutI6, EveryFieldChangesTheFingerprintAndIsNamed) {
  const Layout base = MustBuild(HybridSpec());
  const auto differs = [&](auto change) {
    LayoutSpec spec = HybridSpec();
    change(&spec);
    const Layout other = MustBuild(spec);
    EXPECT_NE(base.fingerprint(), other.fingerprint());
    EXPECT_FALSE(base == other);
    return base.FirstDifference(other);
  };
  EXPECT_EQ(base.FirstDifference(MustBuild(HybridSpec())), "");
  EXPECT_THAT(differs([](LayoutSpec* s) { s->parts[1].axes = "H,P,N"; }),
              HasSubstr("l0.ssm axes: H,N,P here, H,P,N there"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->parts[0].axes = "tap-newest-first,channel"; }),
              HasSubstr("l0.conv axes"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->parts[3].dtype = ElementType::kF16; }),
              HasSubstr("l2.ssm dtype: bf16 here, f16 there"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->parts[1].shape = {4, 16, 8}; }), HasSubstr("shape"));
  EXPECT_THAT(differs([](LayoutSpec* s) { std::swap(s->parts[0], s->parts[1]); }),
              HasSubstr("part name"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->parts.pop_back(); }), HasSubstr("state parts: 4"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->groups[0].window = 64; }), HasSubstr("window"));
  EXPECT_THAT(differs([](LayoutSpec* s) {
                s->groups[0].layers = {3, 1};
              }),
              HasSubstr("layers: 1,3 here, 3,1 there"));
  EXPECT_THAT(
      differs([](LayoutSpec* s) { std::swap(s->groups[0].kv_heads, s->groups[0].head_dim); }),
      HasSubstr("kv_heads"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->numerics_tag.bytes[31] ^= 1; }),
              HasSubstr("numerics tag"));
  EXPECT_THAT(differs([](LayoutSpec* s) { s->extra = "tp=1/2"; }), HasSubstr("extra"));
}

TEST(LayoutRecord, RoundTrips) {
  LayoutSpec windowed = HybridSpec();
  windowed.groups.push_back(Group("window", {4, 5}, 128));
  for (const LayoutSpec& spec : {HybridSpec(), windowed, LayoutSpec()}) {
    const Layout layout = MustBuild(spec);
    const auto record = layout.Encode();
    const StatusOr<Layout> back = Layout::Decode(AsBytes(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->fingerprint(), layout.fingerprint());
    EXPECT_EQ(back->parts(), layout.parts());
    EXPECT_EQ(back->groups(), layout.groups());
    EXPECT_EQ(back->slot_bytes(), layout.slot_bytes());
    EXPECT_EQ(back->Encode(), record);
    EXPECT_EQ(
        0, std::memcmp(record.data() + record.size() - 32, layout.fingerprint().bytes.data(), 32));
  }
}

void Reseal(std::vector<uint8_t>* record) {
  const auto length = static_cast<uint32_t>(record->size());
  std::memcpy(record->data() + 8, &length, 4);
  const Sha256 sum = Sha256Of(AsBytes(*record).first(record->size() - 32));
  std::memcpy(record->data() + record->size() - 32, sum.bytes.data(), 32);
}

// test/corpus/make_seeds.py writes these from docs/format/layout.md alone.
TEST(LayoutRecord, ReadsWhatWasWrittenFromTheDocument) {
  for (const auto& [name, slot_bytes] : {std::pair("hybrid", 417792), std::pair("windowed", 8192),
                                         std::pair("state-only", 106496), std::pair("empty", 0)}) {
    std::ifstream in(std::string(BATON_SOURCE_DIR "/test/corpus/layout_fuzz/seed-") + name,
                     std::ios::binary);
    const std::string record(std::istreambuf_iterator<char>(in), {});
    const auto layout = Layout::Decode(std::as_bytes(std::span(record)));
    ASSERT_TRUE(layout.ok()) << name << ": " << layout.status();
    EXPECT_EQ(layout->slot_bytes(), static_cast<uint64_t>(slot_bytes)) << name;
  }
}

TEST(LayoutRecordI6, EveryFlippedBitAndEveryTruncationIsRefused) {
  const auto record = MustBuild(HybridSpec()).Encode();
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    auto bad = record;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_FALSE(Layout::Decode(AsBytes(bad)).ok()) << bit;
  }
  for (size_t n = 0; n < record.size(); ++n)
    ASSERT_FALSE(Layout::Decode(AsBytes(record).first(n)).ok()) << n;
  auto longer = record;
  longer.push_back(0);
  EXPECT_EQ(ReasonOf(Layout::Decode(AsBytes(longer)).status()), Reason::kMalformed);
}

// F30: hostile values under a checksum that holds.
TEST(LayoutRecordF30, HostileFieldsInsideAValidChecksumAreRefused) {
  const auto record = MustBuild(HybridSpec()).Encode();
  SplitMix64 rng(1);
  int refused = 0;
  for (size_t at = 12; at + 8 <= record.size() - 32; ++at) {
    for (uint64_t value : {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63, rng.Next()}) {
      auto bad = record;
      std::memcpy(bad.data() + at, &value, 8);
      Reseal(&bad);
      const StatusOr<Layout> layout = Layout::Decode(AsBytes(bad));
      if (!layout.ok()) {
        ++refused;
      } else {
        ASSERT_EQ(layout->Encode(), bad);  // what is accepted means exactly its bytes
      }
    }
  }
  EXPECT_GT(refused, 100);
  auto trailing = record;
  trailing.insert(trailing.end() - 32, 5, uint8_t{0});
  Reseal(&trailing);
  EXPECT_EQ(ReasonOf(Layout::Decode(AsBytes(trailing)).status()), Reason::kMalformed);
  auto version = record;
  version[4] = 2;
  Reseal(&version);
  EXPECT_EQ(ReasonOf(Layout::Decode(AsBytes(version)).status()), Reason::kProtocolVersion);
}

}  // namespace
}  // namespace baton
