#include "model/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace baton::model {
namespace {

// The matrix kernel works best on runs of some 32 panels (a mean: tiles shrink) and multiples of 16
// rows, which it blocks for the caches itself; up to 4 rows it streams groups of 4 panels.
constexpr int64_t kPanelsMax = 32;
constexpr int64_t kPanelGroup = 4;
constexpr int64_t kRowGroup = 16;
constexpr int64_t kStreamRows = 4;
constexpr int64_t kTilesPerThread = 4;
// Outputs of a tile stay in cache for whoever combines them (MLP).
constexpr int64_t kTileRowsMax = 128;

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

}  // namespace

TilePlan PlanTiles(const kernel::PackedMatrix& w, int64_t rows, int threads) {
  TilePlan plan;
  plan.rows = rows;
  plan.panels = w.panels();
  plan.tile_rows = rows;
  if (rows > kTileRowsMax)
    plan.tile_rows = RoundUp(DivideUp(rows, DivideUp(rows, kTileRowsMax)), kRowGroup);
  plan.row_tiles = DivideUp(rows, plan.tile_rows);
  const int64_t wanted = threads == 1 ? 1 : kTilesPerThread * threads;
  plan.panel_tiles = std::min(DivideUp(wanted, plan.row_tiles), DivideUp(plan.panels, kPanelGroup));
  if (rows > kStreamRows)
    plan.panel_tiles = std::max(plan.panel_tiles, DivideUp(plan.panels, kPanelsMax));
  return plan;
}

// Tiles shrink towards the last (sizes fall linearly): the first ones are long enough for the
// kernel's stride, the last ones short enough that no thread waits long for another.
Tile TilePlan::At(int64_t i) const {
  const int64_t row = i % row_tiles * tile_rows, n = panel_tiles;
  const auto panel_begin = [&](int64_t tile) {
    const int64_t left = n - tile;
    return left == 0 ? panels
                     : panels * (n * n - left * left) / (n * n) / kPanelGroup * kPanelGroup;
  };
  return Tile{row, std::min(row + tile_rows, rows), panel_begin(i / row_tiles),
              panel_begin(i / row_tiles + 1)};
}

void RunTile(const kernel::Kernels& kernels, const LinearJob& job, const Tile& tile) {
  const int64_t rows = tile.row_end - tile.row_begin;
  if (rows <= 0 || tile.panel_begin == tile.panel_end) return;
  const Linear& linear = *job.linear;
  const bool biased = !linear.bias.empty();
  if (biased) {
    // The sum starts from the bias.
    BATON_CHECK(!job.add);
    const int64_t begin = tile.panel_begin * kernel::kLanes;
    const int64_t end = std::min(tile.panel_end * kernel::kLanes, linear.w.rows());
    for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
      std::memcpy(job.y[r] + begin, linear.bias.data() + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    }
  }
  kernels.matmul(kernel::MatmulArgs{.x = job.x[tile.row_begin],
                                    .ldx = job.x.stride,
                                    .rows = rows,
                                    .w = &linear.w,
                                    .panel_begin = tile.panel_begin,
                                    .panel_end = tile.panel_end,
                                    .y = job.y[tile.row_begin],
                                    .ldy = job.y.stride,
                                    .accumulate = biased || job.add});
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
    RunTile(step.kernels(), jobs[j], plans[j].At(i));
  });
}

}  // namespace baton::model
