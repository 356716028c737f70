#include "model/short_conv.h"

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

class ShortConvBlock final : public MixerBlock {
 public:
  ShortConvBlock(const MixerPlace& place, const ShortConvWeights& weights)
      : weights_(weights),
        channels_(place.config->hidden_size),
        conv_{&weights.conv_w,
              &weights.conv_b,
              channels_,
              place.config->short_conv->width,
              place.Part(kConvComponent),
              /*silu=*/false} {}

  int64_t Scratch(int64_t rows) const override {
    return Arena::Rounded(rows * 3 * channels_) + Arena::Rounded(rows * channels_);
  }

  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    const int64_t n = channels_;
    const ArenaScope scope(&step.arena());
    const Rows proj{step.arena().Take(rows * 3 * n), 3 * n};
    const Rows conv{step.arena().Take(rows * n), n};
    RunLinear(step, {&weights_.in, x, rows, proj});  // B | C | x
    step.For(rows, n / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().multiply(proj[r], proj[r] + 2 * n, n, proj[r]);
    });
    RunConv(step, conv_, proj, conv);
    step.For(rows, n / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().multiply(proj[r] + n, conv[r], n, conv[r]);
    });
    RunLinear(step, {&weights_.out, conv, rows, y});
  }

 private:
  const ShortConvWeights& weights_;
  int64_t channels_;
  ConvLayer conv_;
};

}  // namespace

std::unique_ptr<MixerBlock> MakeShortConv(const MixerPlace& place,
                                          const ShortConvWeights& weights) {
  return std::make_unique<ShortConvBlock>(place, weights);
}

void AddShortConvParts(const ModelConfig& config, uint32_t layer, LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, config.short_conv->width, config.hidden_size));
}

double ShortConvCost(const ShortConvConfig& c, int64_t hidden) {
  return 2 * (4 * Product(hidden, hidden) + Product(c.width, hidden)) + 2.0 * hidden;
}

}  // namespace baton::model
