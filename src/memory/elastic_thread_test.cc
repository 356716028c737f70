// Slots and blocks of one budget under many threads, with compaction running all the while and
// transfers that keep parts of memory from moving: meant for TSan, and for I3 and I8 under real
// interleavings. Each worker checks that its own bytes never change. The run lasts until memory
// really moved (with a bound far beyond what that takes), so that a machine on which the threads
// hardly overlap proves as much as one on which they do.
#include <atomic>
#include <thread>
#include <vector>

#include "memory/elastic_test_util.h"

namespace baton {
namespace {

// One unit after another: started locally or landed like a transfer, then checked and freed.
// At least 600 rounds, then on until `enough`.
template <class Kind>
void Worker(UnitPool<Kind>* pool, uint64_t id, const std::atomic<bool>* enough) {
  SplitMix64 rng(id);
  std::vector<std::pair<UnitHandle<Kind>, uint64_t>> mine;
  for (uint64_t round = 0; round < 600 || !*enough; ++round) {
    const uint64_t tag = (id << 32) + round + 1;
    auto h = pool->Reserve({.owner = OwnerId(id)});
    if (h.ok()) {
      if (rng.Below(3) == 0) {
        ASSERT_TRUE(pool->Land(*h, Attempt(1)).ok());
        UnitLease<Kind> lease = Must(pool->Acquire(*h, LeaseFor::kLand));
        WritePattern(lease.bytes(), tag);
        std::this_thread::yield();
        ASSERT_TRUE(HasPattern(lease.bytes(), tag));
        lease.Release();
        ASSERT_TRUE(pool->Landed(*h).ok());
        ASSERT_TRUE(pool->Verified(*h).ok());
        ASSERT_TRUE(pool->Seal(*h).ok());
      } else {
        ASSERT_TRUE(pool->Activate(*h).ok());
        const UnitLease<Kind> lease = Must(pool->Acquire(*h, LeaseFor::kCompute));
        ASSERT_TRUE(AllBytes(lease.bytes(), std::byte{0}));
        WritePattern(lease.bytes(), tag);
      }
      mine.emplace_back(*h, tag);
    } else {
      ASSERT_EQ(ReasonOf(h.status()), Reason::kNoCapacity) << h.status();
    }
    while (!mine.empty() && (!h.ok() || mine.size() > 6)) {
      std::swap(mine[rng.Below(mine.size())], mine.back());
      const auto [unit, holds] = mine.back();
      mine.pop_back();
      const UnitLease<Kind> lease = Must(pool->Acquire(unit, LeaseFor::kDigest));
      ASSERT_TRUE(HasPattern(lease.bytes(), holds));
      ASSERT_TRUE(pool->Free(unit).ok());  // drains until the lease ends
      h = unit;
    }
  }
  for (const auto& [unit, holds] : mine) {
    ASSERT_TRUE(HasPattern(Must(pool->Acquire(unit, LeaseFor::kDigest)).bytes(), holds));
    ASSERT_TRUE(pool->Free(unit).ok());
  }
}

TEST(ElasticThreadsI3I8, WorkersOnBothSidesAndCompactionDoNotDisturbEachOther) {
  ElasticSpec spec;
  spec.bytes = 10 * 4096;
  spec.slot_bytes = 2048;
  spec.block_bytes = {640, 300};
  TestElastic t(spec);
  std::atomic<bool> enough = false;
  std::atomic<bool> stop = false;
  std::vector<std::thread> workers;
  for (uint64_t id = 1; id <= 2; ++id)
    workers.emplace_back([&, id] { Worker(t.memory->slots(), id, &enough); });
  for (size_t g = 0; g < 2; ++g)
    workers.emplace_back([&, g] { Worker(t.memory->blocks(g), 3 + g, &enough); });
  std::thread compactor([&] {
    for (uint64_t round = 0; !stop; ++round) {
      const auto moved = t.memory->Compact(3000);
      EXPECT_TRUE(moved.ok()) << moved.status();
      const ElasticStats stats = t.memory->Stats();
      if ((stats.bytes_moved > 0 && stats.border_moves > 0) || round > 3'000'000) enough = true;
      std::this_thread::yield();
    }
  });
  for (std::thread& w : workers) w.join();
  stop = true;
  compactor.join();
  const ElasticStats stats = t.memory->Stats();
  EXPECT_EQ(stats.bytes_used, 0u);
  EXPECT_GT(stats.border_moves, 0u);
  EXPECT_GT(stats.bytes_moved, 0u);
  t.Check();
}

}  // namespace
}  // namespace baton
