#include "memory/border.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::memory_internal {
namespace {

// Errors that say "not this tile" rather than "something is broken".
bool InTheWay(const Status& s) {
  return s.code() == absl::StatusCode::kFailedPrecondition || ReasonOf(s) == Reason::kNoCapacity;
}

uint32_t Count(std::span<const PlaceUse> uses, PlaceUse use) {
  return static_cast<uint32_t>(std::count(uses.begin(), uses.end(), use));
}

// Whether nothing in a range is fixed and what is movable has somewhere else to go, `free` being
// the free places of the whole pool.
bool CanEmpty(std::span<const PlaceUse> range, uint32_t free) {
  return Count(range, PlaceUse::kFixed) == 0 &&
         Count(range, PlaceUse::kMovable) + Count(range, PlaceUse::kFree) <= free;
}

}  // namespace

PlaceRange BorderGeometry::RowsUnder(uint32_t tile) const {
  const uint64_t end = bytes - uint64_t{tile} * tile_pitch;
  const uint64_t begin = end - tile_pitch;
  const auto last = std::min<uint64_t>(rows(), (end + row_pitch - 1) / row_pitch);
  return {static_cast<uint32_t>(std::min(last, begin / row_pitch)), static_cast<uint32_t>(last)};
}

PlaceRange BorderGeometry::TilesOver(uint32_t row) const {
  // The same, measured from the top.
  const uint64_t end = bytes - uint64_t{row} * row_pitch;
  const uint64_t begin = end - row_pitch;
  const auto last = std::min<uint64_t>(tiles(), (end + tile_pitch - 1) / tile_pitch);
  return {static_cast<uint32_t>(std::min(last, begin / tile_pitch)), static_cast<uint32_t>(last)};
}

std::vector<uint32_t> TilesToTake(const BorderGeometry& geometry,
                                  std::span<const PlaceUse> slots,
                                  std::span<const std::vector<PlaceUse>> blocks) {
  std::vector<uint32_t> free;
  for (const auto& group : blocks) free.push_back(Count(group, PlaceUse::kFree));
  struct Choice {
    uint32_t tile;
    uint64_t moves;
  };
  std::vector<Choice> choices;
  bool border = true;
  for (uint32_t tile = 0; tile < slots.size(); ++tile) {
    if (slots[tile] != PlaceUse::kNotOwned) continue;
    const PlaceRange rows = geometry.RowsUnder(tile);
    uint64_t moves = 0;
    bool possible = true;
    for (size_t g = 0; g < blocks.size(); ++g) {
      const auto under = std::span(blocks[g]).subspan(rows.begin, rows.end - rows.begin);
      possible &= CanEmpty(under, free[g]);
      moves += Count(under, PlaceUse::kMovable);
    }
    // The tile at the border comes first whatever it costs: a hole elsewhere would lose bytes on
    // both its sides for as long as it lasts.
    if (possible) choices.push_back({tile, border ? 0 : moves + 1});
    border = false;
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.moves < b.moves; });
  std::vector<uint32_t> tiles;
  for (const Choice& c : choices) tiles.push_back(c.tile);
  return tiles;
}

std::vector<PlaceRange> TilesToGive(const BorderGeometry& geometry,
                                    std::span<const PlaceUse> slots,
                                    std::span<const PlaceUse> rows) {
  const uint32_t free = Count(slots, PlaceUse::kFree);
  struct Choice {
    PlaceRange tiles;
    uint64_t moves;
  };
  std::vector<Choice> choices;
  bool border = true;
  for (uint32_t row = 0; row < rows.size(); ++row) {
    if (rows[row] != PlaceUse::kNotOwned) continue;
    const PlaceRange tiles = geometry.TilesOver(row);
    if (!choices.empty() && choices.back().tiles == tiles) continue;  // as the row before
    const auto over = slots.subspan(tiles.begin, tiles.end - tiles.begin);
    const uint32_t movable = Count(over, PlaceUse::kMovable);
    if (CanEmpty(over, free)) choices.push_back({tiles, border ? 0 : uint64_t{movable} + 1});
    border = false;
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.moves < b.moves; });
  std::vector<PlaceRange> ranges;
  for (const Choice& c : choices) ranges.push_back(c.tiles);
  return ranges;
}

Border::Border(const BorderGeometry& geometry, PoolCore* slots, std::vector<PoolCore*> blocks)
    : geometry_(geometry), slots_(slots), blocks_(std::move(blocks)) {
  slots_->SetBorder(this);
  for (PoolCore* pool : blocks_) pool->SetBorder(this);
}

