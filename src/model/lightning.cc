// The recurrence is Mamba-2's with B = k, C = q, x = v, a step of 1 and no skip, so it runs on that
// kernel: dt * x is exact, and fma(0, x, y) adds nothing. In narrow form it leaves D out.
#include "model/lightning.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernel/functions.h"
#include "model/linear.h"
#include "model/model_layout.h"
#include "model/narrow_state.h"

namespace baton::model {
namespace {

// Of the output norm; the library's class has a default of its own and passes no other.
constexpr float kNormEps = 1e-6f;

class LightningBlock final : public MixerBlock {
 public:
  LightningBlock(const MixerPlace& place, const LightningWeights& weights)
      : config_(*place.config->lightning),
        weights_(weights),
        offset_(place.Part(kSsmComponent)),
        narrow_(NarrowLayerAt(place, ShapeOf(config_))) {
    const int64_t layers = static_cast<int64_t>(place.config->layers.size());
    for (int64_t h = 0; h < config_.heads; ++h)
      decay_.push_back(LightningDecay(config_, h, place.layer, layers));
  }

  int64_t Scratch(int64_t rows) const override {
    const int64_t n = config_.inner();
    const int64_t floats = Arena::Rounded(rows * 3 * n) + 2 * Arena::Rounded(rows * n);
    if (!narrow_.has_value()) return floats;
    return floats + Arena::Rounded(rows * 3 * n) + NarrowScratch(narrow_->shape, rows, false);
  }

  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    const int64_t n = config_.inner();
    const ArenaScope scope(&step.arena());
    const Rows qkv{step.arena().Take(rows * 3 * n), 3 * n};
    const Rows gate{step.arena().Take(rows * n), n};
    const Rows mixed{step.arena().Take(rows * n), n};
    const LinearJob jobs[] = {{&weights_.qkv, x, rows, qkv}, {&weights_.gate, x, rows, gate}};
    RunLinears(step, jobs);
    if (narrow_.has_value()) {
      AdvanceNarrowState(step, qkv, mixed, rows);
    } else {
      step.For(rows, 3 * n, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          step.kernels().apply(kernel::Function::kSilu, qkv[r], 3 * n, qkv[r]);
      });
      AdvanceState(step, qkv, mixed);
    }
    step.For(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        step.kernels().rms_norm(mixed[r], weights_.norm.data(), n, kNormEps, mixed[r]);
        step.kernels().sigmoid_mul(gate[r], mixed[r], n, mixed[r]);
      }
    });
    RunLinear(step, {&weights_.out, mixed, rows, y});
  }

 private:
  // All heads of all sequences; a head's tokens stay together and in order.
  void AdvanceState(const Step& step, Rows qkv, Rows y) const {
    static constexpr float kOne = 1;
    const int64_t dim = config_.head_dim, heads = config_.heads;
    int64_t longest = 0;
    for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
    const int64_t n = static_cast<int64_t>(step.items().size()) * heads;
    step.For(n, dim * dim * (longest + 1) / 12, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const StepItem& item = step.items()[i / heads];
        const int64_t head = i % heads;
        const float* q = qkv[item.row0] + head * 3 * dim;  // rows per head q | k | v
        step.kernels().mamba2(kernel::Mamba2Args{.state = item.State(offset_) + head * dim * dim,
                                                 .n_state = dim,
                                                 .head_dim = dim,
                                                 .tokens = item.tokens,
                                                 .x = q + 2 * dim,
                                                 .ldx = qkv.stride,
                                                 .b = q + dim,
                                                 .c = q,
                                                 .ldbc = qkv.stride,
                                                 .dt = &kOne,
                                                 .decay = &decay_[head],
                                                 .lddt = 0,
                                                 .d = 0,
                                                 .y = y[item.row0] + head * dim,
                                                 .ldy = y.stride});
      }
    });
  }

  // The same from rows before their SiLU, which takes q, k and v of all heads together: a tail
  // keeps k and v.
  void AdvanceNarrowState(const Step& step, Rows qkv, Rows y, int64_t rows) const {
    const int64_t n = config_.inner(), dim = config_.head_dim;
    const Rows apart{step.arena().Take(rows * 3 * n), 3 * n};
    step.For(rows, 3 * n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < 3 * config_.heads; ++i) {
          float* to = apart[r] + i % 3 * n + i / 3 * dim;
          step.kernels().apply(kernel::Function::kSilu, qkv[r] + i * dim, dim, to);
        }
      }
    });
    AdvanceNarrow(step, *narrow_,
                  {.input = {apart.data + 2 * n, apart.stride},
                   .key = {apart.data + n, apart.stride},
                   .query = apart,
                   .decay = decay_.data(),
                   .y = y,
                   .rows = rows});
  }

  const LightningConfig& config_;
  const LightningWeights& weights_;
  uint64_t offset_;
  std::optional<NarrowLayer> narrow_;
  std::vector<float> decay_;  // [heads]
};

}  // namespace

float LightningDecay(const LightningConfig& config, int64_t head, int64_t layer, int64_t layers) {
  const double exponent = -8.0 * static_cast<double>(head + 1) / static_cast<double>(config.heads);
  const double share =
      1.0 - static_cast<double>(layer) / (static_cast<double>(layers - 1) + 1e-5) + 1e-5;
  return kernel::Exp(static_cast<float>(-kernel::PowPositive(2.0, exponent) * share));
}

std::unique_ptr<MixerBlock> MakeLightning(const MixerPlace& place,
                                          const LightningWeights& weights) {
  return std::make_unique<LightningBlock>(place, weights);
}

void AddLightningParts(const LightningConfig& c,
                       uint32_t layer,
                       kernel::StateDType state,
                       LayoutSpec* spec) {
  AddSsmParts(layer, {c.heads, c.head_dim, c.head_dim}, "H,K,V", state, spec);
}

double LightningCost(const LightningConfig& c, int64_t hidden) {
  return 2 * 5 * Product(hidden, c.inner()) + 5 * Product(c.inner(), c.head_dim);
}

}  // namespace baton::model
