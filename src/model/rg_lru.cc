#include "model/rg_lru.h"

#include <algorithm>
#include <array>
#include <vector>

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

class RgLruBlock final : public MixerBlock {
 public:
  RgLruBlock(const MixerPlace& place, const RgLruWeights& weights)
      : config_(*place.config->rg_lru),
        weights_(weights),
        conv_{&weights.conv_w,
              &weights.conv_b,
              config_.width,
              config_.conv_width,
              place.Part(kConvComponent),
              /*silu=*/false},
        state_offset_(place.Part(kSsmComponent)) {}

  int64_t Scratch(int64_t rows) const override { return 5 * Arena::Rounded(rows * config_.width); }

  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    const int64_t n = config_.width;
    const ArenaScope scope(&step.arena());
    const auto take = [&] { return Rows{step.arena().Take(rows * n), n}; };
    const Rows in = take(), gelu = take(), conv = take(), input_gate = take(), decay_gate = take();
    const LinearJob jobs[] = {{&weights_.x, x, rows, in}, {&weights_.y, x, rows, gelu}};
    RunLinears(step, jobs);
    step.For(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().apply(kernel::Function::kGeluTanh, gelu[r], n, gelu[r]);
    });
    RunConv(step, conv_, in, conv);
    RunGates(step, weights_.input_gate, conv, input_gate, rows);
    RunGates(step, weights_.decay_gate, conv, decay_gate, rows);
    AdvanceState(step, conv, input_gate, decay_gate, in);
    step.For(rows, n / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) step.kernels().multiply(in[r], gelu[r], n, in[r]);
    });
    RunLinear(step, {&weights_.out, in, rows, y});
  }

 private:
  // gate = W u + b, block by block of channels.
  void RunGates(
      const Step& step, const std::vector<Linear>& blocks, Rows u, Rows gate, int64_t rows) const {
    const int64_t block = config_.block_width();
    std::array<LinearJob, kLinearJobsMax> jobs;
    for (int64_t b = 0; b < config_.blocks;) {
      size_t n = 0;
      for (; n < jobs.size() && b < config_.blocks; ++n, ++b) {
        jobs[n] = {&blocks[b], Rows{u.data + b * block, u.stride}, rows,
                   Rows{gate.data + b * block, gate.stride}};
      }
      RunLinears(step, std::span(jobs).first(n));
    }
  }

  void AdvanceState(const Step& step, Rows u, Rows input_gate, Rows decay_gate, Rows out) const {
    constexpr int64_t kChunk = 64;
    const int64_t chunks = (config_.width + kChunk - 1) / kChunk;
    int64_t longest = 0;
    for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
    const int64_t n = static_cast<int64_t>(step.items().size()) * chunks;
    step.For(n, 4 * kChunk * longest, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const StepItem& item = step.items()[i / chunks];
        const int64_t first = i % chunks * kChunk, row = item.row0;
        step.kernels().rg_lru(kernel::RgLruArgs{.state = item.State(state_offset_),
                                                .begin = first,
                                                .end = std::min(first + kChunk, config_.width),
                                                .tokens = item.tokens,
                                                .from_start = item.position == 0,
                                                .x = u[row],
                                                .ldx = u.stride,
                                                .input_gate = input_gate[row],
                                                .decay_gate = decay_gate[row],
                                                .ldg = input_gate.stride,
                                                .rate = weights_.rate.data(),
                                                .y = out[row],
                                                .ldy = out.stride});
      }
    });
  }

  const RgLruConfig& config_;
  const RgLruWeights& weights_;
  ConvLayer conv_;
  uint64_t state_offset_;
};

}  // namespace

std::unique_ptr<MixerBlock> MakeRgLru(const MixerPlace& place, const RgLruWeights& weights) {
  return std::make_unique<RgLruBlock>(place, weights);
}

void AddRgLruParts(const RgLruConfig& c, uint32_t layer, LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, c.conv_width, c.width));
  spec->parts.push_back(SsmPart(layer, {c.width}, "channel"));
}

double RgLruCost(const RgLruConfig& c, int64_t hidden) {
  const double matrices = 3 * Product(hidden, c.width) + 2 * Product(c.width, c.block_width());
  return 2 * (matrices + Product(c.conv_width, c.width)) + 8 * static_cast<double>(c.width);
}

}  // namespace baton::model