Status Border::MakeRoom(const PoolCore* pool) {
  MutexLock lock(&mu_);
  if (pool->HasFree()) return absl::OkStatus();  // whoever held the border made enough
  return pool == slots_ ? GrowSlots() : GrowBlocks(pool);
}

Status Border::TakeTile(uint32_t tile) {
  const PlaceRange rows = geometry_.RowsUnder(tile);
  for (PoolCore* pool : blocks_) {
    const Status vacated = pool->Vacate(rows);
    if (vacated.ok()) continue;
    AdoptRows(rows);
    return vacated;
  }
  slots_->Own(tile);
  ++counters_.moves;
  return absl::OkStatus();
}

StatusOr<uint32_t> Border::GiveTiles(PlaceRange tiles) {
  const Status vacated = slots_->Vacate(tiles);
  if (!vacated.ok()) {
    // Some of the range may not have been the slots'; those stay nobody's or the blocks'.
    for (uint32_t tile = tiles.begin; tile < tiles.end; ++tile)
      if (!BlocksOwnUnder(tile)) slots_->Own(tile);
    return vacated;
  }
  ++counters_.moves;
  return AdoptRows(
      {geometry_.RowsUnder(tiles.end - 1).begin, geometry_.RowsUnder(tiles.begin).end});
}

bool Border::BlocksOwnUnder(uint32_t tile) const {
  const PlaceRange rows = geometry_.RowsUnder(tile);
  for (uint32_t row = rows.begin; row < rows.end; ++row)
    if (blocks_[0]->Owns(row)) return true;
  return false;
}

bool Border::BorderTile(uint32_t* tile) const {
  *tile = slots_->LowestNotOwned();
  if (*tile >= geometry_.tiles()) return false;
  const PlaceRange rows = geometry_.RowsUnder(*tile);
  return std::all_of(blocks_.begin(), blocks_.end(), [&](const PoolCore* pool) {
    return CanEmpty(pool->Survey(rows), pool->FreePlaceCount());
  });
}

bool Border::BorderTilesToGive(PlaceRange* tiles) const {
  const uint32_t row = blocks_[0]->LowestNotOwned();
  if (row >= geometry_.rows()) return false;
  *tiles = geometry_.TilesOver(row);
  return CanEmpty(slots_->Survey(*tiles), slots_->FreePlaceCount());
}

std::vector<uint32_t> Border::Choices() const {
  std::vector<std::vector<PlaceUse>> blocks;
  for (const PoolCore* pool : blocks_) blocks.push_back(pool->Survey());
  return TilesToTake(geometry_, slots_->Survey(), blocks);
}

// Bytes that packing would leave free.
uint64_t Border::Left() const {
  uint32_t rows = 0;
  for (const PoolCore* p : blocks_) rows = std::max(rows, p->Stats().used);
  return geometry_.bytes - slots_->Stats().used * geometry_.tile_pitch - rows * geometry_.row_pitch;
}

Status Border::GrowSlots() {
  // A full memory refuses all the time: without a survey, and without moving anything.
  if (Left() < geometry_.tile_pitch) return Refuse(slots_, geometry_.tile_pitch);
  for (int turn = 0; turn < 2; ++turn) {
    if (uint32_t tile; BorderTile(&tile)) {  // the first choice, and mostly the last
      const Status taken = TakeTile(tile);
      if (taken.ok() || !InTheWay(taken)) return taken;
    }
    for (const uint32_t tile : Choices()) {
      const Status taken = TakeTile(tile);
      if (taken.ok() || !InTheWay(taken)) return taken;
    }
    BATON_ASSIGN_OR_RETURN(const bool straighter, StraightenOne());
    if (!straighter) break;
    for (bool more = true; more;) {
      BATON_ASSIGN_OR_RETURN(more, StraightenOne());
    }
  }
  return Refuse(slots_, geometry_.tile_pitch);
}

