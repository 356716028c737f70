// Shared by the tests of elastic memory: a small budget over its own arena, and what an obvious
// model says must fit.
#ifndef BATON_MEMORY_ELASTIC_TEST_UTIL_H_
#define BATON_MEMORY_ELASTIC_TEST_UTIL_H_

#include <memory>
#include <vector>

#include "memory/elastic.h"
#include "memory/pool_test_util.h"

namespace baton {

struct ElasticSpec {
  uint64_t slot_bytes = 4096;
  uint64_t slot_align = 64;
  std::vector<uint64_t> block_bytes = {640};
  uint64_t bytes = 16 * 4096;
  bool guards = true;
  uint32_t quarantine_max = 1000;
  uint64_t seed = 1;
};

struct TestElastic {
  explicit TestElastic(const ElasticSpec& s, const Device* other = nullptr) : spec(s) {
    ElasticOptions options;
    arena = Must(Arena::Create(s.bytes, {}));
    options.arena = arena.get();
    options.bytes = s.bytes;
    PoolOptions pool;
    pool.device = other != nullptr ? other : &device;
    pool.poison = true;
    pool.guards = s.guards;
    pool.quarantine_max = s.quarantine_max;
    pool.permute_seed = s.seed;
    pool.pool_id = 1;
    pool.unit_bytes = s.slot_bytes;
    pool.align = s.slot_align;
    options.slots = pool;
    slot_pitch = UnitPitch(pool);
    for (const uint64_t bytes : s.block_bytes) {
      ++pool.pool_id;
      pool.unit_bytes = bytes;
      pool.align = 64;
      options.blocks.push_back(pool);
      row_pitch += UnitPitch(pool);
    }
    budget = (s.bytes + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
    memory = Must(ElasticMemory::Create(options));
  }

  // What packing everything to the two ends would leave room for.
  bool SlotFits() const {
    const uint64_t slots = (memory->slots()->Stats().used + uint64_t{1}) * slot_pitch;
    uint64_t rows = 0;
    for (size_t g = 0; g < memory->groups(); ++g)
      rows = std::max<uint64_t>(rows, memory->blocks(g)->Stats().used);
    return slots + rows * row_pitch <= budget;
  }
  bool BlockFits(size_t group) const {
    const uint64_t rows = memory->blocks(group)->Stats().used + uint64_t{1};
    return memory->slots()->Stats().used * slot_pitch + rows * row_pitch <= budget;
  }
  void Check() const {
    const Status status = memory->CheckInvariants();
    ASSERT_TRUE(status.ok()) << status;
  }

  template <class Kind>
  UnitHandle<Kind> Live(UnitPool<Kind>* pool, uint64_t tag) {
    const auto h = Must(pool->Reserve({}));
    EXPECT_TRUE(pool->Activate(h).ok());
    WritePattern(Must(pool->Acquire(h, LeaseFor::kCompute)).bytes(), tag);
    return h;
  }
  SlotHandle Slot(uint64_t tag) { return Live(memory->slots(), tag); }
  BlockHandle Block(uint64_t tag) { return Live(memory->blocks(0), tag); }
  template <class Kind>
  static bool Holds(UnitPool<Kind>* pool, UnitHandle<Kind> h, uint64_t tag) {
    return HasPattern(Must(pool->Acquire(h, LeaseFor::kDigest)).bytes(), tag);
  }
  template <class Kind>
  static uint64_t OffsetOf(UnitPool<Kind>* pool, UnitHandle<Kind> h) {
    return Must(pool->Acquire(h, LeaseFor::kDigest)).arena_offset();
  }

  ElasticSpec spec;
  HostDevice device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ElasticMemory> memory;
  uint64_t slot_pitch = 0;
  uint64_t row_pitch = 0;
  uint64_t budget = 0;
};

}  // namespace baton

#endif  // BATON_MEMORY_ELASTIC_TEST_UTIL_H_
