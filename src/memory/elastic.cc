#include "memory/elastic.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using memory_internal::BorderGeometry;
using memory_internal::Placement;
using memory_internal::PoolCore;

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

uint64_t RowPitch(const ElasticOptions& options) {
  uint64_t pitch = 0;
  uint64_t align = 1;
  for (const PoolOptions& b : options.blocks) {
    pitch = RoundUp(pitch, b.align) + UnitPitch(b);
    align = std::max(align, b.align);
  }
  return RoundUp(pitch, align);
}

Status CheckSizes(const ElasticOptions& options) {
  constexpr uint64_t kMaxUnit = uint64_t{1} << 40;
  if (options.arena == nullptr || options.blocks.empty())
    return absl::InvalidArgumentError("elastic memory: an arena and a block pool are required");
  if (options.slots.unit_bytes == 0 || options.slots.unit_bytes > kMaxUnit ||
      options.slots.align == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("elastic memory: slot of ", options.slots.unit_bytes, " bytes"));
  for (const PoolOptions& o : options.blocks)
    if (o.unit_bytes == 0 || o.unit_bytes > kMaxUnit || o.align == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("elastic memory: block of ", o.unit_bytes, " bytes"));
  const uint64_t min = ElasticBytesMin(options);
  if (options.bytes < min || options.bytes > (uint64_t{1} << 46))
    return absl::InvalidArgumentError(
        absl::StrCat("elastic memory: a budget of ", options.bytes, " bytes; one state slot and ",
                     "one KV block of each group take ", min, "; raise the budget"));
  if (options.bytes / RowPitch(options) > UINT32_MAX ||
      options.bytes / UnitPitch(options.slots) > UINT32_MAX)
    return absl::InvalidArgumentError("elastic memory: more than 2^32 units");
  return absl::OkStatus();
}

}  // namespace

uint64_t ElasticBytesMin(const ElasticOptions& options) {
  return RoundUp(UnitPitch(options.slots) + RowPitch(options), Arena::kAlign);
}

StatusOr<std::unique_ptr<ElasticMemory>> ElasticMemory::Create(const ElasticOptions& options) {
  BATON_RETURN_IF_ERROR(CheckSizes(options));
  auto memory = std::unique_ptr<ElasticMemory>(new ElasticMemory);
  BorderGeometry& geometry = memory->geometry_;
  geometry.bytes = RoundUp(options.bytes, Arena::kAlign);
  geometry.tile_pitch = UnitPitch(options.slots);
  geometry.row_pitch = RowPitch(options);
  BATON_ASSIGN_OR_RETURN(const uint64_t base, options.arena->Carve(geometry.bytes));

  Placement placement;
  placement.base = base + geometry.bytes;
  placement.pitch = geometry.tile_pitch;
  placement.descending = true;
  placement.owned = false;
  PoolOptions pool = options.slots;
  pool.arena = options.arena;
  pool.units = geometry.tiles();
  BATON_ASSIGN_OR_RETURN(auto slots, PoolCore::CreateAt(pool, SlotKind::kName,
                                                        SlotKind::kComputeReadsSealed, placement));
  placement.pitch = geometry.row_pitch;
  placement.descending = false;
  placement.owned = true;
  std::vector<PoolCore*> cores;
  uint64_t in_row = 0;
  for (const PoolOptions& o : options.blocks) {
    in_row = RoundUp(in_row, o.align);
    placement.base = base + in_row;
    in_row += UnitPitch(o);
    pool = o;
    pool.arena = options.arena;
    pool.units = geometry.rows();
    BATON_ASSIGN_OR_RETURN(
        auto blocks,
        PoolCore::CreateAt(pool, BlockKind::kName, BlockKind::kComputeReadsSealed, placement));
    cores.push_back(blocks.get());
    memory->blocks_.push_back(std::unique_ptr<BlockPool>(new BlockPool(std::move(blocks))));
  }
  memory->border_ = std::make_unique<memory_internal::Border>(geometry, slots.get(), cores);
  memory->slots_.reset(new SlotPool(std::move(slots)));
  return memory;
}

uint32_t ElasticMemory::blocks_max() const {
  return static_cast<uint32_t>((geometry_.bytes - geometry_.tile_pitch) / geometry_.row_pitch);
}

uint32_t ElasticMemory::slots_max() const {
  return static_cast<uint32_t>((geometry_.bytes - geometry_.row_pitch) / geometry_.tile_pitch);
}

StatusOr<CompactResult> ElasticMemory::Compact(uint64_t bytes_max) {
  CompactResult result;
  const auto pack = [&](auto& pool) -> Status {
    for (;;) {
      if (result.bytes_moved >= bytes_max) {
        result.more = true;
        return absl::OkStatus();
      }
      BATON_ASSIGN_OR_RETURN(const bool moved, pool.CompactOne());
      if (!moved) return absl::OkStatus();
      result.bytes_moved += pool.unit_bytes();
    }
  };
  BATON_RETURN_IF_ERROR(pack(*slots_));
  for (const auto& blocks : blocks_) BATON_RETURN_IF_ERROR(pack(*blocks));
  while (!result.more) {
    const uint64_t before = Stats().bytes_moved;
    BATON_ASSIGN_OR_RETURN(const bool moved, border_->CompactOne());
    if (!moved) break;
    result.bytes_moved += Stats().bytes_moved - before;
    result.more = result.bytes_moved >= bytes_max;
  }
  return result;
}

ElasticStats ElasticMemory::Stats() const {
  ElasticStats stats;
  const memory_internal::BorderCounters counters = border_->counters();
  stats.bytes = geometry_.bytes;
  stats.border_moves = counters.moves;
  stats.refusals = counters.refusals;
  stats.refusals_fixed = counters.refusals_fixed;
  const auto add = [&](const auto& pool) {
    const PoolStats s = pool.Stats();
    stats.bytes_used += s.used * s.unit_pitch;
    stats.bytes_moved += s.moves * s.unit_bytes;
  };
  add(*slots_);
  for (const auto& blocks : blocks_) add(*blocks);
  return stats;
}

std::vector<memory_internal::PlaceUse> ElasticMemory::SurveySlots() const {
  return slots_->core_->Survey();
}

std::vector<memory_internal::PlaceUse> ElasticMemory::SurveyBlocks(size_t group) const {
  return blocks_[group]->core_->Survey();
}

Status ElasticMemory::CheckInvariants() const {
  BATON_RETURN_IF_ERROR(border_->CheckInvariants());
  BATON_RETURN_IF_ERROR(slots_->CheckInvariants());
  for (const auto& blocks : blocks_) BATON_RETURN_IF_ERROR(blocks->CheckInvariants());
  return absl::OkStatus();
}

}  // namespace baton
