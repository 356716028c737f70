// Misuse that the types rule out: each of these must not compile.
#include <type_traits>

#include "gtest/gtest.h"
#include "memory/pool.h"

namespace baton {
namespace {

// A slot is not a block.
static_assert(!std::is_convertible_v<SlotHandle, BlockHandle>);
static_assert(!std::is_constructible_v<BlockHandle, SlotHandle>);
static_assert(!std::is_convertible_v<StateLease, BlockLease>);
static_assert(!std::is_constructible_v<BlockLease, StateLease>);
// A handle is not a number, and a number is no handle.
static_assert(!std::is_convertible_v<SlotHandle, uint32_t>);
static_assert(!std::is_convertible_v<uint32_t, SlotHandle>);
static_assert(!std::is_convertible_v<uint64_t, OwnerId>);
static_assert(!std::is_convertible_v<OwnerId, Attempt>);
// A lease has one holder.
static_assert(!std::is_copy_constructible_v<StateLease> && !std::is_copy_assignable_v<StateLease>);
static_assert(std::is_nothrow_move_constructible_v<StateLease>);
static_assert(!std::is_copy_constructible_v<BlockLeaseSet>);
static_assert(std::is_nothrow_move_constructible_v<BlockLeaseSet>);
// Pools are not copied.
static_assert(!std::is_copy_constructible_v<SlotPool> && !std::is_move_constructible_v<SlotPool>);

template <class Pool>
concept Shares = requires(Pool p, typename Pool::Handle h) { p.AddReference(h); };
template <class Pool, class Handle>
concept Leases = requires(Pool p, Handle h) { p.Acquire(h, LeaseFor::kCompute); };

// I8: a state slot is never shared by reference.
static_assert(Shares<BlockPool> && !Shares<SlotPool>);
static_assert(Leases<SlotPool, SlotHandle> && !Leases<SlotPool, BlockHandle>);
static_assert(!Leases<BlockPool, SlotHandle> && !Leases<BlockPool, uint32_t>);

TEST(MisuseI8, IsRefusedByTheCompiler) {
  EXPECT_EQ((SlotHandle{2, 17, 4}).ToString(), "slot 2/17#4");
  EXPECT_EQ((BlockHandle{2, 17, 4}).ToString(), "block 2/17#4");
}

}  // namespace
}  // namespace baton
