#include "model/normed_residual_layer.h"

#include <algorithm>
#include <utility>

namespace baton::model {
namespace {

// h = scale * x.
void KeepNormed(const Step& step, float scale, Hidden* hidden) {
  step.For(hidden->rows, hidden->width / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().scale(hidden->x[r], scale, hidden->width, hidden->h[r]);
  });
}

}  // namespace

NormedResidualLayer::NormedResidualLayer(const ModelConfig& config,
                                         const LayerWeights& weights,
                                         Mixer kind,
                                         std::unique_ptr<MixerBlock> mixer)
    : mixer_(std::move(mixer)),
      ffn_(config, weights),
      mixer_norm_{&weights.mixer_norm, config.rms_norm_eps},
      ffn_norm_{&weights.ffn_norm, config.rms_norm_eps},
      mix_(kind == Mixer::kAttention ? config.normed_residual->attention
                                     : config.normed_residual->linear),
      feed_(config.normed_residual->ffn) {}

int64_t NormedResidualLayer::Scratch(int64_t rows) const {
  return std::max(mixer_->Scratch(rows), ffn_.Scratch(rows));
}

void NormedResidualLayer::Mix(const Step& step, Hidden* hidden) const {
  AddAndNorm(step, mixer_norm_, hidden);
  KeepNormed(step, mix_.residual, hidden);
  mixer_->Run(step, hidden->x, hidden->y, hidden->rows);
  hidden->Leave(mix_.output);
}

void NormedResidualLayer::Feed(const Step& step, Hidden* hidden) const {
  AddAndNorm(step, ffn_norm_, hidden);
  KeepNormed(step, feed_.residual, hidden);
  ffn_.Run(step, hidden->x, hidden->y, hidden->rows);
  hidden->Leave(feed_.output);
}

}  // namespace baton::model
