#include "model/prefill_cost.h"

namespace baton::model {
namespace {

double Product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// Parameters that one token is multiplied with, and the operations of the recurrence itself.
double Mamba2PerToken(const Mamba2Config& m, int64_t hidden) {
  const double matrices = Product(hidden, m.in_proj()) + Product(m.inner(), hidden);
  const double conv = Product(m.conv_width, m.conv_channels());
  // Decay, outer product and its addition, then the read-out: 5 per element of the state.
  return 2 * (matrices + conv) + 5 * Product(m.inner(), m.state);
}

double Mamba1PerToken(const Mamba1Config& m, int64_t hidden) {
  const double matrices = Product(hidden, 2 * m.inner) + Product(m.inner, m.dt_rank + 2 * m.state) +
                          Product(m.dt_rank, m.inner) + Product(m.inner, hidden);
  const double conv = Product(m.conv_width, m.inner);
  return 2 * (matrices + conv) + 6 * Product(m.inner, m.state);
}

double AttentionPerToken(const AttentionConfig& a, int64_t hidden) {
  return 2 * 2 * (Product(hidden, a.heads * a.head_dim) + Product(hidden, a.kv_heads * a.head_dim));
}

}  // namespace

PrefillCost CountPrefillCost(const ModelConfig& config) {
  PrefillCost cost;
  for (const LayerConfig& layer : config.layers) {
    switch (layer.mixer) {
      case Mixer::kAttention:
        cost.per_token += AttentionPerToken(*config.attention, config.hidden_size);
        // Scores and values, each 2 per head element, over n / 2 keys on average.
        cost.per_token_pair += 2 * Product(config.attention->heads, config.attention->head_dim);
        break;
      case Mixer::kMamba2:
        cost.per_token += Mamba2PerToken(*config.mamba2, config.hidden_size);
        break;
      case Mixer::kMamba1:
        cost.per_token += Mamba1PerToken(*config.mamba1, config.hidden_size);
        break;
    }
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
