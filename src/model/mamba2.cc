#include "model/mamba2.h"

#include <algorithm>
#include <array>
#include <optional>

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/narrow_state.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

struct Mamba2Layer {
  const Mamba2Config* config;
  const Mamba2Weights* weights;
  float norm_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
  std::optional<NarrowLayer> narrow;
};

// dt = clamp(softplus(dt + bias)), decay = exp(a * dt).
void RunSteps(
    const Step& step, const Mamba2Layer& layer, Rows raw, Rows dt, Rows decay, int64_t rows) {
  const Mamba2Config& c = *layer.config;
  const Mamba2Weights& w = *layer.weights;
  step.For(rows, c.heads * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      step.kernels().softplus_bias(raw[r], w.dt_bias.data(), c.heads, c.dt_min, c.dt_max, dt[r]);
      step.kernels().exp_mul(w.a.data(), dt[r], c.heads, decay[r]);
    }
  });
}

// All heads of all sequences; a head's tokens stay together and in order.
void AdvanceState(
    const Step& step, const Mamba2Layer& layer, Rows conv, Rows dt, Rows decay, Rows y) {
  const Mamba2Config& c = *layer.config;
  const int64_t heads_per_group = c.heads / c.groups;
  const int64_t n_items = static_cast<int64_t>(step.items().size());
  int64_t longest = 0;
  for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
  const int64_t cost = c.state * c.head_dim * (longest + 1) / 12;
  step.For(n_items * c.heads, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const StepItem& item = step.items()[i / c.heads];
      const int64_t head = i % c.heads, row = item.row0;
      const float* b = conv[row] + c.inner() + head / heads_per_group * c.state;
      step.kernels().mamba2(
          kernel::Mamba2Args{.state = item.State(layer.ssm_offset) + head * c.state * c.head_dim,
                             .n_state = c.state,
                             .head_dim = c.head_dim,
                             .tokens = item.tokens,
                             .x = conv[row] + head * c.head_dim,
                             .ldx = conv.stride,
                             .b = b,
                             .c = b + c.groups * c.state,
                             .ldbc = conv.stride,
                             .dt = dt[row] + head,
                             .decay = decay[row] + head,
                             .lddt = dt.stride,
                             .d = layer.weights->d[head],
                             .y = y[row] + head * c.head_dim,
                             .ldy = y.stride});
    }
  });
}

// The multipliers of z, x, B, C and dt; segments without one are left alone.
void ScaleSegments(const Step& step, const Mamba2Config& c, Rows proj, int64_t rows) {
  const int64_t bc = c.groups * c.state;
  const std::array<int64_t, 5> widths = {c.inner(), c.inner(), bc, bc, c.heads};
  int64_t at = 0;
  for (size_t i = 0; i < widths.size(); at += widths[i++]) {
    const float m = c.multipliers[i];
    if (m == 1.0f) continue;
    step.For(rows, widths[i] / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().scale(proj[r] + at, m, widths[i], proj[r] + at);
    });
  }
}

// The output from y and the gate z.
void GateRows(const Step& step, const Mamba2Layer& layer, Rows y, Rows z, Rows out, int64_t rows) {
  const Mamba2Config& c = *layer.config;
  const float* norm = layer.weights->norm.data();
  const kernel::Kernels& k = step.kernels();
  const int64_t n = c.inner(), size = n / c.norm_groups;
  step.For(rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      switch (c.gate_norm) {
        case GateNorm::kGateFirst:
          k.gated_rms_norm(y[r], z[r], norm, n, c.norm_groups, layer.norm_eps, out[r]);
          break;
        case GateNorm::kNormFirst:
          for (int64_t i = 0; i < n; i += size)
            k.rms_norm(y[r] + i, norm + i, size, layer.norm_eps, out[r] + i);
          k.silu_mul(z[r], out[r], n, out[r]);
          break;
        case GateNorm::kNone:
          k.silu_mul(z[r], y[r], n, out[r]);
          break;
      }
    }
  });
}

