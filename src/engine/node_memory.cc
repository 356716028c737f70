#include "engine/node_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

// Every decode step walks all of every state: with 4 KiB pages that is a page walk each half a row
// of a large one. Small memories would only grow by it.
bool WorthHugePages(uint64_t bytes) { return bytes >= uint64_t{64} << 20; }

// The parts inside a slot and the tail behind it; the gaps between them stay zero and are not
// digested.
std::vector<Extent> SlotExtents(const Layout& layout, uint64_t tail) {
  std::vector<Extent> extents;
  for (const StatePart& p : layout.parts()) extents.push_back({p.offset, p.bytes});
  if (tail > 0) extents.push_back({layout.slot_bytes(), tail});
  return extents;
}

PoolOptions SlotOptions(const Layout& layout, uint64_t tail) {
  PoolOptions pool;
  pool.unit_bytes = layout.slot_bytes() + tail;
  pool.align = Layout::kSlotAlign;
  pool.pool_id = 1;
  pool.extents = SlotExtents(layout, tail);
  return pool;
}

PoolOptions BlockOptions(const Layout& layout, size_t group) {
  PoolOptions pool;
  pool.unit_bytes = layout.groups()[group].block_bytes;
  pool.align = 64;
  pool.pool_id = static_cast<uint32_t>(2 + group);
  return pool;
}

template <class Pool>
void AddStats(const Pool& pool, ElasticStats* stats) {
  const PoolStats s = pool.Stats();
  stats->bytes += s.units * s.unit_pitch;
  stats->bytes_used += s.used * s.unit_pitch;
  stats->bytes_moved += s.moves * s.unit_bytes;
  stats->refusals += s.refusals;
}

// A budget for a layout with one kind of unit only: that kind has all of it.
StatusOr<uint32_t> UnitsIn(uint64_t bytes, uint64_t unit) {
  const uint64_t units = unit == 0 ? 0 : bytes / unit;
  if (units == 0 || units > UINT32_MAX)
    return absl::InvalidArgumentError(absl::StrCat("a memory budget of ", bytes, " bytes holds ",
                                                   units, " units of ", unit,
                                                   " bytes; change the budget"));
  return static_cast<uint32_t>(units);
}

}  // namespace

