// Bamba: Mamba-2 layers with a few attention layers (half of each head rotated), gated MLP.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {

void ParseBamba(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position = reader->Int({"max_position_embeddings"}, 262144, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-5));
  config->layers.resize(reader->Int({"num_hidden_layers"}, 32, kLayersRange),
                        LayerConfig{.mixer = Mixer::kMamba2});
  for (const int64_t i : reader->Ints({"attn_layer_indices"}, config->layers.size())) {
    if (i < 0 || i >= static_cast<int64_t>(config->layers.size()))
      return reader->Fail(absl::StrCat("\"attn_layer_indices\" names layer ", i, ", there are ",
                                       config->layers.size()));
    config->layers[i].mixer = Mixer::kAttention;
  }
  if (config->CountMixers(Mixer::kAttention) > 0) {
    config->attention = ParseAttention(reader, *config, 8);
    // The published code fixes the rotated share whatever the file says.
    config->attention->rope = ParseRope(reader, config->attention->head_dim, 0.5);
  }
  if (config->CountMixers(Mixer::kMamba2) > 0) {
    config->mamba2 = ParseMamba2(reader, *config);
    // The reference normalises over the whole width even with several groups of B and C.
    config->mamba2->norm_groups = 1;
  }
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 14336, kWidthRange),
                          reader->Bool({"mlp_bias"}, false)};
}

void BindBamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.final_layernorm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const int64_t h = config.hidden_size;
    binder->Vector(prefix + "input_layernorm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
    binder->Vector(prefix + "pre_ff_layernorm.weight", h, TensorRole::kNorm, &layer->ffn_norm);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindAttention(config, binder, prefix + "self_attn.", layer);
    } else {
      BindMamba2(config, binder, prefix + "mamba.", layer);
    }
    BindMlp(config, binder, prefix + "feed_forward.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
