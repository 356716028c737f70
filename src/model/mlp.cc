#include "model/mlp.h"

#include "model/linear.h"

namespace baton::model {

int64_t MlpScratch(const MlpConfig& config, int64_t rows) {
  return 2 * Arena::Rounded(rows * config.width);
}

void CombineTile(const kernel::Kernels& kernels, Rows gate, Rows up, const Tile& tile) {
  const int64_t begin = tile.panel_begin * kernel::kLanes;
  const int64_t n = std::min(tile.panel_end * kernel::kLanes, gate.stride) - begin;
  if (n <= 0) return;
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
    kernels.silu_mul(gate[r] + begin, up[r] + begin, n, gate[r] + begin);
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
    const Tile tile = plan.At(i);
    RunTile(step.kernels(), gate_job, tile);
    RunTile(step.kernels(), up_job, tile);
    CombineTile(step.kernels(), gate, up, tile);
  });
  RunLinear(step, {&weights.down, gate, rows, y});
}

}  // namespace baton::model
