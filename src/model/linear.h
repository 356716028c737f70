// Matrix products of a step, cut into tiles over rows and weight panels.
// Thread rule: as Step.
#ifndef BATON_MODEL_LINEAR_H_
#define BATON_MODEL_LINEAR_H_

#include <cstdint>
#include <span>

#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

// y = W x + b for `rows` rows, or, to add, y += W x (no bias then).
struct LinearJob {
  const Linear* linear;
  Rows x;
  int64_t rows;
  Rows y;
  bool add = false;
};

// A rectangle of one product: rows [row_begin, row_end), panels [panel_begin, panel_end).
struct Tile {
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;
};

// How one product is cut into tiles. Row tiles are innermost, so that a run of panels stays in
// cache for all rows.
struct TilePlan {
  int64_t rows = 0;
  int64_t panels = 0;
  int64_t tile_rows = 0;
  int64_t row_tiles = 0;
  int64_t panel_tiles = 0;

  int64_t tiles() const { return row_tiles * panel_tiles; }
  // Tile `i` of tiles(); may be empty.
  Tile At(int64_t i) const;
};
TilePlan PlanTiles(const kernel::PackedMatrix& w, int64_t rows, int threads);

void RunTile(const kernel::Kernels& kernels, const LinearJob& job, const Tile& tile);

// Most jobs RunLinears takes at once.
inline constexpr size_t kLinearJobsMax = 8;
// All jobs as one parallel loop. Jobs must not depend on each other.
void RunLinears(const Step& step, std::span<const LinearJob> jobs);
inline void RunLinear(const Step& step, const LinearJob& job) {
  RunLinears(step, std::span(&job, 1));
}

}  // namespace baton::model

#endif  // BATON_MODEL_LINEAR_H_