Status Border::GrowBlocks(const PoolCore* pool) {
  // As above, unless another group's blocks fill the rows and this one's could still join them.
  const auto is_longest = [&] {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [&](const PoolCore* p) { return p->Stats().used <= pool->Stats().used; });
  };
  if (Left() < geometry_.row_pitch && is_longest()) return Refuse(pool, geometry_.row_pitch);
  // Without a free tile nothing can be given.
  if (slots_->HasFree()) {
    if (PlaceRange tiles; BorderTilesToGive(&tiles)) {
      const StatusOr<uint32_t> won = GiveTiles(tiles);
      if (!won.ok() && !InTheWay(won.status())) return won.status();
      if (won.ok() && *won > 0) return absl::OkStatus();
    }
    for (const PlaceRange tiles : TilesToGive(geometry_, slots_->Survey(), blocks_[0]->Survey())) {
      const StatusOr<uint32_t> won = GiveTiles(tiles);
      if (!won.ok() && !InTheWay(won.status())) return won.status();
      if (won.ok() && *won > 0) return absl::OkStatus();
    }
  }
  for (bool more = true; more;) {
    BATON_ASSIGN_OR_RETURN(more, StraightenOne());
    if (pool->HasFree()) return absl::OkStatus();
  }
  return Refuse(pool, geometry_.row_pitch);
}

StatusOr<bool> Border::StraightenOne() {
  const std::vector<PlaceUse> slots = slots_->Survey({0, slots_->Top()});
  uint32_t from = static_cast<uint32_t>(slots.size());
  while (from > 0 && slots[from - 1] != PlaceUse::kMovable) --from;
  const auto hole = std::find_if(slots.begin(), slots.begin() + from, [](PlaceUse use) {
    return use == PlaceUse::kNotOwned || use == PlaceUse::kFree;
  });
  if (hole == slots.begin() + from) return false;
  if (*hole == PlaceUse::kNotOwned) {
    uint32_t tile;
    if (!BorderTile(&tile)) return false;
    const Status taken = TakeTile(tile);
    if (!taken.ok()) return InTheWay(taken) ? StatusOr<bool>(false) : taken;
  }
  const Status given = GiveTiles({from - 1, from}).status();
  if (!given.ok()) return InTheWay(given) ? StatusOr<bool>(false) : given;
  return true;
}

StatusOr<bool> Border::CompactOne() {
  MutexLock lock(&mu_);
  return StraightenOne();
}

uint32_t Border::AdoptRows(PlaceRange range) {
  uint32_t won = 0;
  for (uint32_t row = range.begin; row < range.end; ++row) {
    const PlaceRange tiles = geometry_.TilesOver(row);
    bool covered = false;
    for (uint32_t tile = tiles.begin; tile < tiles.end && !covered; ++tile)
      covered = slots_->Owns(tile);
    if (covered) continue;
    bool taken = false;
    for (PoolCore* pool : blocks_) taken |= pool->Own(row);
    won += taken;
  }
  return won;
}

Status Border::Refuse(const PoolCore* pool, uint64_t need) {
  const uint64_t left = Left();
  ++counters_.refusals;
  std::string fixed;
  if (left >= need) {
    ++counters_.refusals_fixed;
    uint32_t units = slots_->FixedUnits();
    for (const PoolCore* p : blocks_) units += p->FixedUnits();
    fixed = absl::StrCat(", ", units, " units may not move now");
  }
  return Reject(Reason::kNoCapacity,
                absl::StrCat(pool->kind(), " pool ", pool->options().pool_id, ": ", need,
                             " bytes needed, ", left, " of ", geometry_.bytes,
                             " not in use (slots ", slots_->Stats().used, ")", fixed));
}

BorderCounters Border::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

Status Border::CheckInvariants() const {
  MutexLock lock(&mu_);
  const std::vector<PlaceUse> slots = slots_->Survey();
  for (const PoolCore* pool : blocks_) {
    const std::vector<PlaceUse> rows = pool->Survey();
    for (uint32_t row = 0; row < rows.size(); ++row) {
      const PlaceRange over = geometry_.TilesOver(row);
      for (uint32_t tile = over.begin; tile < over.end; ++tile)
        if (rows[row] != PlaceUse::kNotOwned && slots[tile] != PlaceUse::kNotOwned)
          return absl::InternalError(absl::StrCat("border invariant broken: row ", row,
                                                  " and tile ", tile,
                                                  " share bytes and are both owned"));
    }
  }
  // What is decided from the border alone is what the surveys say.
  uint32_t tile = 0;
  const bool take = BorderTile(&tile);
  const std::vector<uint32_t> choices = Choices();
  if (take != (!choices.empty() && choices[0] == tile))
    return absl::InternalError(absl::StrCat("border: tile ", tile, " can be taken: ", take));
  PlaceRange give{0, 0};
  if (BorderTilesToGive(&give)) {
    const auto ranges = TilesToGive(geometry_, slots, blocks_[0]->Survey());
    if (ranges.empty() || ranges[0] != give)
      return absl::InternalError(absl::StrCat("border: tiles from ", give.begin, " can be given"));
  }
  return absl::OkStatus();
}

}  // namespace baton::memory_internal
