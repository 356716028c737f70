#include "model/prefill_cost.h"

#include "model/mixer.h"

namespace baton::model {
namespace {

double MoePerToken(const MoeConfig& m, int64_t hidden) {
  const double matrices = m.gated ? 3 : 2;
  const double routed = matrices * Product(m.latent > 0 ? m.latent : hidden, m.top_k * m.width);
  return 2 * (Product(hidden, m.experts) + routed + 2 * Product(hidden, m.latent) +
              matrices * Product(hidden, m.shared_width));
}

}  // namespace

PrefillCost CountPrefillCost(const ModelConfig& config) {
  PrefillCost cost;
  for (const LayerConfig& layer : config.layers) {
    const MixerCost mixer = CountMixerCost(layer.mixer, config);
    cost.per_token += mixer.per_token;
    cost.per_token_pair += mixer.per_token_pair;
    if (layer.mlp) cost.per_token += 2 * 3 * Product(config.hidden_size, config.mlp->width);
    if (layer.moe) cost.per_token += MoePerToken(*config.moe, config.hidden_size);
  }
  return cost;
}

}  // namespace baton::model
