// One budget, two kinds of unit, a border that moves.
#include "memory/elastic.h"

#include <thread>

#include "gmock/gmock.h"
#include "memory/elastic_test_util.h"

namespace baton {
namespace {

using memory_internal::BorderGeometry;
using memory_internal::PlaceRange;
using memory_internal::PlaceUse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BorderPlan, PlacesThatShareBytes) {
  // Rows 0..9 of 10 bytes from below, tiles of 25 from above: [75,100) is tile 0.
  const BorderGeometry g{.bytes = 104, .row_pitch = 10, .tile_pitch = 25};
  EXPECT_EQ(g.rows(), 10u);
  EXPECT_EQ(g.tiles(), 4u);
  EXPECT_EQ(g.RowsUnder(0), (PlaceRange{7, 10}));  // [79,104)
  EXPECT_EQ(g.RowsUnder(3), (PlaceRange{0, 3}));   // [4,29)
  EXPECT_EQ(g.TilesOver(9), (PlaceRange{0, 1}));   // [90,100)
  EXPECT_EQ(g.TilesOver(7), (PlaceRange{0, 2}));   // [70,80)
  // For every pair: listed if and only if the bytes overlap; also with tiles smaller than rows.
  for (const BorderGeometry& x :
       {g, BorderGeometry{1000, 7, 64}, BorderGeometry{1000, 64, 7}, BorderGeometry{64, 8, 8}}) {
    for (uint32_t r = 0; r < x.rows(); ++r) {
      for (uint32_t t = 0; t < x.tiles(); ++t) {
        const uint64_t tile_end = x.bytes - t * x.tile_pitch;
        const bool overlap =
            r * x.row_pitch < tile_end && tile_end - x.tile_pitch < (r + 1) * x.row_pitch;
        const PlaceRange rows = x.RowsUnder(t);
        const PlaceRange tiles = x.TilesOver(r);
        EXPECT_EQ(rows.begin <= r && r < rows.end, overlap) << r << " " << t;
        EXPECT_EQ(tiles.begin <= t && t < tiles.end, overlap) << r << " " << t;
      }
    }
  }
}

TEST(BorderPlan, TakesTheBorderTileThenTheCheapest) {
  constexpr auto N = PlaceUse::kNotOwned, F = PlaceUse::kFree, M = PlaceUse::kMovable,
                 X = PlaceUse::kFixed;
  const BorderGeometry g{.bytes = 80, .row_pitch = 10, .tile_pitch = 20};
  const std::vector<PlaceUse> slots = {M, N, N, N};  // tile 0 covers rows 6 and 7
  const auto choices = [&](std::vector<PlaceUse> rows) {
    rows.resize(8, N);
    return TilesToTake(g, slots, std::vector<std::vector<PlaceUse>>{rows});
  };
  EXPECT_THAT(choices({F, F, F, F, F, F}), ElementsAre(1, 2, 3));
  EXPECT_THAT(choices({F, F, F, F, M, M}), ElementsAre(1, 2, 3));  // dear, but at the border
  EXPECT_THAT(choices({F, F, M, F, X, M}), ElementsAre(3, 2));     // the border tile is fixed
  EXPECT_THAT(choices({M, M, M, F, M, M}), ElementsAre());         // one hole is not enough
  EXPECT_THAT(choices({F, M, M, F, M, M}), ElementsAre(1, 2, 3));
  EXPECT_THAT(choices({X, F, M, X, F, X}), ElementsAre());
}

TEST(BorderPlan, GivesTheTilesOverTheBorderRowThenTheCheapest) {
  constexpr auto N = PlaceUse::kNotOwned, F = PlaceUse::kFree, M = PlaceUse::kMovable,
                 X = PlaceUse::kFixed;
  const auto give = [&](const BorderGeometry& g, std::vector<PlaceUse> slots, uint32_t owned) {
    std::vector<PlaceUse> rows(g.rows(), N);
    std::fill_n(rows.begin(), owned, F);
    return TilesToGive(g, slots, rows);
  };
  // Two rows to a tile.
  const BorderGeometry g{.bytes = 80, .row_pitch = 10, .tile_pitch = 20};
  const PlaceRange t0{0, 1}, t1{1, 2}, t2{2, 3};
  EXPECT_THAT(give(g, {F, M, F, N}, 2), ElementsAre(t2, t0, t1));
  EXPECT_THAT(give(g, {F, M, M, N}, 2), ElementsAre(t2, t0, t1));  // a move, but at the border
  EXPECT_THAT(give(g, {F, M, X, N}, 2), ElementsAre(t0, t1));
  EXPECT_THAT(give(g, {M, M, X, N}, 2), ElementsAre());
  // Four tiles to a row: all of them or nothing.
  const BorderGeometry h{.bytes = 80, .row_pitch = 40, .tile_pitch = 10};
  EXPECT_THAT(give(h, {F, F, M, F, F, F, M, M}, 0),
              ElementsAre(PlaceRange{4, 8}, PlaceRange{0, 4}));
  EXPECT_THAT(give(h, {F, M, M, M, F, M, M, M}, 0), ElementsAre());
  EXPECT_THAT(give(h, {F, F, M, F, F, F, M, X}, 0), ElementsAre(PlaceRange{0, 4}));
}

TEST(Elastic, EitherSideCanHaveTheWholeBudget) {
  TestElastic t({});
  std::vector<BlockHandle> blocks;
  while (t.BlockFits(0)) blocks.push_back(t.Block(blocks.size()));
  EXPECT_EQ(blocks.size(), t.budget / t.row_pitch);
  EXPECT_EQ(ReasonOf(t.memory->blocks(0)->Reserve({}).status()), Reason::kNoCapacity);
  EXPECT_EQ(ReasonOf(t.memory->slots()->Reserve({}).status()), Reason::kNoCapacity);
  for (const BlockHandle h : blocks) ASSERT_TRUE(t.memory->blocks(0)->Free(h).ok());
  std::vector<SlotHandle> slots;
  while (t.SlotFits()) slots.push_back(t.Slot(slots.size()));
  EXPECT_EQ(slots.size(), t.budget / t.slot_pitch);
  const Status full = t.memory->slots()->Reserve({}).status();
  EXPECT_EQ(ReasonOf(full), Reason::kNoCapacity);
  EXPECT_THAT(std::string(full.message()), HasSubstr("not in use"));
  t.Check();
  const ElasticStats stats = t.memory->Stats();
  EXPECT_EQ(stats.refusals, 3u);
  EXPECT_EQ(stats.refusals_fixed, 0u);
  EXPECT_EQ(stats.border_moves, slots.size());
}

// The promise: what fits in the bytes not in use is given, however they are scattered.
TEST(Elastic, ASlotIsGivenAsLongAsItsBytesAreFreeSomewhere) {
  TestElastic t({});
  std::vector<BlockHandle> blocks;
  while (t.BlockFits(0)) blocks.push_back(t.Block(blocks.size()));
  // Every other block goes: no tile is empty, half the memory is free.
  std::vector<std::pair<BlockHandle, uint64_t>> kept;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(t.memory->blocks(0)->Free(blocks[i]).ok());
    } else {
      kept.emplace_back(blocks[i], i);
    }
  }
  uint64_t slots = 0;
  while (t.SlotFits()) {
    const SlotHandle h = t.Slot(1000 + slots);
    EXPECT_TRUE(t.Holds(t.memory->slots(), h, 1000 + slots));
    ++slots;
    t.Check();
  }
  EXPECT_GT(slots, 5u);
  EXPECT_GT(t.memory->Stats().bytes_moved, 0u);
  EXPECT_EQ(t.memory->Stats().refusals, 0u);
  for (const auto& [h, tag] : kept) EXPECT_TRUE(t.Holds(t.memory->blocks(0), h, tag));
}

