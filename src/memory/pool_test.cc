// The life-cycle table edge by edge; handles, filling, moves, quarantine, copies.
#include "memory/pool.h"

#include <functional>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "memory/pool_test_util.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using S = UnitState;

// The table of design, written once more by hand: (state, action) -> next state; what is absent
// must be refused and must change nothing.
TEST(PoolTable, EveryEdgeOfTheTableAndNoOther) {
  const std::map<std::string, std::map<S, S>> table = {
      {"Activate", {{S::kReserved, S::kLive}, {S::kVerified, S::kLive}}},
      {"Land", {{S::kReserved, S::kLanding}}},
      {"Landed", {{S::kLanding, S::kLanded}}},
      {"Verified", {{S::kLanded, S::kVerified}}},
      {"Seal", {{S::kLive, S::kSealed}, {S::kVerified, S::kSealed}}},
      {"Free",
       {{S::kReserved, S::kFree},
        {S::kLive, S::kFree},
        {S::kLanded, S::kFree},
        {S::kVerified, S::kFree},
        {S::kSealed, S::kFree}}},
      {"Quarantine", {{S::kLanding, S::kQuarantined}}},
      {"ProvenQuiet", {{S::kQuarantined, S::kFree}}},
  };
  const std::map<std::string, std::function<Status(SlotPool&, SlotHandle)>> actions = {
      {"Activate", [](SlotPool& p, SlotHandle h) { return p.Activate(h); }},
      {"Land", [](SlotPool& p, SlotHandle h) { return p.Land(h, Attempt(2)); }},
      {"Landed", [](SlotPool& p, SlotHandle h) { return p.Landed(h); }},
      {"Verified", [](SlotPool& p, SlotHandle h) { return p.Verified(h); }},
      {"Seal", [](SlotPool& p, SlotHandle h) { return p.Seal(h); }},
      {"Free", [](SlotPool& p, SlotHandle h) { return p.Free(h); }},
      {"Quarantine", [](SlotPool& p, SlotHandle h) { return p.Quarantine(h); }},
      {"ProvenQuiet", [](SlotPool& p, SlotHandle h) { return p.ProvenQuiet(h); }},
  };
  int edges = 0;
  for (S from : kHandleStates) {
    for (const auto& [name, action] : actions) {
      TestPool<SlotKind> p(4);
      const SlotHandle h = InState(p, from);
      const Status status = action(*p.pool, h);
      const auto& row = table.at(name);
      const auto to = row.find(from);
      if (to == row.end()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(UnitStateName(from))));
        EXPECT_THAT(std::string(status.message()), HasSubstr(h.ToString()));
        EXPECT_EQ(Must(p->StateOf(h)), from) << name;
      } else {
        ++edges;
        EXPECT_TRUE(status.ok()) << name << " from " << UnitStateName(from) << ": " << status;
        if (to->second == S::kFree) {
          EXPECT_TRUE(IsStale(p->StateOf(h).status()));
          EXPECT_EQ(p->Stats().free, 4u);
        } else {
          EXPECT_EQ(Must(p->StateOf(h)), to->second);
        }
      }
      EXPECT_TRUE(p->CheckInvariants().ok());
    }
  }
  EXPECT_EQ(edges, 14);  // the table has as many
}

TEST(PoolI2, AStaleHandleNeverResolves) {
  TestPool<SlotKind> p(3);
  std::vector<SlotHandle> dead;
  for (int round = 0; round < 20; ++round) {
    const SlotHandle h = p.Live(round);
    EXPECT_TRUE(p->Free(h).ok());
    dead.push_back(h);
    const SlotHandle now = p.Live(round);  // the same unit lives again
    for (SlotHandle d : dead) {
      EXPECT_TRUE(IsStale(p->StateOf(d).status()));
      EXPECT_TRUE(IsStale(p->StampOf(d).status()));
      EXPECT_TRUE(IsStale(p->Acquire(d, LeaseFor::kCompute).status()));
      EXPECT_TRUE(IsStale(p->AcquireAll(std::vector{now, d}, LeaseFor::kCompute).status()));
      for (const Status& s : {p->Activate(d), p->Land(d, Attempt(1)), p->Landed(d), p->Verified(d),
                              p->Seal(d), p->Free(d), p->Quarantine(d), p->ProvenQuiet(d),
                              p->Move(d), p->CopyInto(d, now), p->CopyInto(now, d)})
        EXPECT_TRUE(IsStale(s)) << s;
    }
    EXPECT_EQ(p->Stats().leases, 0u);
    EXPECT_TRUE(p->Free(now).ok());
  }
  EXPECT_EQ(p->Stats().free, 3u);
}

