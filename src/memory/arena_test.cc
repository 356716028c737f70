#include "memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"
#include "memory/pool_test_util.h"

namespace baton {
namespace {

TEST(Arena, IsZeroAlignedAndRoundedUp) {
  auto arena = Must(Arena::Create(5000, {.huge_pages = true}));
  EXPECT_EQ(arena->size(), 8192u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 4096, 0u);
  EXPECT_TRUE(AllBytes(ByteSpan(arena->data(), arena->size()), std::byte{0}));
  EXPECT_EQ(arena->fd(), -1);
}

TEST(Arena, CarvesDisjointRangesUntilItIsFull) {
  auto arena = Must(Arena::Create(4 * 4096, {}));
  EXPECT_EQ(Must(arena->Carve(1)), 0u);
  EXPECT_EQ(Must(arena->Carve(4097)), 4096u);
  EXPECT_EQ(arena->Carve(4097).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Must(arena->Carve(4096)), 3u * 4096);
  EXPECT_FALSE(arena->Carve(1).ok());
  EXPECT_FALSE(arena->Carve(UINT64_MAX).ok());
}

TEST(Arena, AShareableOneIsSeenThroughItsFdAndCannotBeShrunk) {
  auto arena = Must(Arena::Create(8192, {.shareable = true}));
  ASSERT_GE(arena->fd(), 0);
  void* other = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  std::memcpy(arena->data() + 5000, "state", 5);
  EXPECT_EQ(0, std::memcmp(static_cast<char*>(other) + 5000, "state", 5));
  munmap(other, 8192);
  EXPECT_NE(ftruncate(arena->fd(), 4096), 0);
}

// The descriptor goes to peers.
TEST(Arena, AShareableOneCannotBeChangedThroughItsFd) {
  auto arena = Must(Arena::Create(8192, {.shareable = true}));
  std::memcpy(arena->data() + 5000, "state", 5);
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0), MAP_FAILED);
  void* other = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_NE(mprotect(other, 8192, PROT_READ | PROT_WRITE), 0);
  munmap(other, 8192);
  EXPECT_LT(pwrite(arena->fd(), "other", 5, 5000), 0);
  EXPECT_NE(fallocate(arena->fd(), FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 4096, 4096), 0);
  EXPECT_EQ(0, std::memcmp(arena->data() + 5000, "state", 5));
  std::memcpy(arena->data() + 5000, "after", 5);  // this process still writes
}

TEST(Arena, RefusesAbsurdSizes) {
  EXPECT_FALSE(Arena::Create(0, {}).ok());
  EXPECT_FALSE(Arena::Create(UINT64_MAX, {}).ok());
  EXPECT_FALSE(Arena::Create(UINT64_MAX - 4095, {.shareable = true}).ok());
}

// Slots over 512 MiB in a pool over 4 GiB: sparse, so the test touches a few pages only.
TEST(Pool, OffsetsBeyondFourGiBAre64Bit) {
  constexpr uint64_t kUnit = uint64_t{640} << 20;
  auto arena = Must(Arena::Create(10 * kUnit, {}));
  HostDevice device;
  PoolOptions options;
  options.arena = arena.get();
  options.device = &device;
  options.unit_bytes = kUnit;
  options.units = 10;
  options.poison = false;
  options.guards = false;
  auto pool = Must(SlotPool::Create(options));
  std::vector<SlotHandle> handles;
  bool beyond = false;
  for (uint8_t i = 0; i < 10; ++i) {
    handles.push_back(Must(pool->Reserve({.fill = FillMode::kGapsOnly})));
    ASSERT_TRUE(pool->Land(handles[i], Attempt(1)).ok());
    const StateLease lease = Must(pool->Acquire(handles[i], LeaseFor::kLand));
    ASSERT_EQ(lease.bytes().size(), kUnit);
    lease.bytes().front() = std::byte{i};
    lease.bytes().back() = static_cast<std::byte>(100 + i);
    beyond |= lease.arena_offset() > UINT32_MAX;
  }
  EXPECT_TRUE(beyond);
  for (uint8_t i = 0; i < 10; ++i) {
    const StateLease lease = Must(pool->Acquire(handles[i], LeaseFor::kLand));
    EXPECT_EQ(lease.bytes().front(), std::byte{i});
    EXPECT_EQ(lease.bytes().back(), static_cast<std::byte>(100 + i));
    EXPECT_EQ(lease.bytes().data(), arena->data() + lease.arena_offset());
  }
}

}  // namespace
}  // namespace baton
