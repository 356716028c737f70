#include "model/mlp.h"

#include "model/linear.h"

namespace baton::model {

int64_t MlpScratch(const MlpConfig& config, int64_t rows) {
  return 2 * Arena::Rounded(rows * config.width);
}

void RunMlp(const Step& step, const MlpWeights& weights, Rows x, Rows y, int64_t rows) {
  const int64_t width = weights.gate.w.rows();
  const ArenaScope scope(&step.arena());
  const Rows gate{step.arena().Take(rows * width), width};
  const Rows up{step.arena().Take(rows * width), width};
  const LinearJob gate_job{&weights.gate, x, rows, gate}, up_job{&weights.up, x, rows, up};
  const TilePlan plan = PlanTiles(weights.gate.w, rows, step.threads());
  const int64_t work = rows * width * x.stride / 16 + width * x.stride / 4;
  // Gate and up of a tile are combined while both are in cache.
  step.ForEach(plan.tiles(), work, [&](int64_t i) {
    const int64_t row = i % plan.row_tiles * plan.tile_rows;
    const int64_t row_end = std::min(row + plan.tile_rows, rows);
    const int64_t panel = i / plan.row_tiles * plan.tile_panels;
    const int64_t panel_end = std::min(panel + plan.tile_panels, weights.gate.w.panels());
    RunTile(step.kernels(), gate_job, row, row_end, panel, panel_end);
    RunTile(step.kernels(), up_job, row, row_end, panel, panel_end);
    const int64_t begin = panel * kernel::kLanes;
    const int64_t n = std::min(panel_end * kernel::kLanes, width) - begin;
    for (int64_t r = row; r < row_end; ++r)
      step.kernels().silu_mul(gate[r] + begin, up[r] + begin, n, gate[r] + begin);
  });
  RunLinear(step, {&weights.down, gate, rows, y});
}

}  // namespace baton::model
