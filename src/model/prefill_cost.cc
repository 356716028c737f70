#include "model/prefill_cost.h"

#include "model/mixer.h"

namespace baton::model {

PrefillCost CountPrefillCost(const ModelConfig& config) {
  PrefillCost cost;
  for (const LayerConfig& layer : config.layers) {
    const MixerCost mixer = CountMixerCost(layer.mixer, config);
    cost.per_token += mixer.per_token;
    cost.per_token_pair += mixer.per_token_pair;
    if (layer.mlp) cost.per_token += 2 * 3 * Product(config.hidden_size, config.mlp->width);
    if (layer.moe) {
      const MoeConfig& moe = *config.moe;
      cost.per_token += 2 * (Product(config.hidden_size, moe.experts) +
                             3 * Product(config.hidden_size, moe.top_k * moe.width));
    }
  }
  return cost;
}

}  // namespace baton::model
