#include "model/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace baton::model {
namespace {

// A tile of x and a run of panels are meant to share the second-level cache.
constexpr int64_t kTileBytes = 256 << 10;
constexpr int64_t kTileRowsMin = 32;
constexpr int64_t kTilesPerThread = 8;

}  // namespace

TilePlan PlanTiles(const kernel::PackedMatrix& w, int64_t rows, int threads) {
  const int64_t panel_bytes =
      w.cols() * kernel::kLanes * static_cast<int64_t>(kernel::DTypeSize(w.dtype()));
  const int64_t row_bytes = w.cols() * static_cast<int64_t>(sizeof(float));
  TilePlan plan;
  plan.tile_rows = std::clamp<int64_t>(kTileBytes / row_bytes / 16 * 16, kTileRowsMin, 256);
  if (rows <= plan.tile_rows + plan.tile_rows / 2) plan.tile_rows = rows;
  plan.row_tiles = (rows + plan.tile_rows - 1) / plan.tile_rows;
  plan.tile_rows = (rows + plan.row_tiles - 1) / plan.row_tiles;

  const int64_t wanted = threads == 1 ? 1 : kTilesPerThread * threads;
  const int64_t from_count = w.panels() * plan.row_tiles / wanted;
  // One row reads each weight once: no reuse, so only the number of tiles matters.
  const int64_t from_cache = plan.row_tiles == 1 ? w.panels() : kTileBytes / panel_bytes;
  plan.tile_panels = std::clamp<int64_t>(std::min(from_count, from_cache), 1, w.panels());
  plan.panel_tiles = (w.panels() + plan.tile_panels - 1) / plan.tile_panels;
  return plan;
}

void RunTile(const kernel::Kernels& kernels,
             const LinearJob& job,
             int64_t row_begin,
             int64_t row_end,
             int64_t panel_begin,
             int64_t panel_end) {
  const Linear& linear = *job.linear;
  kernel::MatmulArgs args{.x = job.x[row_begin],
                          .ldx = job.x.stride,
                          .rows = row_end - row_begin,
                          .w = &linear.w,
                          .panel_begin = panel_begin,
                          .panel_end = panel_end,
                          .y = job.y[row_begin],
                          .ldy = job.y.stride,
                          .accumulate = false};
  if (!linear.bias.empty()) {
    // The sum starts from the bias.
    const int64_t begin = panel_begin * kernel::kLanes;
    const int64_t end = std::min(panel_end * kernel::kLanes, linear.w.rows());
    for (int64_t r = row_begin; r < row_end; ++r) {
      std::memcpy(job.y[r] + begin, linear.bias.data() + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    }
    args.accumulate = true;
  }
  kernels.matmul(args);
}

void RunLinears(const Step& step, std::span<const LinearJob> jobs) {
  BATON_CHECK(jobs.size() <= kLinearJobsMax);
  std::array<TilePlan, kLinearJobsMax> plans;
  int64_t tiles = 0, work = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const kernel::PackedMatrix& w = jobs[j].linear->w;
    plans[j] = jobs[j].rows == 0 ? TilePlan{} : PlanTiles(w, jobs[j].rows, step.threads());
    tiles += plans[j].tiles();
    // About 32 multiply-adds or 16 bytes of weights a nanosecond.
    work += w.rows() * w.cols() / 8 + jobs[j].rows * w.rows() * w.cols() / 32;
  }
  if (tiles == 0) return;
  step.ForEach(tiles, work, [&](int64_t i) {
    size_t j = 0;
    for (; i >= plans[j].tiles(); ++j) i -= plans[j].tiles();
    const TilePlan& plan = plans[j];
    // Row tiles innermost: a run of panels stays in cache for all rows.
    const int64_t row = i % plan.row_tiles * plan.tile_rows;
    const int64_t panel = i / plan.row_tiles * plan.tile_panels;
    RunTile(step.kernels(), jobs[j], row, std::min(row + plan.tile_rows, jobs[j].rows), panel,
            std::min(panel + plan.tile_panels, jobs[j].linear->w.panels()));
  });
}

}  // namespace baton::model