// Enough for either form of state.
int64_t Mamba2Scratch(const Mamba2Config& c, int64_t rows) {
  return Arena::Rounded(rows * c.in_proj()) + Arena::Rounded(rows * c.conv_channels()) +
         2 * Arena::Rounded(rows * c.heads) + 2 * Arena::Rounded(rows * c.inner()) +
         NarrowScratch(ShapeOf(c), rows, false);
}

void RunMamba2(const Step& step, const Mamba2Layer& layer, Rows x, Rows y, int64_t rows) {
  const Mamba2Config& c = *layer.config;
  const Mamba2Weights& w = *layer.weights;
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  const Rows proj{arena.Take(rows * c.in_proj()), c.in_proj()};
  const Rows conv{arena.Take(rows * c.conv_channels()), c.conv_channels()};
  const Rows dt{arena.Take(rows * c.heads), c.heads};
  const Rows decay{arena.Take(rows * c.heads), c.heads};
  const Rows mixed{arena.Take(rows * c.inner()), c.inner()};
  const Rows gated{arena.Take(rows * c.inner()), c.inner()};

  RunLinear(step, {&w.in, x, rows, proj});  // z | xBC | dt
  ScaleSegments(step, c, proj, rows);
  const Rows xbc{proj.data + c.inner(), proj.stride};
  RunConv(step, ConvLayer{&w.conv_w, &w.conv_b, c.conv_channels(), c.conv_width, layer.conv_offset},
          xbc, conv);
  RunSteps(step, layer, Rows{xbc.data + c.conv_channels(), proj.stride}, dt, decay, rows);
  if (layer.narrow.has_value()) {
    const int64_t bc = c.groups * c.state;
    AdvanceNarrow(step, *layer.narrow,
                  {.input = gated,  // free until below
                   .key = {conv.data + c.inner(), conv.stride},
                   .query = {conv.data + c.inner() + bc, conv.stride},
                   .decay = decay.data,
                   .decay_stride = decay.stride,
                   .y = mixed,
                   .rows = rows,
                   .x = conv,
                   .dt = dt,
                   .d = w.d.data()});
  } else {
    AdvanceState(step, layer, conv, dt, decay, mixed);
  }
  GateRows(step, layer, mixed, proj, gated, rows);
  RunLinear(step, {&w.out, gated, rows, y});
}

class Mamba2Block final : public MixerBlock {
 public:
  explicit Mamba2Block(const Mamba2Layer& layer) : layer_(layer) {}
  int64_t Scratch(int64_t rows) const override { return Mamba2Scratch(*layer_.config, rows); }
  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    RunMamba2(step, layer_, x, y, rows);
  }

 private:
  Mamba2Layer layer_;
};

}  // namespace

std::unique_ptr<MixerBlock> MakeMamba2(const MixerPlace& place, const Mamba2Weights& weights) {
  const Mamba2Config& config = *place.config->mamba2;
  const float eps = config.norm_eps > 0 ? config.norm_eps : place.config->rms_norm_eps;
  return std::make_unique<Mamba2Block>(
      Mamba2Layer{&config, &weights, eps, place.Part(kConvComponent), place.Part(kSsmComponent),
                  NarrowLayerAt(place, ShapeOf(config))});
}

void AddMamba2Parts(const Mamba2Config& c,
                    uint32_t layer,
                    kernel::StateDType state,
                    LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, c.conv_width, c.conv_channels()));
  AddSsmParts(layer, {c.heads, c.state, c.head_dim}, "H,N,P", state, spec);
}

double Mamba2Cost(const Mamba2Config& c, int64_t hidden) {
  const double matrices = Product(hidden, c.in_proj()) + Product(c.inner(), hidden);
  const double conv = Product(c.conv_width, c.conv_channels());
  // Decay, outer product and its addition, then the read-out: 5 per element of the state.
  return 2 * (matrices + conv) + 5 * Product(c.inner(), c.state);
}

}  // namespace baton::model
