// A writer that runs past its unit is caught at the next seal, copy, move or free, and named.
#include "memory/guard.h"

#include <cstring>

#include "gmock/gmock.h"
#include "memory/pool_test_util.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PoolOptions Guarded() {
  PoolOptions options;
  options.guards = true;
  return options;
}

// One byte behind (or `before` bytes before) the unit.
void Overrun(TestPool<SlotKind>& p, SlotHandle h, ptrdiff_t at) {
  const StateLease lease = Must(p->Acquire(h, LeaseFor::kCompute));
  std::byte* b = lease.bytes().data() + at;
  *b ^= std::byte{0x40};
}

TEST(Guard, IsBuiltIntoDebugBuilds) {
#ifdef NDEBUG
  EXPECT_FALSE(PoolOptions().guards);
#else
  EXPECT_TRUE(PoolOptions().guards);
#endif
}

TEST(Guard, AnOverrunIsCaughtAtSealCopyMoveAndFreeAndNamed) {
  TestPool<SlotKind> p(8, Guarded());
  const auto bytes = static_cast<ptrdiff_t>(p->unit_bytes());
  for (const ptrdiff_t at : {bytes, bytes + 63, ptrdiff_t{-1}, ptrdiff_t{-64}}) {
    const SlotHandle h = p.Live(1);
    const SlotHandle copy = Must(p->Reserve({}));
    EXPECT_TRUE(p->CheckInvariants().ok());
    Overrun(p, h, at);
    const auto named = AllOf(HasSubstr(h.ToString()), HasSubstr("guard"),
                             HasSubstr(at < 0 ? "before" : "after"), HasSubstr("overwritten"));
    for (const Status& s : {p->Seal(h), p->CopyInto(h, copy), p->Move(h), p->CheckInvariants()}) {
      EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(s.message()), named);
    }
    EXPECT_EQ(Must(p->StateOf(h)), UnitState::kLive);
    EXPECT_THAT(std::string(p->Free(h).message()), named);
    EXPECT_TRUE(IsStale(p->StateOf(h).status()));  // freed all the same: nothing leaks
    EXPECT_TRUE(p->Free(copy).ok());
    EXPECT_TRUE(p->CheckInvariants().ok());
  }
  EXPECT_EQ(p->Stats().used, 0u);
}

TEST(Guard, OfASharedBlockIsLookedAtWhenItsLastHolderLeaves) {
  TestPool<BlockKind> p(2, Guarded());
  const BlockHandle h = p.Sealed(1);
  ASSERT_TRUE(p->AddReference(h).ok());
  {
    const BlockLease lease = Must(p->Acquire(h, LeaseFor::kDigest));
    lease.bytes().data()[lease.bytes().size()] = std::byte{0};
  }
  EXPECT_TRUE(p->DropReference(h).ok());
  EXPECT_THAT(std::string(p->DropReference(h).message()), HasSubstr(h.ToString()));
}

TEST(Guard, MovedUnitsGetTheGuardsOfTheirNewPlace) {
  TestPool<SlotKind> p(4, Guarded());
  const SlotHandle h = p.Live(1);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(p->Move(h).ok());
    EXPECT_TRUE(p->CheckInvariants().ok());
  }
  EXPECT_TRUE(p->Seal(h).ok());
  EXPECT_TRUE(p.Holds(h, 1));
}

TEST(Guard, NamesTheByteExpectedAndFound) {
  std::vector<std::byte> band(64);
  memory_internal::PaintGuard(band, 4096);
  EXPECT_TRUE(memory_internal::CheckGuard(band, 4096, "slot 1/2#3", "after").ok());
  EXPECT_FALSE(memory_internal::CheckGuard(band, 8192, "slot 1/2#3", "after").ok());
  band[13] = ~band[13];
  const Status s = memory_internal::CheckGuard(band, 4096, "slot 1/2#3", "after");
  EXPECT_THAT(std::string(s.message()),
              AllOf(HasSubstr("slot 1/2#3"), HasSubstr("byte 13 of 64"), HasSubstr("offset 4109"),
                    HasSubstr("expected 0x"), HasSubstr("found 0x")));
}

}  // namespace
}  // namespace baton
