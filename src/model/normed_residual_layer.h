// The layer whose residual is the normed input (models: minimax):
// h = norm(h); h = a * h + b * mixer(h), then the same with the feed-forward part and weights a, b
// of its own. Thread rule: as Layer.
#ifndef BATON_MODEL_NORMED_RESIDUAL_LAYER_H_
#define BATON_MODEL_NORMED_RESIDUAL_LAYER_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/layer.h"
#include "model/mixer.h"
#include "model/residual_layer.h"
#include "model/weights.h"

namespace baton::model {

class NormedResidualLayer final : public Layer {
 public:
  // `kind` is the kind of `mixer`; `config` has a normed residual.
  NormedResidualLayer(const ModelConfig& config,
                      const LayerWeights& weights,
                      Mixer kind,
                      std::unique_ptr<MixerBlock> mixer);

  int64_t Scratch(int64_t rows) const override;
  void Mix(const Step& step, Hidden* hidden) const override;
  void Feed(const Step& step, Hidden* hidden) const override;

 private:
  std::unique_ptr<MixerBlock> mixer_;
  FeedForward ffn_;
  NormRef mixer_norm_, ffn_norm_;
  ResidualShares mix_, feed_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_NORMED_RESIDUAL_LAYER_H_
