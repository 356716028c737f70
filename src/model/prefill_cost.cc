#include "model/prefill_cost.h"

#include "model/mixer.h"

namespace baton::model {
namespace {

double MlpPerToken(const MlpConfig& mlp, int64_t hidden) {
  return 2 * (mlp.form.gated ? 3 : 2) * Product(hidden, mlp.width);
}

void AddMixer(Mixer kind, const ModelConfig& config, PrefillCost* cost) {
  const MixerCost mixer = CountMixerCost(kind, config);
  cost->per_token += mixer.per_token;
  cost->per_token_pair += mixer.per_token_pair;
}

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
    AddMixer(layer.mixer, config, &cost);
    if (layer.attention) AddMixer(Mixer::kAttention, config, &cost);
    if (layer.attention && config.shared_block.has_value()) {
      const int64_t h = config.hidden_size;
      const SharedBlockConfig& s = *config.shared_block;
      const AttentionConfig& a = *config.attention;
      const double ranks = Product(s.mlp_rank, h + 2 * s.mlp.width) +
                           Product(s.attention_rank, 3 * (a.input + a.heads * a.head_dim));
      cost.per_token += MlpPerToken(s.mlp, h) + 2 * (Product(h, h) + ranks);
    }
    if (layer.mlp) cost.per_token += MlpPerToken(*config.mlp, config.hidden_size);
    if (layer.moe) cost.per_token += MoePerToken(*config.moe, config.hidden_size);
  }
  return cost;
}

}  // namespace baton::model