TEST(PoolI2, HandlesThatWereNeverGivenOutDoNotResolve) {
  TestPool<SlotKind> p(3);
  const SlotHandle h = p.Live(1);
  EXPECT_TRUE(IsStale(p->StateOf(SlotHandle()).status()));
  EXPECT_TRUE(IsStale(p->StateOf({h.pool + 1, h.index, h.generation}).status()));
  EXPECT_TRUE(IsStale(p->StateOf({h.pool, 3, 1}).status()));
  EXPECT_TRUE(IsStale(p->StateOf({h.pool, UINT32_MAX, 1}).status()));
  EXPECT_TRUE(IsStale(p->StateOf({h.pool, h.index, h.generation + 1}).status()));
  // The right generation of a unit that is FREE.
  EXPECT_TRUE(IsStale(p->StateOf({h.pool, h.index == 0 ? 1u : 0u, 1}).status()));
}

// F16: what a new sequence reads before it writes is zero, whatever lay there before.
TEST(PoolF16, ReserveFillsWithZerosOverNaN) {
  TestPool<SlotKind> p(1);
  const SlotHandle h = p.Live(1);
  std::memset(Must(p->Acquire(h, LeaseFor::kCompute)).bytes().data(), 0xFF, 192);
  EXPECT_TRUE(p->Free(h).ok());
  const SlotHandle again = Must(p->Reserve({}));
  EXPECT_TRUE(p->Activate(again).ok());
  EXPECT_TRUE(AllBytes(Must(p->Acquire(again, LeaseFor::kCompute)).bytes(), std::byte{0}));
}

TEST(PoolF16, TwinWithTheFillSwitchedOffLeavesTheOldBytes) {
  PoolOptions options;
  options.checks_off.fill = true;
  TestPool<SlotKind> p(1, options);
  EXPECT_TRUE(p->Free(p.Live(1)).ok());
  const SlotHandle h = Must(p->Reserve({}));
  EXPECT_TRUE(p->Activate(h).ok());
  EXPECT_FALSE(AllBytes(Must(p->Acquire(h, LeaseFor::kCompute)).bytes(), std::byte{0}));
}

TEST(Pool, AnUnfilledUnitCannotGoLiveAndItsGapsAreZero) {
  PoolOptions options;
  options.unit_bytes = 200;
  options.align = 128;
  options.extents = {{0, 10}, {64, 100}};
  TestPool<SlotKind> p(1, options);
  EXPECT_TRUE(p->Free(Must(p->Reserve({}))).ok());  // poisons
  const SlotHandle h = Must(p->Reserve({.fill = FillMode::kGapsOnly}));
  EXPECT_THAT(std::string(p->Activate(h).message()), HasSubstr("neither zero-filled nor copied"));
  EXPECT_FALSE(p->Seal(h).ok());
  EXPECT_TRUE(p->Land(h, Attempt(1)).ok());
  const StateLease lease = Must(p->Acquire(h, LeaseFor::kLand));
  ASSERT_EQ(lease.bytes().size(), 256u);
  EXPECT_TRUE(AllBytes(lease.bytes().first(10), std::byte{0xFF}));
  EXPECT_TRUE(AllBytes(lease.bytes().subspan(10, 54), std::byte{0}));
  EXPECT_TRUE(AllBytes(lease.bytes().subspan(64, 100), std::byte{0xFF}));
  EXPECT_TRUE(AllBytes(lease.bytes().subspan(164), std::byte{0}));
}

TEST(Pool, StartsPermutedAndGivesOutEveryUnitOnce) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    PoolOptions options;
    options.permute_seed = seed;
    TestPool<SlotKind> p(8, options);
    std::set<uint64_t> offsets;
    bool identity = true;
    for (int i = 0; i < 8; ++i) {
      const SlotHandle h = p.Live(i);
      const uint64_t offset = p.OffsetOf(h);
      EXPECT_TRUE(offsets.insert(offset).second);
      identity &= offset / p->Stats().unit_pitch == h.index;
    }
    EXPECT_FALSE(identity) << seed;
    EXPECT_EQ(ReasonOf(p->Reserve({}).status()), Reason::kNoCapacity);
    EXPECT_EQ(p->Stats().used, 8u);
  }
}