TEST(Elastic, ABlockIsGivenAsLongAsItsBytesAreFreeAmongTheSlots) {
  TestElastic t({});
  std::vector<SlotHandle> slots;
  while (t.SlotFits()) slots.push_back(t.Slot(slots.size()));
  std::vector<std::pair<SlotHandle, uint64_t>> kept;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i % 3 != 2) {
      ASSERT_TRUE(t.memory->slots()->Free(slots[i]).ok());
    } else {
      kept.emplace_back(slots[i], i);
    }
  }
  uint64_t blocks = 0;
  while (t.BlockFits(0)) {
    t.Block(1000 + blocks++);
    t.Check();
  }
  EXPECT_GT(blocks, 30u);
  EXPECT_EQ(t.memory->Stats().refusals, 0u);
  for (const auto& [h, tag] : kept) EXPECT_TRUE(t.Holds(t.memory->slots(), h, tag));
}

TEST(Elastic, SlotsSmallerThanABlockAndSeveralGroups) {
  ElasticSpec spec;
  spec.slot_bytes = 256;
  spec.block_bytes = {1024, 192, 64};
  for (const bool guards : {true, false}) {
    spec.guards = guards;
    TestElastic t(spec);
    SplitMix64 rng(3);
    std::vector<SlotHandle> slots;
    std::vector<BlockHandle> blocks[3];
    for (int i = 0; i < 3000; ++i) {
      const size_t g = rng.Below(3);
      BlockPool* pool = t.memory->blocks(g);
      switch (rng.Below(4)) {
        case 0: {
          const bool fits = t.SlotFits();
          const auto h = t.memory->slots()->Reserve({});
          ASSERT_EQ(h.ok(), fits) << h.status();
          if (!h.ok()) break;
          ASSERT_TRUE(t.memory->slots()->Activate(*h).ok());
          slots.push_back(*h);
          break;
        }
        case 1: {
          const bool fits = t.BlockFits(g);
          const auto h = pool->Reserve({});
          ASSERT_EQ(h.ok(), fits) << h.status();
          if (!h.ok()) break;
          ASSERT_TRUE(pool->Activate(*h).ok());
          blocks[g].push_back(*h);
          break;
        }
        case 2:
          if (slots.empty()) break;
          std::swap(slots[rng.Below(slots.size())], slots.back());
          ASSERT_TRUE(t.memory->slots()->Free(slots.back()).ok());
          slots.pop_back();
          break;
        default:
          if (blocks[g].empty()) break;
          std::swap(blocks[g][rng.Below(blocks[g].size())], blocks[g].back());
          ASSERT_TRUE(pool->Free(blocks[g].back()).ok());
          blocks[g].pop_back();
      }
      t.Check();
    }
  }
}

