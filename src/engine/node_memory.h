// The memory of one worker process: one arena with the state-slot pool and a KV block pool per
// attention group, sized at start and never grown.
// Thread rule: Create on one thread; the pools are thread-safe.
#ifndef BATON_ENGINE_NODE_MEMORY_H_
#define BATON_ENGINE_NODE_MEMORY_H_

#include <memory>
#include <vector>

#include "base/status.h"
#include "cache/checkpoint_store.h"
#include "identity/layout.h"
#include "memory/arena.h"
#include "memory/device.h"
#include "memory/pool.h"

namespace baton::engine {

struct NodeMemoryOptions {
  uint32_t slots = 64;     // state slots, live and checkpoints together
  uint32_t blocks = 4096;  // KV blocks per group
  bool shareable = false;  // memfd, for the shm connector
  NodeId node;
  Epoch epoch;
  PoolChecksOff checks_off;  // tests only
};

class NodeMemory {
 public:
  // kResourceExhausted with the bytes asked for if the mapping fails.
  static StatusOr<std::unique_ptr<NodeMemory>> Create(const Layout& layout,
                                                      const NodeMemoryOptions& options);

  PoolSet pools() const;
  Arena& arena() { return *arena_; }
  SlotPool* slots() { return slots_.get(); }
  BlockPool* blocks(size_t group) { return blocks_[group].get(); }
  size_t groups() const { return blocks_.size(); }
  uint32_t blocks_per_group() const { return blocks_per_group_; }
  const HostDevice& device() const { return device_; }
  // Bytes of all pools.
  uint64_t capacity_bytes() const { return arena_->size(); }

 private:
  NodeMemory() = default;
  HostDevice device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SlotPool> slots_;                 // null: the layout has no state
  std::vector<std::unique_ptr<BlockPool>> blocks_;  // one per group
  uint32_t blocks_per_group_ = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_NODE_MEMORY_H_
