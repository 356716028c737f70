// A layer whose mixer and attention read the same normed input, side by side (models: falcon_h1):
// n = norm(h); h += a * mixer(b * n) + c * attention(d * n); h += m * ffn(norm(h)).
// Thread rule: as Layer.
#ifndef BATON_MODEL_PARALLEL_LAYER_H_
#define BATON_MODEL_PARALLEL_LAYER_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/layer.h"
#include "model/mixer.h"
#include "model/residual_layer.h"
#include "model/weights.h"

namespace baton::model {

class ParallelLayer final : public Layer {
 public:
  // `config.parallel` is set; config and weights outlive the layer.
  ParallelLayer(const ModelConfig& config,
                const LayerWeights& weights,
                std::unique_ptr<MixerBlock> mixer,
                std::unique_ptr<MixerBlock> attention);

  int64_t Scratch(int64_t rows) const override;
  void Mix(const Step& step, Hidden* hidden) const override;
  void Feed(const Step& step, Hidden* hidden) const override;

 private:
  // y = block(multiplier * x), to be added times `share`.
  void RunBlock(const Step& step,
                const MixerBlock& block,
                float multiplier,
                float share,
                Hidden* hidden) const;

  const ParallelConfig& config_;
  std::unique_ptr<MixerBlock> mixer_, attention_;
  FeedForward ffn_;
  NormRef mixer_norm_, ffn_norm_;
  float residual_multiplier_;
  int64_t width_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_PARALLEL_LAYER_H_
