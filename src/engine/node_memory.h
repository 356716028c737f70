// The memory of one worker process: one arena with the state-slot pool and a KV block pool per
// attention group. Either one byte budget that both share (memory/elastic.h), or a fixed number of
// each. Sized at start and never grown.
// Thread rule: Create on one thread; the rest is thread-safe.
#ifndef BATON_ENGINE_NODE_MEMORY_H_
#define BATON_ENGINE_NODE_MEMORY_H_

#include <memory>
#include <vector>

#include "base/status.h"
#include "cache/checkpoint_store.h"
#include "identity/layout.h"
#include "memory/arena.h"
#include "memory/device.h"
#include "memory/elastic.h"
#include "memory/pool.h"

namespace baton::engine {

struct NodeMemoryOptions {
  // Bytes that slots and blocks share. 0: fixed shares, of the numbers below.
  uint64_t budget_bytes = 0;
  // Room behind each slot for what a narrow state keeps between grid boundaries
  // (Model::slot_tail_bytes): moved and copied with the slot, no part of a bundle.
  uint64_t slot_tail_bytes = 0;
  uint32_t slots = 64;     // state slots, live and checkpoints together
  uint32_t blocks = 4096;  // KV blocks per group
  bool shareable = false;  // memfd, for the shm connector
  NodeId node;
  Epoch epoch;
  PoolChecksOff checks_off;  // tests only
};

// Bytes that `slots` and `blocks` of them would take: a budget as large as these fixed shares.
uint64_t NodeMemoryBytes(const Layout& layout,
                         uint64_t slots,
                         uint64_t blocks,
                         uint64_t slot_tail_bytes = 0);

class NodeMemory {
 public:
  // kResourceExhausted with the bytes asked for if the mapping fails; kInvalidArgument for a
  // budget that holds not even one sequence's slot and block.
  static StatusOr<std::unique_ptr<NodeMemory>> Create(const Layout& layout,
                                                      const NodeMemoryOptions& options);

  PoolSet pools() const;
  Arena& arena() { return *arena_; }
  SlotPool* slots() { return slots_; }
  BlockPool* blocks(size_t group) { return blocks_[group]; }
  size_t groups() const { return blocks_.size(); }
  // The most there can be: what bounds a sequence's length.
  uint32_t blocks_per_group() const { return blocks_per_group_; }
  uint32_t slots_max() const { return slots_max_; }
  const HostDevice& device() const { return device_; }
  // Bytes of all pools.
  uint64_t capacity_bytes() const { return arena_->size(); }

  // Null with fixed shares.
  ElasticMemory* elastic() { return elastic_.get(); }
  // Packs memory for at most about `bytes_max` (ElasticMemory::Compact). Nothing to do with fixed
  // shares, where no allocation can be refused for fragmentation.
  StatusOr<CompactResult> Compact(uint64_t bytes_max);
  // Bytes in use and, since start, moved and refused; with fixed shares too.
  ElasticStats Stats() const;

 private:
  NodeMemory() = default;
  Status CreateFixed(const Layout& layout, const NodeMemoryOptions& options);
  Status CreateElastic(const Layout& layout, const NodeMemoryOptions& options);

  HostDevice device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ElasticMemory> elastic_;
  std::unique_ptr<SlotPool> own_slots_;                 // these two: with fixed shares
  std::vector<std::unique_ptr<BlockPool>> own_blocks_;  // one per group
  SlotPool* slots_ = nullptr;                           // null: the layout has no state
  std::vector<BlockPool*> blocks_;
  uint32_t blocks_per_group_ = 0;
  uint32_t slots_max_ = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_NODE_MEMORY_H_
