// Leases, references and stamps: who may hold a unit, for what, and until when.
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "memory/pool.h"
#include "memory/pool_test_util.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using S = UnitState;

// I1: each purpose sees only the states it may.
TEST(PoolI1, LeasesAreGrantedOnlyInTheStatesTheirPurposeAllows) {
  const std::map<LeaseFor, std::set<S>> slots = {
      {LeaseFor::kCompute, {S::kLive}},
      {LeaseFor::kSend, {S::kSealed}},
      {LeaseFor::kLand, {S::kLanding}},
      {LeaseFor::kDigest, {S::kLive, S::kLanded, S::kVerified, S::kSealed}}};
  for (const auto& [purpose, allowed] : slots) {
    for (S state : kHandleStates) {
      TestPool<SlotKind> p(4);
      const SlotHandle h = InState(p, state);
      EXPECT_EQ(p->Acquire(h, purpose).ok(), allowed.contains(state))
          << LeaseForName(purpose) << " " << UnitStateName(state);
      EXPECT_EQ(p->Stats().leases, 0u);
    }
  }
  TestPool<BlockKind> blocks(4);
  EXPECT_TRUE(blocks->Acquire(blocks.Sealed(1), LeaseFor::kCompute).ok());  // shared prefix
}

TEST(PoolI3, FreeOfALeasedUnitIsStaleAtOnceAndReusedOnlyAfterTheLease) {
  TestPool<SlotKind> p(1);
  const SlotHandle h = p.Live(5);
  StateLease lease = Must(p->Acquire(h, LeaseFor::kDigest));
  StateLease second = Must(p->Acquire(h, LeaseFor::kDigest));
  EXPECT_TRUE(p->Free(h).ok());
  EXPECT_TRUE(IsStale(p->StateOf(h).status()));
  EXPECT_TRUE(IsStale(p->CheckStamp(lease.stamp())));  // what the source checks on release
  EXPECT_EQ(ReasonOf(p->Reserve({}).status()), Reason::kNoCapacity);
  EXPECT_TRUE(HasPattern(lease.bytes(), 5));
  lease.Release();
  EXPECT_FALSE(p->Reserve({}).ok());
  EXPECT_TRUE(HasPattern(second.bytes(), 5));
  EXPECT_TRUE(p->CheckInvariants().ok());
  second.Release();
  EXPECT_EQ(p->Stats().free, 1u);
  EXPECT_TRUE(p->Reserve({}).ok());
}

// F15: with the pin ignored, a move under a lease leaves the holder with foreign bytes.
TEST(PoolF15, TwinWithThePinSwitchedOffMovesALeasedUnit) {
  PoolOptions options;
  options.checks_off.lease_pin = true;
  TestPool<SlotKind> p(2, options);
  const SlotHandle h = p.Sealed(1);
  const StateLease lease = Must(p->Acquire(h, LeaseFor::kSend));
  EXPECT_TRUE(p->Move(h).ok());
  EXPECT_FALSE(HasPattern(lease.bytes(), 1));
}

TEST(Pool, LandedWaitsForEveryWriter) {
  TestPool<SlotKind> p(1);
  const SlotHandle h = InState(p, S::kLanding);
  StateLease a = Must(p->Acquire(h, LeaseFor::kLand));
  StateLease b = Must(p->Acquire(h, LeaseFor::kLand));
  a.Release();
  EXPECT_FALSE(p->Landed(h).ok());
  b.Release();
  EXPECT_TRUE(p->Landed(h).ok());
}

TEST(Pool, SealWaitsForTheStepThatWrites) {
  TestPool<SlotKind> p(1);
  const SlotHandle h = p.Live(1);
  StateLease step = Must(p->Acquire(h, LeaseFor::kCompute));
  EXPECT_FALSE(p->Seal(h).ok());
  step.Release();
  StateLease reader = Must(p->Acquire(h, LeaseFor::kDigest));
  EXPECT_TRUE(p->Seal(h).ok());
}

TEST(BlockPool, SealedBlocksAreSharedByReferenceAndFreedByTheLast) {
  TestPool<BlockKind> p(2);
  const BlockHandle h = p.Sealed(3);
  EXPECT_TRUE(p->AddReference(h).ok());
  EXPECT_TRUE(p->AddReference(h).ok());
  EXPECT_EQ(Must(p->ReferencesOf(h)), 3u);
  EXPECT_EQ(p->Stats().references, 3u);
  EXPECT_THAT(std::string(p->Free(h).message()), HasSubstr("3 references"));
  EXPECT_TRUE(p->DropReference(h).ok());
  EXPECT_TRUE(p->DropReference(h).ok());
  EXPECT_TRUE(p.Holds(h, 3));
  EXPECT_TRUE(p->DropReference(h).ok());
  EXPECT_TRUE(IsStale(p->DropReference(h)));
  EXPECT_EQ(p->Stats().free, 2u);
}

