#include "model/parallel_layer.h"

#include <algorithm>
#include <utility>

namespace baton::model {

ParallelLayer::ParallelLayer(const ModelConfig& config,
                             const LayerWeights& weights,
                             std::unique_ptr<MixerBlock> mixer,
                             std::unique_ptr<MixerBlock> attention)
    : config_(*config.parallel),
      mixer_(std::move(mixer)),
      attention_(std::move(attention)),
      ffn_(config, weights),
      mixer_norm_{&weights.mixer_norm, config.rms_norm_eps},
      ffn_norm_{&weights.ffn_norm, config.rms_norm_eps},
      residual_multiplier_(config.residual_multiplier),
      width_(config.hidden_size) {}

int64_t ParallelLayer::Scratch(int64_t rows) const {
  const int64_t blocks = std::max(mixer_->Scratch(rows), attention_->Scratch(rows));
  return std::max(Arena::Rounded(rows * width_) + blocks, ffn_.Scratch(rows));
}

void ParallelLayer::RunBlock(const Step& step,
                             const MixerBlock& block,
                             float multiplier,
                             float share,
                             Hidden* hidden) const {
  const ArenaScope scope(&step.arena());
  Rows in = hidden->x;  // the other block reads it too
  if (multiplier != 1.0f) {
    in = Rows{step.arena().Take(hidden->rows * width_), width_};
    step.For(hidden->rows, width_ / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().scale(hidden->x[r], multiplier, width_, in[r]);
    });
  }
  block.Run(step, in, hidden->y, hidden->rows);
  hidden->Leave(share * residual_multiplier_);
}

void ParallelLayer::Mix(const Step& step, Hidden* hidden) const {
  AddAndNorm(step, mixer_norm_, hidden);
  RunBlock(step, *mixer_, config_.mixer_in, config_.mixer_out, hidden);
  AddPending(step, hidden);
  RunBlock(step, *attention_, config_.attention_in, config_.attention_out, hidden);
}

void ParallelLayer::Feed(const Step& step, Hidden* hidden) const {
  AddAndNorm(step, ffn_norm_, hidden);
  ffn_.Run(step, hidden->x, hidden->y, hidden->rows);
  hidden->Leave(residual_multiplier_);
}

}  // namespace baton::model
