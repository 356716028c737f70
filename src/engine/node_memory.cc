#include "engine/node_memory.h"

namespace baton::engine {
namespace {

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// The parts inside a slot; the gaps between them stay zero and are not digested.
std::vector<Extent> SlotExtents(const Layout& layout) {
  std::vector<Extent> extents;
  for (const StatePart& p : layout.parts()) extents.push_back({p.offset, p.bytes});
  return extents;
}

}  // namespace

StatusOr<std::unique_ptr<NodeMemory>> NodeMemory::Create(const Layout& layout,
                                                         const NodeMemoryOptions& options) {
  auto memory = std::unique_ptr<NodeMemory>(new NodeMemory);
  memory->blocks_per_group_ = options.blocks;
  uint64_t bytes = layout.has_state() ? layout.slot_bytes() * options.slots : 0;
  for (const KvGroup& g : layout.groups())
    bytes += RoundUp(RoundUp(g.block_bytes, 64) * options.blocks, Arena::kAlign);
  ArenaOptions arena_options;
  arena_options.shareable = options.shareable;
  BATON_ASSIGN_OR_RETURN(memory->arena_,
                         Arena::Create(std::max<uint64_t>(bytes, Arena::kAlign), arena_options));

  PoolOptions pool;
  pool.arena = memory->arena_.get();
  pool.device = &memory->device_;
  pool.node = options.node;
  pool.epoch = options.epoch;
  pool.checks_off = options.checks_off;
  if (layout.has_state()) {
    pool.unit_bytes = layout.slot_bytes();
    pool.align = Layout::kSlotAlign;
    pool.units = options.slots;
    pool.pool_id = 1;
    pool.extents = SlotExtents(layout);
    BATON_ASSIGN_OR_RETURN(memory->slots_, SlotPool::Create(pool));
  }
  pool.align = 64;
  pool.extents.clear();
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    pool.unit_bytes = layout.groups()[g].block_bytes;
    pool.units = options.blocks;
    pool.pool_id = static_cast<uint32_t>(2 + g);
    BATON_ASSIGN_OR_RETURN(auto blocks, BlockPool::Create(pool));
    memory->blocks_.push_back(std::move(blocks));
  }
  return memory;
}

PoolSet NodeMemory::pools() const {
  PoolSet set;
  set.slots = slots_.get();
  for (const auto& b : blocks_) set.blocks.push_back(b.get());
  return set;
}

}  // namespace baton::engine
