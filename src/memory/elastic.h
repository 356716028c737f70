// Slots and blocks over one byte budget: a SlotPool and a BlockPool per KV group that share one
// range of an arena with a movable border (border.h says how it moves and what is promised). The
// pools keep their whole contract (pool.h); only their sizes are not fixed: Reserve gives
// kNoCapacity when the budget, not a share of it, is used up.
//
// Work is done in Reserve, on demand, and in Compact, whenever the owner has time.
// Thread rule: thread-safe.
#ifndef BATON_MEMORY_ELASTIC_H_
#define BATON_MEMORY_ELASTIC_H_

#include <memory>
#include <vector>

#include "base/status.h"
#include "memory/border.h"
#include "memory/pool.h"

namespace baton {

struct ElasticOptions {
  Arena* arena = nullptr;  // outlives the pools; the range is carved from it
  uint64_t bytes = 0;      // the budget, rounded up to Arena::kAlign
  // `arena` and `units` of these are ignored.
  PoolOptions slots;
  std::vector<PoolOptions> blocks;  // at least one
};

// The smallest budget Create accepts: one slot, and one block of each group.
uint64_t ElasticBytesMin(const ElasticOptions& options);

struct ElasticStats {
  uint64_t bytes = 0;         // the budget
  uint64_t bytes_used = 0;    // of slots and blocks that are not FREE, guard bands included
  uint64_t bytes_moved = 0;   // since start, by the border, by Compact and by Move
  uint64_t border_moves = 0;  // slots' worth of bytes that changed sides
  uint64_t refusals = 0;      // Reserve calls that got kNoCapacity
  uint64_t refusals_fixed =
      0;  // of those, the ones that units which may not move were the cause of
};

struct CompactResult {
  uint64_t bytes_moved = 0;
  bool more = false;  // there is more to gain
};

class ElasticMemory {
 public:
  // kInvalidArgument if an option is wrong or the budget below ElasticBytesMin.
  static StatusOr<std::unique_ptr<ElasticMemory>> Create(const ElasticOptions& options);

  SlotPool* slots() { return slots_.get(); }
  BlockPool* blocks(size_t group) { return blocks_[group].get(); }
  size_t groups() const { return blocks_.size(); }
  // The most blocks of each group, and slots, the budget could hold beside one of the other.
  uint32_t blocks_max() const;
  uint32_t slots_max() const;

  // Packs what may move towards both ends, so that the next request for room costs nothing; stops
  // after `bytes_max`, though a single unit is always moved whole. Errors are those of Move.
  StatusOr<CompactResult> Compact(uint64_t bytes_max);

  ElasticStats Stats() const;
  // What lies where, by tile from the top and by row from the bottom; of a group.
  std::vector<memory_internal::PlaceUse> SurveySlots() const;
  std::vector<memory_internal::PlaceUse> SurveyBlocks(size_t group) const;
  // For tests: of the border and of every pool.
  Status CheckInvariants() const;

 private:
  ElasticMemory() = default;
  memory_internal::BorderGeometry geometry_;
  std::unique_ptr<SlotPool> slots_;
  std::vector<std::unique_ptr<BlockPool>> blocks_;
  std::unique_ptr<memory_internal::Border> border_;
};

}  // namespace baton

#endif  // BATON_MEMORY_ELASTIC_H_