TEST(PoolI3, ALeasedUnitNeverMovesAndAnUnleasedSealedOrLiveOneCan) {
  TestPool<SlotKind> p(4);
  for (const SlotHandle h : {p.Live(1), p.Sealed(2)}) {
    const uint64_t tag = Must(p->StateOf(h)) == S::kLive ? 1 : 2;
    const uint64_t before = p.OffsetOf(h);
    StateLease lease = Must(p->Acquire(h, LeaseFor::kDigest));
    EXPECT_EQ(p->Move(h).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(lease.arena_offset(), before);
    lease.Release();
    EXPECT_TRUE(p->Move(h).ok());
    EXPECT_NE(p.OffsetOf(h), before);
    EXPECT_TRUE(p.Holds(h, tag));
    // The place it left is poisoned: a late read there does not see the state.
    EXPECT_TRUE(AllBytes(ByteSpan(p.arena->data() + before, 192), std::byte{0xFF}));
    EXPECT_TRUE(p->CheckInvariants().ok());
  }
}

// F04: with the generation ignored, a freed and reused slot is read as if nothing had happened.
TEST(PoolF04, TwinWithTheGenerationSwitchedOffReadsTheNextOwner) {
  PoolOptions options;
  options.checks_off.generation = true;
  TestPool<SlotKind> p(1, options);
  const SlotHandle old = p.Live(1);
  EXPECT_TRUE(p->Free(old).ok());
  p.Live(2);
  EXPECT_TRUE(p.Holds(old, 2));
  // Bounds are never switched off.
  EXPECT_FALSE(p->StateOf({old.pool, 1, 1}).ok());
  EXPECT_FALSE(p->StateOf({old.pool + 1, 0, 1}).ok());
}

TEST(PoolI3, OnlySealedAndLiveUnitsMove) {
  for (S state : kHandleStates) {
    TestPool<SlotKind> p(4);
    const SlotHandle h = InState(p, state);
    EXPECT_EQ(p->Move(h).ok(), state == S::kLive || state == S::kSealed) << UnitStateName(state);
  }
  TestPool<SlotKind> full(1);
  EXPECT_EQ(ReasonOf(full->Move(full.Live(1))), Reason::kNoCapacity);
}

TEST(Pool, CompactionPacksEverythingLow) {
  TestPool<BlockKind> p(32);
  std::map<uint64_t, BlockHandle> kept;
  std::vector<BlockHandle> all;
  for (uint64_t i = 0; i < 32; ++i) all.push_back(i % 2 ? p.Live(i) : p.Sealed(i));
  for (uint64_t i = 0; i < 32; ++i) {
    if (i % 3 == 0) {
      kept[i] = all[i];
    } else {
      EXPECT_TRUE(p->Free(all[i]).ok());
    }
  }
  int moves = 0;
  while (Must(p->CompactOne())) ASSERT_LT(++moves, 100);
  EXPECT_GT(moves, 0);
  EXPECT_EQ(p->Stats().moves, static_cast<uint64_t>(moves));
  for (const auto& [tag, h] : kept) {
    EXPECT_TRUE(p.Holds(h, tag));
    EXPECT_LT(p.OffsetOf(h), kept.size() * p->Stats().unit_pitch);
  }
  EXPECT_TRUE(p->CheckInvariants().ok());
}

TEST(Pool, QuarantineHoldsARangeUntilProvenQuietAndIsCapped) {
  PoolOptions options;
  options.quarantine_max = 2;
  TestPool<SlotKind> p(4, options);
  SlotHandle q[2];
  for (SlotHandle& h : q) {
    h = Must(p->Reserve({.fill = FillMode::kGapsOnly}));
    EXPECT_TRUE(p->Land(h, Attempt(1)).ok());
    EXPECT_FALSE(p->Free(h).ok());  // a writer may still touch it
  }
  StateLease writer = Must(p->Acquire(q[0], LeaseFor::kLand));
  for (SlotHandle h : q) {
    EXPECT_TRUE(p->Quarantine(h).ok());
    EXPECT_FALSE(p->Acquire(h, LeaseFor::kLand).ok());
  }
  EXPECT_EQ(p->Stats().quarantined, 2u);
  const SlotHandle next = Must(p->Reserve({}));
  EXPECT_EQ(ReasonOf(p->Land(next, Attempt(2))), Reason::kNoCapacity);
  EXPECT_FALSE(p->ProvenQuiet(q[0]).ok());  // its writer still holds the lease
  WritePattern(writer.bytes(), 9);          // late, and harms nobody
  writer.Release();
  EXPECT_TRUE(p->ProvenQuiet(q[0]).ok());
  EXPECT_TRUE(p->Land(next, Attempt(2)).ok());
  EXPECT_TRUE(IsStale(p->StateOf(q[0]).status()));
}

// I8, F26: a fork and a checkpoint are copies; the original and the copy never touch.
TEST(PoolI8, ForkAndCheckpointAreCopies) {
  TestPool<SlotKind> p(4);
  const SlotHandle live = p.Live(1);
  const SlotHandle checkpoint = Must(p->Reserve({.fill = FillMode::kGapsOnly}));
  EXPECT_FALSE(p->Seal(checkpoint).ok());
  EXPECT_TRUE(p->CopyInto(live, checkpoint).ok());
  EXPECT_TRUE(p->Seal(checkpoint).ok());
  WritePattern(Must(p->Acquire(live, LeaseFor::kCompute)).bytes(), 2);  // the sequence goes on
  EXPECT_TRUE(p.Holds(checkpoint, 1));
  const SlotHandle fork = Must(p->Reserve({.fill = FillMode::kGapsOnly}));
  EXPECT_TRUE(p->CopyInto(checkpoint, fork).ok());
  EXPECT_TRUE(p->Activate(fork).ok());
  WritePattern(Must(p->Acquire(fork, LeaseFor::kCompute)).bytes(), 3);
  EXPECT_TRUE(p.Holds(checkpoint, 1));
  EXPECT_TRUE(p.Holds(live, 2));
  EXPECT_TRUE(p.Holds(fork, 3));
}

TEST(Pool, CopyRefusesWrongStatesAndARunningWriter) {
  TestPool<SlotKind> p(4);
  const SlotHandle live = p.Live(1);
  const SlotHandle landing = InState(p, S::kLanding);
  const SlotHandle reserved = Must(p->Reserve({}));
  EXPECT_FALSE(p->CopyInto(landing, reserved).ok());
  EXPECT_FALSE(p->CopyInto(live, landing).ok());
  EXPECT_FALSE(p->CopyInto(live, live).ok());
  EXPECT_FALSE(p->CopyInto(reserved, reserved).ok());
  StateLease step = Must(p->Acquire(live, LeaseFor::kCompute));
  EXPECT_FALSE(p->CopyInto(live, reserved).ok());
  EXPECT_EQ(Must(p->StateOf(reserved)), S::kReserved);
  EXPECT_TRUE(p->Activate(reserved).ok());  // still zero-filled
}

TEST(Pool, RefusesImpossibleSizes) {
  HostDevice device;
  auto arena = Must(Arena::Create(1 << 20, {}));
  PoolOptions good;
  good.arena = arena.get();
  good.device = &device;
  good.unit_bytes = 100;
  good.units = 4;
  const auto fails = [&](auto change) {
    PoolOptions o = good;
    change(&o);
    return !SlotPool::Create(o).ok();
  };
  EXPECT_TRUE(fails([](auto* o) { o->units = 0; }));
  EXPECT_TRUE(fails([](auto* o) { o->unit_bytes = 0; }));
  EXPECT_TRUE(fails([](auto* o) { o->unit_bytes = UINT64_MAX; }));
  EXPECT_TRUE(fails([](auto* o) { o->unit_bytes = UINT64_MAX / 2; }));
  EXPECT_TRUE(fails([](auto* o) { o->unit_bytes = 1 << 20; }));  // more than the arena has
  EXPECT_TRUE(fails([](auto* o) { o->align = 3; }));
  EXPECT_TRUE(fails([](auto* o) { o->extents = {{90, 20}}; }));
  EXPECT_TRUE(fails([](auto* o) { o->extents = {{10, 20}, {0, 5}}; }));
  EXPECT_TRUE(fails([](auto* o) { o->arena = nullptr; }));
  EXPECT_FALSE(fails([](auto*) {}));
}

}  // namespace
}  // namespace baton
