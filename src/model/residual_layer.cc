#include "model/residual_layer.h"

#include <algorithm>
#include <utility>

#include "model/mlp.h"

namespace baton::model {

namespace {

// y = norm(y).
void NormOutput(const Step& step, NormRef norm, const Hidden& hidden) {
  step.For(hidden.rows, hidden.width / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      step.kernels().rms_norm(hidden.y[r], norm.weight->data(), hidden.width, norm.eps,
                              hidden.y[r]);
    }
  });
}

}  // namespace

FeedForward::FeedForward(const ModelConfig& config, const LayerWeights& weights)
    : config_(config), weights_(weights) {}

int64_t FeedForward::Scratch(int64_t rows) const {
  int64_t floats = 0;
  if (weights_.mlp.has_value()) floats = MlpScratch(*config_.mlp, rows);
  if (weights_.moe.has_value())
    floats = std::max(floats, MoeScratch(*config_.moe, config_.hidden_size, rows));
  return floats;
}

void FeedForward::Run(const Step& step, Rows x, Rows y, int64_t rows) const {
  if (weights_.mlp.has_value()) {
    RunMlp(step, *weights_.mlp, x, y, rows, config_.mlp->form);
  } else {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(y[r], config_.hidden_size, 0.0f);
  }
  if (weights_.moe.has_value()) AddMoe(step, *config_.moe, *weights_.moe, x, y, rows);
}

ResidualLayer::ResidualLayer(const ModelConfig& config,
                             const LayerWeights& weights,
                             std::unique_ptr<MixerBlock> mixer)
    : mixer_(std::move(mixer)),
      ffn_(config, weights),
      mixer_norm_{&weights.mixer_norm, config.rms_norm_eps},
      ffn_norm_{&weights.ffn_norm, config.rms_norm_eps},
      residual_multiplier_(config.residual_multiplier),
      post_norm_(config.attention_post_norm && weights.attention.has_value()) {}

int64_t ResidualLayer::Scratch(int64_t rows) const {
  return std::max(mixer_ == nullptr ? 0 : mixer_->Scratch(rows), ffn_.Scratch(rows));
}

void ResidualLayer::Mix(const Step& step, Hidden* hidden) const {
  if (mixer_ == nullptr) return;
  if (post_norm_) {
    AddPending(step, hidden);
    mixer_->Run(step, hidden->h, hidden->y, hidden->rows);
    NormOutput(step, mixer_norm_, *hidden);
  } else {
    AddAndNorm(step, mixer_norm_, hidden);
    mixer_->Run(step, hidden->x, hidden->y, hidden->rows);
  }
  hidden->Leave(residual_multiplier_);
}

void ResidualLayer::Feed(const Step& step, Hidden* hidden) const {
  if (ffn_.empty()) return;
  if (post_norm_) {
    AddPending(step, hidden);
    ffn_.Run(step, hidden->h, hidden->y, hidden->rows);
    NormOutput(step, ffn_norm_, *hidden);
  } else {
    AddAndNorm(step, ffn_norm_, hidden);
    ffn_.Run(step, hidden->x, hidden->y, hidden->rows);
  }
  hidden->Leave(residual_multiplier_);
}

}  // namespace baton::model
