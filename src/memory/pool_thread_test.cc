// Many threads on one pool, with compaction running all the while: meant for TSan, and for I3 and
// I8 under real interleavings. Each worker checks that its own bytes never change.
#include <atomic>
#include <thread>
#include <vector>

#include "memory/pool_test_util.h"

namespace baton {
namespace {

// One sequence after another: start, advance, checkpoint, fork, free.
void Worker(TestPool<SlotKind>& p, uint64_t id, std::atomic<uint64_t>* done) {
  SplitMix64 rng(id);
  for (int round = 0; round < 150; ++round) {
    auto reserved = p->Reserve({.owner = OwnerId(id)});
    if (!reserved.ok()) continue;
    const SlotHandle h = *reserved;
    ASSERT_TRUE(p->Activate(h).ok());
    uint64_t tag = 0;
    for (uint64_t step = 0; step < 4; ++step) {
      const StateLease lease = Must(p->Acquire(h, LeaseFor::kCompute));
      ASSERT_TRUE(step == 0 ? AllBytes(lease.bytes(), std::byte{0})
                            : HasPattern(lease.bytes(), tag));
      tag = (id << 32) + static_cast<uint64_t>(round) * 8 + step;
      WritePattern(lease.bytes(), tag);
    }
    auto copy = p->Reserve({.owner = OwnerId(id), .fill = FillMode::kGapsOnly});
    if (copy.ok()) {
      ASSERT_TRUE(p->CopyInto(h, *copy).ok());
      ASSERT_TRUE(p->Seal(*copy).ok());
      StateLease lease = Must(p->Acquire(*copy, LeaseFor::kSend));
      if (rng.Below(2) == 0) {
        ASSERT_TRUE(p->Free(*copy).ok());  // under the lease
      }
      ASSERT_TRUE(HasPattern(lease.bytes(), tag));
      lease.Release();
      if (p->StateOf(*copy).ok()) {
        ASSERT_TRUE(p->Free(*copy).ok());
      }
    }
    ASSERT_TRUE(p.Holds(h, tag));
    ASSERT_TRUE(p->Free(h).ok());
    done->fetch_add(1);
  }
}

TEST(PoolThreadsI3I8, WorkersAndCompactionDoNotDisturbEachOther) {
  TestPool<SlotKind> p(24);
  std::atomic<uint64_t> done = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> workers;
  for (uint64_t id = 1; id <= 4; ++id) workers.emplace_back([&, id] { Worker(p, id, &done); });
  std::thread compactor([&] {
    while (!stop) {
      const auto moved = p->CompactOne();
      ASSERT_TRUE(moved.ok()) << moved.status();
      if (!*moved) std::this_thread::yield();
    }
  });
  for (std::thread& w : workers) w.join();
  stop = true;
  compactor.join();
  EXPECT_GT(done, 0u);
  EXPECT_EQ(p->Stats().free, 24u);
  EXPECT_EQ(p->Stats().leases, 0u);
  EXPECT_TRUE(p->CheckInvariants().ok());
}

TEST(PoolThreads, SharedBlocksAreFreedExactlyOnceByTheLastHolder) {
  TestPool<BlockKind> p(4);
  for (int round = 0; round < 100; ++round) {
    const BlockHandle h = p.Sealed(static_cast<uint64_t>(round));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(p->AddReference(h).ok());
    std::vector<std::thread> holders;
    for (int i = 0; i < 4; ++i) {
      holders.emplace_back([&] {
        ASSERT_TRUE(p.Holds(h, static_cast<uint64_t>(round)));
        ASSERT_TRUE(p->DropReference(h).ok());
      });
    }
    for (std::thread& t : holders) t.join();
    ASSERT_EQ(p->Stats().free, 4u);
    ASSERT_EQ(ReasonOf(p->DropReference(h)), Reason::kStaleHandle);
  }
}

}  // namespace
}  // namespace baton
