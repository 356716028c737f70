// The layer most architectures are made of: h += m * mixer(norm(h)); h += m * ffn(norm(h)). Either
// half may be missing (models: nemotron_h, mamba). With ModelConfig.attention_post_norm, an
// attention layer is h += m * norm(mixer(h)), and so its FFN. Thread rule: as Layer.
#ifndef BATON_MODEL_RESIDUAL_LAYER_H_
#define BATON_MODEL_RESIDUAL_LAYER_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/layer.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

// The feed-forward part of a layer: a gated MLP, routed experts, or the sum of both. Points into
// config and weights, which outlive it.
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, const LayerWeights& weights);
  bool empty() const { return !weights_.mlp.has_value() && !weights_.moe.has_value(); }
  int64_t Scratch(int64_t rows) const;
  void Run(const Step& step, Rows x, Rows y, int64_t rows) const;

 private:
  const ModelConfig& config_;
  const LayerWeights& weights_;
};

class ResidualLayer final : public Layer {
 public:
  // `mixer` null: no first half.
  ResidualLayer(const ModelConfig& config,
                const LayerWeights& weights,
                std::unique_ptr<MixerBlock> mixer);

  int64_t Scratch(int64_t rows) const override;
  void Mix(const Step& step, Hidden* hidden) const override;
  void Feed(const Step& step, Hidden* hidden) const override;

 private:
  std::unique_ptr<MixerBlock> mixer_;
  FeedForward ffn_;
  NormRef mixer_norm_, ffn_norm_;
  float residual_multiplier_;
  bool post_norm_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_RESIDUAL_LAYER_H_
