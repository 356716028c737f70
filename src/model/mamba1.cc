#include "model/mamba1.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

struct Mamba1Layer {
  const Mamba1Config* config;
  const Mamba1Weights* weights;
  float part_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
};

// Normalises the three parts dt | B | C of every head of each row.
void NormParts(const Step& step, const Mamba1Layer& layer, Rows raw, Rows normed, int64_t rows) {
  const Mamba1Config& c = *layer.config;
  const Mamba1Weights& w = *layer.weights;
  const auto& norm = step.kernels().rms_norm;
  step.For(rows, c.heads * c.part_width() * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < c.heads; ++h) {
        const float* from = raw[r] + h * c.part_width();
        float* to = normed[r] + h * c.part_width();
        const int64_t b = c.dt_rank, cc = c.dt_rank + c.state;
        norm(from, w.dt_norm.data(), c.dt_rank, layer.part_eps, to);
        norm(from + b, w.b_norm.data(), c.state, layer.part_eps, to + b);
        norm(from + cc, w.c_norm.data(), c.state, layer.part_eps, to + cc);
      }
  });
}

// One product per head: out's columns of head h from in's.
struct HeadColumns {
  Rows in;
  int64_t in_width;
  Rows out;
  int64_t out_width;
};
void RunHeads(const Step& step,
              const std::vector<Linear>& heads,
              const HeadColumns& columns,
              int64_t rows) {
  std::array<LinearJob, kLinearJobsMax> jobs;
  for (size_t first = 0; first < heads.size(); first += kLinearJobsMax) {
    const size_t count = std::min(kLinearJobsMax, heads.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const int64_t h = static_cast<int64_t>(first + i);
      jobs[i] = LinearJob{&heads[first + i],
                          Rows{columns.in.data + h * columns.in_width, columns.in.stride}, rows,
                          Rows{columns.out.data + h * columns.out_width, columns.out.stride}};
    }
    RunLinears(step, std::span(jobs).first(count));
  }
}

void AdvanceState(
    const Step& step, const Mamba1Layer& layer, Rows conv, Rows parts, Rows dt, Rows y) {
  const Mamba1Config& c = *layer.config;
  constexpr int64_t kChunk = 64;  // channels; none crosses a head
  const int64_t per_head = (c.head_channels() + kChunk - 1) / kChunk, chunks = c.heads * per_head;
  const int64_t n_items = static_cast<int64_t>(step.items().size());
  int64_t longest = 0;
  for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
  step.For(n_items * chunks, kChunk * c.state * longest, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const StepItem& item = step.items()[i / chunks];
      const int64_t head = i % chunks / per_head, row = item.row0;
      const int64_t first = head * c.head_channels() + i % per_head * kChunk;
      const float* b = parts[row] + head * c.part_width() + c.dt_rank;
      step.kernels().mamba1(
          kernel::Mamba1Args{.state = item.State(layer.ssm_offset),
                             .n_state = c.state,
                             .channels = c.inner,
                             .begin = first,
                             .end = std::min(first + kChunk, (head + 1) * c.head_channels()),
                             .tokens = item.tokens,
                             .x = conv[row],
                             .ldx = conv.stride,
                             .b = b,
                             .c = b + c.state,
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
         2 * Arena::Rounded(rows * c.heads * c.part_width());
}

void RunMamba1(const Step& step, const Mamba1Layer& layer, Rows x, Rows y, int64_t rows) {
  const Mamba1Config& c = *layer.config;
  const Mamba1Weights& w = *layer.weights;
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  const int64_t parts_width = c.heads * c.part_width();
  const Rows proj{arena.Take(rows * 2 * c.inner), 2 * c.inner};
  const Rows conv{arena.Take(rows * c.inner), c.inner};
  const Rows dt{arena.Take(rows * c.inner), c.inner};
  const Rows mixed{arena.Take(rows * c.inner), c.inner};
  const Rows raw{arena.Take(rows * parts_width), parts_width};
  Rows parts = raw;

  RunLinear(step, {&w.in, x, rows, proj});  // x | z
  RunConv(step, ConvLayer{&w.conv_w, &w.conv_b, c.inner, c.conv_width, layer.conv_offset}, proj,
          conv);
  RunHeads(step, w.x, {conv, c.head_channels(), raw, c.part_width()}, rows);
  if (c.part_norm != PartNorm::kNone) {
    parts = Rows{arena.Take(rows * parts_width), parts_width};
    NormParts(step, layer, raw, parts, rows);
  }
  RunHeads(step, w.dt, {parts, c.part_width(), dt, c.head_channels()}, rows);
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
  const Mamba1Config& config = *place.config->mamba1;
  return std::make_unique<Mamba1Block>(Mamba1Layer{
      &config, &weights, config.part_eps > 0 ? config.part_eps : place.config->rms_norm_eps,
      place.Part(kConvComponent), place.Part(kSsmComponent)});
}

void AddMamba1Parts(const Mamba1Config& c, uint32_t layer, LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, c.conv_width, c.inner));
  spec->parts.push_back(SsmPart(layer, {c.state, c.inner}, "N,I"));
}

double Mamba1Cost(const Mamba1Config& c, int64_t hidden) {
  const double matrices = Product(hidden, 2 * c.inner) + Product(c.inner, c.part_width()) +
                          Product(c.dt_rank, c.inner) + Product(c.inner, hidden);
  const double conv = Product(c.conv_width, c.inner);
  return 2 * (matrices + conv) + 6 * Product(c.inner, c.state);
}

}  // namespace baton::model