uint64_t NodeMemoryBytes(const Layout& layout,
                         uint64_t slots,
                         uint64_t blocks,
                         uint64_t slot_tail_bytes) {
  uint64_t bytes = 0;
  if (layout.has_state()) bytes += UnitPitch(SlotOptions(layout, slot_tail_bytes)) * slots;
  for (size_t g = 0; g < layout.groups().size(); ++g)
    bytes += UnitPitch(BlockOptions(layout, g)) * blocks;
  return (bytes + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
}

StatusOr<std::unique_ptr<NodeMemory>> NodeMemory::Create(const Layout& layout,
                                                         const NodeMemoryOptions& options) {
  auto memory = std::unique_ptr<NodeMemory>(new NodeMemory);
  if (options.budget_bytes == 0) {
    BATON_RETURN_IF_ERROR(memory->CreateFixed(layout, options));
  } else if (layout.has_state() && !layout.groups().empty()) {
    BATON_RETURN_IF_ERROR(memory->CreateElastic(layout, options));
  } else {
    NodeMemoryOptions fixed = options;
    fixed.budget_bytes = 0;
    const uint64_t unit = NodeMemoryBytes(layout, 1, 1, options.slot_tail_bytes);
    if (unit > 0) {  // a layout with neither state nor KV needs no memory
      BATON_ASSIGN_OR_RETURN(const uint32_t units, UnitsIn(options.budget_bytes, unit));
      fixed.slots = fixed.blocks = units;
    }
    BATON_RETURN_IF_ERROR(memory->CreateFixed(layout, fixed));
  }
  return memory;
}

Status NodeMemory::CreateFixed(const Layout& layout, const NodeMemoryOptions& options) {
  blocks_per_group_ = options.blocks;
  slots_max_ = layout.has_state() ? options.slots : 0;
  std::vector<PoolOptions> pools;
  if (layout.has_state()) pools.push_back(SlotOptions(layout, options.slot_tail_bytes));
  for (size_t g = 0; g < layout.groups().size(); ++g) pools.push_back(BlockOptions(layout, g));
  uint64_t bytes = 0;
  for (PoolOptions& pool : pools) {
    pool.units = pool.pool_id == 1 ? options.slots : options.blocks;
    bytes += PoolBytes(pool);
  }
  ArenaOptions arena;
  arena.shareable = options.shareable;
  arena.huge_pages = WorthHugePages(bytes);
  BATON_ASSIGN_OR_RETURN(arena_, Arena::Create(std::max<uint64_t>(bytes, Arena::kAlign), arena));
  for (PoolOptions& pool : pools) {
    pool.arena = arena_.get();
    pool.device = &device_;
    pool.node = options.node;
    pool.epoch = options.epoch;
    pool.checks_off = options.checks_off;
    if (pool.pool_id == 1) {
      BATON_ASSIGN_OR_RETURN(own_slots_, SlotPool::Create(pool));
      slots_ = own_slots_.get();
    } else {
      BATON_ASSIGN_OR_RETURN(auto blocks, BlockPool::Create(pool));
      blocks_.push_back(blocks.get());
      own_blocks_.push_back(std::move(blocks));
    }
  }
  return absl::OkStatus();
}

Status NodeMemory::CreateElastic(const Layout& layout, const NodeMemoryOptions& options) {
  ElasticOptions elastic;
  elastic.bytes = options.budget_bytes;
  elastic.slots = SlotOptions(layout, options.slot_tail_bytes);
  for (size_t g = 0; g < layout.groups().size(); ++g)
    elastic.blocks.push_back(BlockOptions(layout, g));
  const auto complete = [&](PoolOptions& pool) {
    pool.device = &device_;
    pool.node = options.node;
    pool.epoch = options.epoch;
    pool.checks_off = options.checks_off;
  };
  complete(elastic.slots);
  for (PoolOptions& pool : elastic.blocks) complete(pool);
  if (elastic.bytes < ElasticBytesMin(elastic))
    return absl::InvalidArgumentError(absl::StrCat("a memory budget of ", elastic.bytes,
                                                   " bytes; one state slot and one KV block take ",
                                                   ElasticBytesMin(elastic), "; raise the budget"));
  ArenaOptions arena;
  arena.shareable = options.shareable;
  arena.huge_pages = WorthHugePages(elastic.bytes);
  BATON_ASSIGN_OR_RETURN(arena_, Arena::Create(elastic.bytes, arena));
  elastic.arena = arena_.get();
  BATON_ASSIGN_OR_RETURN(elastic_, ElasticMemory::Create(elastic));
  slots_ = elastic_->slots();
  for (size_t g = 0; g < elastic_->groups(); ++g) blocks_.push_back(elastic_->blocks(g));
  blocks_per_group_ = elastic_->blocks_max();
  slots_max_ = elastic_->slots_max();
  return absl::OkStatus();
}

PoolSet NodeMemory::pools() const {
  PoolSet set;
  set.slots = slots_;
  set.blocks = blocks_;
  return set;
}

StatusOr<CompactResult> NodeMemory::Compact(uint64_t bytes_max) {
  if (elastic_ == nullptr) return CompactResult();
  return elastic_->Compact(bytes_max);
}

ElasticStats NodeMemory::Stats() const {
  if (elastic_ != nullptr) return elastic_->Stats();
  ElasticStats stats;
  if (slots_ != nullptr) AddStats(*slots_, &stats);
  for (const BlockPool* blocks : blocks_) AddStats(*blocks, &stats);
  return stats;
}

}  // namespace baton::engine
