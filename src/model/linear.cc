#include "model/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace baton::model {
namespace {

// The matrix kernel works best on runs of 32 panels and multiples of 16 rows, which it blocks for
// the caches itself; up to 4 rows it streams groups of 4 panels.
constexpr int64_t kPanelsMax = 32;
constexpr int64_t kPanelGroup = 4;
constexpr int64_t kRowGroup = 16;
constexpr int64_t kStreamRows = 4;
// Outputs of a tile stay in cache for whoever combines them (MLP).
constexpr int64_t kTileRowsMax = 128;

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

}  // namespace

TilePlan PlanTiles(const kernel::PackedMatrix& w, int64_t rows, int threads) {
  const int64_t panels = w.panels();
  // Enough pieces that a thread that falls behind holds up the others little.
  const int64_t wanted = threads == 1 ? 1 : 6 * threads;
  TilePlan plan;
  plan.tile_rows = rows;
  plan.tile_panels = panels;
  if (rows > kTileRowsMax)
    plan.tile_rows = RoundUp(DivideUp(rows, DivideUp(rows, kTileRowsMax)), kRowGroup);
  plan.row_tiles = DivideUp(rows, plan.tile_rows);
  if (rows > kStreamRows) plan.tile_panels = std::min(panels, kPanelsMax);
  const int64_t share = RoundUp(DivideUp(panels * plan.row_tiles, wanted), kPanelGroup);
  plan.tile_panels = std::min(plan.tile_panels, share);
  plan.panel_tiles = DivideUp(panels, plan.tile_panels);
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
