#include "model/mlp.h"

#include "model/linear.h"

namespace baton::model {

kernel::Function FunctionOf(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return kernel::Function::kSilu;
    case Activation::kGelu:
      return kernel::Function::kGelu;
    case Activation::kGeluTanh:
      return kernel::Function::kGeluTanh;
    case Activation::kRelu2:
      return kernel::Function::kRelu2;
  }
  return kernel::Function::kSilu;
}

int64_t MlpScratch(const MlpConfig& config, int64_t rows) {
  return 2 * Arena::Rounded(rows * config.width);
}

void CombineTile(
    const kernel::Kernels& kernels, Rows gate, Rows up, const Tile& tile, const MlpForm& form) {
  const int64_t begin = tile.panel_begin * kernel::kLanes;
  const int64_t n = std::min(tile.panel_end * kernel::kLanes, up.stride) - begin;
  if (n <= 0) return;
  const kernel::Function act = FunctionOf(form.act);
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    float* g = gate[r] + begin;
    const float* u = up[r] + begin;
    if (!form.gated) {
      kernels.apply(act, u, n, g);
      continue;
    }
    if (form.gate_multiplier != 1.0f) kernels.scale(g, form.gate_multiplier, n, g);
    kernels.apply_mul(act, g, u, n, g);
  }
}

void RunMlp(const Step& step,
            const MlpWeights& weights,
            Rows x,
            Rows y,
            int64_t rows,
            const MlpForm& form) {
  const int64_t width = weights.up.w.rows();
  const ArenaScope scope(&step.arena());
  const Rows gate{step.arena().Take(rows * width), width};
  const Rows up{step.arena().Take(rows * width), width};
  const LinearJob gate_job{&weights.gate, x, rows, gate}, up_job{&weights.up, x, rows, up};
  const TilePlan plan = PlanTiles(weights.up.w, rows, step.threads());
  const int64_t work = rows * width * x.stride / 16 + width * x.stride / 4;
  // Gate and up of a tile are combined while both are in cache.
  step.ForEach(plan.tiles(), work, [&](int64_t i) {
    const Tile tile = plan.At(i);
    if (form.gated) RunTile(step.kernels(), gate_job, tile);
    RunTile(step.kernels(), up_job, tile);
    CombineTile(step.kernels(), gate, up, tile, form);
  });
  RunLinear(step, {&weights.down, gate, rows, y});
  if (form.down_multiplier == 1.0f) return;
  step.For(rows, y.stride / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().scale(y[r], form.down_multiplier, y.stride, y[r]);
  });
}

}  // namespace baton::model
