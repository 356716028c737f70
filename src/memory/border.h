// The movable border between state slots and KV blocks in one range of bytes.
//
//   byte 0                                                                    bytes
//   | row 0 | row 1 | row 2 | ...  ->                <- ... | tile 1 | tile 0 |
//
// A row is one KV block of every group side by side (a sequence needs as many of one group as of
// another); rows count up from the bottom. A tile is one state slot; tiles count down from the top.
// Both grids cover the whole range, and a byte belongs to one side at a time: a place is owned by
// its pool only while no overlapping place is owned by the other. At the start all rows are owned.
//
// Room for a slot is made by vacating the rows under the next tile, room for a block by vacating
// the tiles over the next row; what lies there and may move goes to the lowest free place of its
// own pool. So slots stay packed at the top, blocks at the bottom, and at most one row's worth of
// bytes is lost at the border. Where something that may not move stands at the border, another
// tile is taken instead: an island, which is straightened when idle and before anything is refused.
//
// Therefore, with nothing fixed and no island, an allocation that fits in the bytes not in use
// succeeds. Each island costs less than two rows until it is gone. With something fixed, a slot is
// refused only if every tile has a fixed unit under it or there is no place for what would have to
// move.
//
// Deciding (the functions over surveys) is apart from doing (Border). No clock, no I/O.
// Thread rule: Border is thread-safe; its mutex orders changes of the border only. No lease,
// transfer or reservation from free places waits for it.
#ifndef BATON_MEMORY_BORDER_H_
#define BATON_MEMORY_BORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "memory/pool_core.h"

namespace baton::memory_internal {

struct BorderGeometry {
  uint64_t bytes = 0;       // of the range
  uint64_t row_pitch = 0;   // bytes of a row
  uint64_t tile_pitch = 0;  // bytes of a tile

  uint32_t rows() const { return static_cast<uint32_t>(bytes / row_pitch); }
  uint32_t tiles() const { return static_cast<uint32_t>(bytes / tile_pitch); }
  // Rows that share a byte with `tile`, tiles that share one with `row`; may be empty.
  PlaceRange RowsUnder(uint32_t tile) const;
  PlaceRange TilesOver(uint32_t row) const;
};

// Tiles the slots could take, best first: the one at the border, then those with the fewest blocks
// to move. Left out: tiles already owned, with a fixed block under them, or whose blocks have
// nowhere to go. `blocks` holds one survey per group.
std::vector<uint32_t> TilesToTake(const BorderGeometry& geometry,
                                  std::span<const PlaceUse> slots,
                                  std::span<const std::vector<PlaceUse>> blocks);

// Ranges of tiles the slots could give, each of which wins the blocks at least one row, best first:
// the one at the border, then those with the fewest slots to move. Left out: ranges with a fixed
// slot, or whose slots have nowhere to go. `rows` is the survey of any group.
std::vector<PlaceRange> TilesToGive(const BorderGeometry& geometry,
                                    std::span<const PlaceUse> slots,
                                    std::span<const PlaceUse> rows);

struct BorderCounters {
  uint64_t moves = 0;     // tiles that changed sides
  uint64_t refusals = 0;  // requests for room that could not be met
  // Of those, the ones that would have fit if everything could have moved.
  uint64_t refusals_fixed = 0;
};

class Border {
 public:
  // `blocks`: one pool per group. All outlive the border's last use.
  Border(const BorderGeometry& geometry, PoolCore* slots, std::vector<PoolCore*> blocks);

  // Gives `pool` at least one free place, which another thread may take first. kNoCapacity with
  // what is in use and what is in the way; the error of a move whose copy failed.
  Status MakeRoom(const PoolCore* pool) BATON_EXCLUDES(mu_);
  // Moves one slot that stands apart from the others to the border's side. False if there is none.
  StatusOr<bool> CompactOne() BATON_EXCLUDES(mu_);
  BorderCounters counters() const BATON_EXCLUDES(mu_);
  // kInternal if a byte is owned by both sides. At rest, for it looks at the pools more than once.
  Status CheckInvariants() const BATON_EXCLUDES(mu_);

 private:
  Status GrowSlots() BATON_REQUIRES(mu_);
  Status GrowBlocks(const PoolCore* pool) BATON_REQUIRES(mu_);
  // Whether the slots could take their lowest tile that is not theirs (`tile`; false if all are),
  // as TilesToTake has it, without a survey of everything.
  bool BorderTile(uint32_t* tile) const BATON_REQUIRES(mu_);
  // The same for what gives the blocks their lowest row that is not theirs.
  bool BorderTilesToGive(PlaceRange* tiles) const BATON_REQUIRES(mu_);
  // TilesToTake of the present surveys.
  std::vector<uint32_t> Choices() const BATON_REQUIRES(mu_);
  // Vacates the rows under `tile` and gives it to the slots; on an error the rows stay the blocks'.
  Status TakeTile(uint32_t tile) BATON_REQUIRES(mu_);
  // The other way; how many rows the blocks won. On an error the tiles stay the slots'.
  StatusOr<uint32_t> GiveTiles(PlaceRange tiles) BATON_REQUIRES(mu_);
  bool BlocksOwnUnder(uint32_t tile) const BATON_REQUIRES(mu_);
  // Moves the lowest movable slot in memory into a gap above it, if there is one and what lies
  // there may move. False if there is nothing to gain.
  StatusOr<bool> StraightenOne() BATON_REQUIRES(mu_);
  // Rows of `range` that no tile of the slots covers go to the blocks; how many were won.
  uint32_t AdoptRows(PlaceRange range) BATON_REQUIRES(mu_);
  uint64_t Left() const BATON_REQUIRES(mu_);
  Status Refuse(const PoolCore* pool, uint64_t need) BATON_REQUIRES(mu_);

  const BorderGeometry geometry_;
  PoolCore* const slots_;
  const std::vector<PoolCore*> blocks_;
  mutable Mutex mu_;
  BorderCounters counters_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::memory_internal

#endif  // BATON_MEMORY_BORDER_H_