// I8: the state of a live sequence is never shared: not by reference, not by a fork.
TEST(PoolI8, ALiveUnitCannotBeShared) {
  TestPool<BlockKind> p(2);
  const BlockHandle live = p.Live(1);
  EXPECT_EQ(p->AddReference(live).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(p->DropReference(live).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(p->Acquire(live, LeaseFor::kSend).ok());
}

TEST(Pool, TheStampNamesNodeEpochOwnerAndAttempt) {
  PoolOptions options;
  options.node = RandomBytes<NodeId>();
  options.epoch = RandomBytes<Epoch>();
  TestPool<SlotKind> p(2, options);
  const SlotHandle h = Must(p->Reserve({.owner = OwnerId(42), .attempt = Attempt(1)}));
  EXPECT_TRUE(p->Land(h, Attempt(2)).ok());
  const PlacementStamp stamp = Must(p->StampOf(h));
  EXPECT_EQ(stamp.owner, OwnerId(42));
  EXPECT_EQ(stamp.attempt, Attempt(2));
  EXPECT_EQ(stamp, Must(p->Acquire(h, LeaseFor::kLand)).stamp());
  EXPECT_TRUE(p->CheckStamp(stamp).ok());
  const auto reason = [&](auto change) {
    PlacementStamp s = stamp;
    change(&s);
    return ReasonOf(p->CheckStamp(s));
  };
  EXPECT_EQ(reason([](auto* s) { s->epoch.bytes[0] ^= 1; }), Reason::kEpochMismatch);
  EXPECT_EQ(reason([](auto* s) { s->node.bytes[0] ^= 1; }), Reason::kEpochMismatch);
  EXPECT_EQ(reason([](auto* s) { s->attempt.value = 1; }), Reason::kAttemptMismatch);
  EXPECT_EQ(reason([](auto* s) { s->owner.value = 1; }), Reason::kStaleHandle);
  EXPECT_EQ(reason([](auto* s) { s->generation += 1; }), Reason::kStaleHandle);
  EXPECT_EQ(reason([](auto* s) { s->index += 1; }), Reason::kStaleHandle);
  EXPECT_EQ(reason([](auto* s) { s->pool += 1; }), Reason::kStaleHandle);
}

TEST(Pool, LeasesMoveAndEndOnce) {
  TestPool<SlotKind> p(1);
  const SlotHandle h = p.Live(1);
  StateLease a = Must(p->Acquire(h, LeaseFor::kDigest));
  StateLease b = std::move(a);
  EXPECT_FALSE(a.held());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(a.bytes().empty());
  EXPECT_TRUE(b.held());
  EXPECT_EQ(b.handle(), h);
  EXPECT_EQ(p->Stats().leases, 1u);
  b = Must(p->Acquire(h, LeaseFor::kDigest));
  EXPECT_EQ(p->Stats().leases, 1u);
  b.Release();
  b.Release();
  EXPECT_EQ(p->Stats().leases, 0u);
  EXPECT_EQ(p->Stats().leased, 0u);
}

TEST(Pool, ASetIsAllOrNothingAndKeepsOrder) {
  TestPool<BlockKind> p(4);
  const std::vector<BlockHandle> handles = {p.Live(0), p.Sealed(1), p.Live(2)};
  BlockLeaseSet set = Must(p->AcquireAll(handles, LeaseFor::kCompute));
  ASSERT_EQ(set.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(HasPattern(set.bytes(i), i));
    EXPECT_EQ(set.pointers()[i], set.bytes(i).data());
    EXPECT_EQ(set.pointers()[i], p.arena->data() + set.arena_offset(i));
  }
  set.Release();
  EXPECT_TRUE(p->Free(handles[1]).ok());
  EXPECT_FALSE(p->AcquireAll(handles, LeaseFor::kCompute).ok());
  EXPECT_EQ(p->Stats().leases, 0u);
  EXPECT_EQ(Must(p->AcquireAll({}, LeaseFor::kCompute)).size(), 0u);
}

}  // namespace
}  // namespace baton
