// Qwen3.5 and later, dense: gated delta rule layers with one gated attention layer in four, a gated
// MLP in each. The text part alone or beside a vision model, which is left out.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/qwen_parts.h"

namespace baton::model {

void ParseQwen35(ConfigReader* reader, ModelConfig* config) {
  ParseQwenMixers(reader, QwenDefaults{.layers = 32, .kv_heads = 4}, config);
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 12288, kWidthRange)};
}

void BindQwen35(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  AllowQwenNames(binder);
  BindQwenEnds(config, binder, weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    BindQwenNorms(config, binder, prefix, layer);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindQwenAttention(config, binder, prefix + "self_attn.", &layer->attention.emplace());
    } else {
      GatedDeltaWeights& delta = layer->gated_delta.emplace();
      BindQwen35Projections(config, binder, prefix + "linear_attn.", &delta);
      BindQwenDelta(config, binder, prefix + "linear_attn.", &delta);
    }
    BindMlp(config, binder, prefix + "mlp.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