// I3: what is leased, reserved, landing or quarantined stays; the slot goes to another tile.
TEST(ElasticI3, AFixedUnitAtTheBorderIsGoneAround) {
  TestElastic t({});
  BlockPool* pool = t.memory->blocks(0);
  std::vector<BlockHandle> blocks;
  while (t.BlockFits(0)) blocks.push_back(t.Block(blocks.size()));
  const BlockHandle top = blocks.back();
  BlockLease lease = Must(pool->Acquire(top, LeaseFor::kDigest));
  for (size_t i = 0; i + 1 < blocks.size(); i += 2) ASSERT_TRUE(pool->Free(blocks[i]).ok());
  const uint64_t before = lease.arena_offset();
  const SlotHandle slot = t.Slot(7);
  t.Check();
  EXPECT_EQ(t.OffsetOf(pool, top), before);
  EXPECT_TRUE(HasPattern(lease.bytes(), blocks.size() - 1));
  const uint64_t island = t.OffsetOf(t.memory->slots(), slot);
  EXPECT_LT(island, before);
  // The lease ends; idle time brings the slot to the border.
  lease.Release();
  CompactResult result;
  do {
    result = Must(t.memory->Compact(4096));
    EXPECT_LE(result.bytes_moved, 3 * 4096u);
    t.Check();
  } while (result.more);
  EXPECT_EQ(t.OffsetOf(t.memory->slots(), slot) + t.slot_pitch,
            t.budget + (t.slot_pitch - 4096) / 2);
  EXPECT_TRUE(t.Holds(t.memory->slots(), slot, 7));
  for (size_t i = 1; i < blocks.size(); i += 2) EXPECT_TRUE(t.Holds(pool, blocks[i], i));
  EXPECT_EQ(Must(t.memory->Compact(1 << 20)).bytes_moved, 0u);  // nothing left to gain
}

TEST(ElasticI3, RefusedOnlyIfEveryTileHoldsSomethingFixed) {
  TestElastic t({.guards = false});
  BlockPool* pool = t.memory->blocks(0);
  std::vector<BlockHandle> blocks;
  while (t.BlockFits(0)) blocks.push_back(Must(pool->Reserve({})));  // RESERVED: fixed
  std::vector<BlockHandle> kept;
  const uint64_t per_tile = t.slot_pitch / t.row_pitch;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % per_tile == 0) {
      kept.push_back(blocks[i]);
    } else {
      ASSERT_TRUE(pool->Free(blocks[i]).ok());
    }
  }
  const Status refused = t.memory->slots()->Reserve({}).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kNoCapacity);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(std::to_string(kept.size()) + " units may not move now"));
  EXPECT_EQ(t.memory->Stats().refusals_fixed, 1u);
  t.Check();
  ASSERT_TRUE(pool->Free(kept[3]).ok());
  ASSERT_TRUE(pool->Free(kept[4]).ok());  // a tile lies over at most two of them
  EXPECT_TRUE(t.memory->slots()->Reserve({}).ok());
  t.Check();
}

