// Llama: attention with rotary positions in every layer, gated MLP; the pure-attention contrast.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {

void ParseLlama(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position = reader->Int({"max_position_embeddings"}, 2048, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  config->layers.resize(reader->Int({"num_hidden_layers"}, 32, kLayersRange));
  config->attention = ParseAttention(reader, *config, std::nullopt);
  const double share = reader->Number({"partial_rotary_factor"}, 1.0);
  if (share != 1.0) reader->Fail("\"partial_rotary_factor\" other than 1 is not known for llama");
  config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0);
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 11008, kWidthRange),
                          reader->Bool({"mlp_bias"}, false)};
}

void BindLlama(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const int64_t h = config.hidden_size;
    binder->Vector(prefix + "input_layernorm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
    binder->Vector(prefix + "post_attention_layernorm.weight", h, TensorRole::kNorm,
                   &layer->ffn_norm);
    BindAttention(config, binder, prefix + "self_attn.", layer);
    BindMlp(config, binder, prefix + "mlp.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
