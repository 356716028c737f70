#include "model/mamba1.h"

#include <limits>

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

struct Mamba1Layer {
  const Mamba1Config* config;
  const Mamba1Weights* weights;
  float rms_norm_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
};

// Normalises the three parts dt_r | B | C of each row in place of the raw projection.
void NormParts(const Step& step, const Mamba1Layer& layer, Rows raw, Rows normed, int64_t rows) {
  const Mamba1Config& c = *layer.config;
  const Mamba1Weights& w = *layer.weights;
  const auto& norm = step.kernels().rms_norm;
  step.For(rows, (c.dt_rank + 2 * c.state) * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t b = c.dt_rank, cc = c.dt_rank + c.state;
      norm(raw[r], w.dt_norm.data(), c.dt_rank, layer.rms_norm_eps, normed[r]);
      norm(raw[r] + b, w.b_norm.data(), c.state, layer.rms_norm_eps, normed[r] + b);
      norm(raw[r] + cc, w.c_norm.data(), c.state, layer.rms_norm_eps, normed[r] + cc);
    }
  });
}

void AdvanceState(
    const Step& step, const Mamba1Layer& layer, Rows conv, Rows parts, Rows dt, Rows y) {
  const Mamba1Config& c = *layer.config;
  constexpr int64_t kChunk = 64;  // channels
  const int64_t chunks = (c.inner + kChunk - 1) / kChunk;
  const int64_t n_items = static_cast<int64_t>(step.items().size());
  int64_t longest = 0;
  for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
  step.For(n_items * chunks, kChunk * c.state * longest, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const StepItem& item = step.items()[i / chunks];
      const int64_t first = i % chunks * kChunk, row = item.row0;
      step.kernels().mamba1(kernel::Mamba1Args{.state = item.State(layer.ssm_offset),
                                               .n_state = c.state,
                                               .channels = c.inner,
                                               .begin = first,
                                               .end = std::min(first + kChunk, c.inner),
                                               .tokens = item.tokens,
                                               .x = conv[row],
                                               .ldx = conv.stride,
                                               .b = parts[row] + c.dt_rank,
                                               .c = parts[row] + c.dt_rank + c.state,
                                               .ldbc = parts.stride,
                                               .dt = dt[row],
                                               .lddt = dt.stride,
                                               .a = layer.weights->a.data(),
                                               .d = layer.weights->d.data(),
                                               .y = y[row],
                                               .ldy = y.stride});
    }
  });
}

int64_t Mamba1Scratch(const Mamba1Config& c, int64_t rows) {
  return Arena::Rounded(rows * 2 * c.inner) + 3 * Arena::Rounded(rows * c.inner) +
         2 * Arena::Rounded(rows * (c.dt_rank + 2 * c.state));
}

void RunMamba1(const Step& step, const Mamba1Layer& layer, Rows x, Rows y, int64_t rows) {
  const Mamba1Config& c = *layer.config;
  const Mamba1Weights& w = *layer.weights;
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  const int64_t parts_width = c.dt_rank + 2 * c.state;
  const Rows proj{arena.Take(rows * 2 * c.inner), 2 * c.inner};
  const Rows conv{arena.Take(rows * c.inner), c.inner};
  const Rows dt{arena.Take(rows * c.inner), c.inner};
  const Rows mixed{arena.Take(rows * c.inner), c.inner};
  const Rows raw{arena.Take(rows * parts_width), parts_width};
  const Rows parts{arena.Take(rows * parts_width), parts_width};

  RunLinear(step, {&w.in, x, rows, proj});  // x | z
  RunConv(step, ConvLayer{&w.conv_w, &w.conv_b, c.inner, c.conv_width, layer.conv_offset}, proj,
          conv);
  RunLinear(step, {&w.x, conv, rows, raw});
  NormParts(step, layer, raw, parts, rows);
  RunLinear(step, {&w.dt, parts, rows, dt});
  step.For(rows, c.inner * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      step.kernels().softplus_bias(dt[r], w.dt_bias.data(), c.inner, 0.0f,
                                   std::numeric_limits<float>::infinity(), dt[r]);
    }
  });
  AdvanceState(step, layer, conv, parts, dt, mixed);
  step.For(rows, c.inner, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().silu_mul(proj[r] + c.inner, mixed[r], c.inner, mixed[r]);
  });
  RunLinear(step, {&w.out, mixed, rows, y});
}

class Mamba1Block final : public MixerBlock {
 public:
  explicit Mamba1Block(const Mamba1Layer& layer) : layer_(layer) {}
  int64_t Scratch(int64_t rows) const override { return Mamba1Scratch(*layer_.config, rows); }
  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    RunMamba1(step, layer_, x, y, rows);
  }

 private:
  Mamba1Layer layer_;
};

}  // namespace

std::unique_ptr<MixerBlock> MakeMamba1(const MixerPlace& place, const Mamba1Weights& weights) {
  return std::make_unique<Mamba1Block>(
      Mamba1Layer{&*place.config->mamba1, &weights, place.config->rms_norm_eps,
                  place.Part(kConvComponent), place.Part(kSsmComponent)});
}

void AddMamba1Parts(const Mamba1Config& c, uint32_t layer, LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, c.conv_width, c.inner));
  spec->parts.push_back(SsmPart(layer, {c.state, c.inner}, "N,I"));
}

double Mamba1Cost(const Mamba1Config& c, int64_t hidden) {
  const double matrices = Product(hidden, 2 * c.inner) + Product(c.inner, c.dt_rank + 2 * c.state) +
                          Product(c.dt_rank, c.inner) + Product(c.inner, hidden);
  const double conv = Product(c.conv_width, c.inner);
  return 2 * (matrices + conv) + 6 * Product(c.inner, c.state);
}

}  // namespace baton::model