TEST(Elastic, ABrokenMoveIsAnErrorAndNothingChangesSides) {
  class Broken final : public Device {
   public:
    void Copy(MutableByteSpan dst, ByteSpan src) const override {
      host.Copy(dst, src);
      if (broken) dst[dst.size() - 1] ^= std::byte{1};
    }
    void Fill(MutableByteSpan dst, std::byte value) const override { host.Fill(dst, value); }
    PartDigest Digest(const Digester& d, const DigestSeed& seed, ByteSpan bytes) const override {
      return host.Digest(d, seed, bytes);
    }
    HostDevice host;
    bool broken = true;
  } device;
  TestElastic t({}, &device);
  BlockPool* pool = t.memory->blocks(0);
  std::vector<BlockHandle> blocks;
  while (t.BlockFits(0)) blocks.push_back(t.Block(blocks.size()));
  for (size_t i = 0; i < blocks.size() / 2; ++i) ASSERT_TRUE(pool->Free(blocks[i]).ok());
  EXPECT_EQ(ReasonOf(t.memory->slots()->Reserve({}).status()), Reason::kDigestMismatch);
  t.Check();
  EXPECT_EQ(t.memory->slots()->Stats().units, 0u);
  EXPECT_EQ(pool->Stats().units, blocks.size());
  for (size_t i = blocks.size() / 2; i < blocks.size(); ++i)
    EXPECT_TRUE(t.Holds(pool, blocks[i], i));
  device.broken = false;
  EXPECT_TRUE(t.memory->slots()->Reserve({}).ok());
  t.Check();
}

TEST(Elastic, ABudgetTooSmallForOneOfEachIsRefused) {
  ElasticOptions options;
  auto arena = Must(Arena::Create(1 << 20, {}));
  HostDevice device;
  options.arena = arena.get();
  options.slots.device = &device;
  options.slots.unit_bytes = 40000;
  options.blocks.resize(1, options.slots);
  options.blocks[0].unit_bytes = 1000;
  options.bytes = ElasticBytesMin(options) - 1;
  const Status refused = ElasticMemory::Create(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("raise the budget"));
  options.bytes = ElasticBytesMin(options);
  auto memory = Must(ElasticMemory::Create(options));
  EXPECT_EQ(memory->slots_max(), 1u);
  EXPECT_TRUE(memory->slots()->Reserve({}).ok());
  EXPECT_TRUE(memory->blocks(0)->Reserve({}).ok());
}

// Handles of one pool in another, double frees and made-up handles, across the border.
TEST(ElasticI2, ForeignDoubleFreedAndMadeUpHandlesAreErrors) {
  ElasticSpec spec;
  spec.block_bytes = {640, 640};
  TestElastic t(spec);
  BlockPool* a = t.memory->blocks(0);
  BlockPool* b = t.memory->blocks(1);
  const BlockHandle h = t.Live(a, 1);
  const BlockHandle other = t.Live(b, 2);
  EXPECT_TRUE(IsStale(b->Free(h)));
  EXPECT_TRUE(IsStale(a->Free(other)));
  EXPECT_TRUE(IsStale(b->Acquire(h, LeaseFor::kDigest).status()));
  EXPECT_TRUE(IsStale(a->Free({h.pool, 1u << 30, h.generation})));
  EXPECT_TRUE(IsStale(a->Free(BlockHandle())));
  ASSERT_TRUE(a->Free(h).ok());
  EXPECT_TRUE(IsStale(a->Free(h)));
  // A slot whose place has gone to the blocks since: still stale, never a block.
  const SlotHandle slot = t.Slot(3);
  ASSERT_TRUE(t.memory->slots()->Free(slot).ok());
  while (t.BlockFits(0)) t.Live(a, 9);
  EXPECT_EQ(t.memory->slots()->Stats().units, 0u);
  EXPECT_TRUE(IsStale(t.memory->slots()->Free(slot)));
  EXPECT_TRUE(IsStale(t.memory->slots()->Acquire(slot, LeaseFor::kDigest).status()));
  t.Check();
}

}  // namespace
}  // namespace baton
