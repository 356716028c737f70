// OLMo Hybrid: gated delta rule layers (norm before each block, a convolution each for queries,
// keys and values) with one attention layer in four (norm after each block, queries and keys normed
// over all heads); a gated MLP in each.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// Of the gated norm; no key of the config says it.
constexpr float kNormEps = 1e-5f;

// Released checkpoints say "rope_theta": null, which is no rotation at all.
bool Rotates(const ConfigReader& reader) {
  const Json* rope = reader.Find({"rope_parameters", "rope_scaling"});
  if (rope != nullptr && rope->is_object() && rope->contains("rope_theta"))
    return !(*rope)["rope_theta"].is_null();
  return reader.Find({"rope_theta"}) != nullptr;
}

}  // namespace

void ParseOlmoHybrid(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position = reader->Int({"max_position_embeddings"}, 65536, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  config->attention_post_norm = true;
  ParseDeltaLayers(reader, reader->Int({"num_hidden_layers"}, 32, kLayersRange), 4, config);
  const int64_t heads = reader->Int({"num_attention_heads"}, 30, kHeadsRange);
  if (config->CountMixers(Mixer::kAttention) > 0) {
    config->attention = ParseAttention(reader, *config, std::nullopt, heads);
    config->attention->qk_norm = QkNorm::kAllHeads;
    if (Rotates(*reader))
      config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0);
  }
  if (config->CountMixers(Mixer::kGatedDelta) > 0) {
    const int64_t key = std::max<int64_t>(1, config->hidden_size * 3 / (4 * heads));
    config->gated_delta = ParseGatedDelta(reader, {heads, heads, key, 2 * key});
    config->gated_delta->norm_eps = kNormEps;
    if (reader->Bool({"linear_allow_neg_eigval"}, true)) config->gated_delta->beta_scale = 2;
  }
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 11008, kWidthRange)};
}

namespace {

void BindDelta(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               GatedDeltaWeights* w) {
  const GatedDeltaConfig& g = *config.gated_delta;
  const int64_t h = config.hidden_size;
  const struct {
    const char* name;
    int64_t rows;
  } in[] = {{"q_proj", g.keys()},   {"k_proj", g.keys()},      {"v_proj", g.values()},
            {"g_proj", g.values()}, {"b_proj", g.value_heads}, {"a_proj", g.value_heads}};
  w->in.resize(std::size(in));
  for (size_t i = 0; i < std::size(in); ++i)
    binder->LinearLayer(prefix + in[i].name, in[i].rows, h, false, &w->in[i]);
  const int64_t all = g.conv_channels();
  binder->ConvRange(prefix + "q_conv1d.weight", g.keys(), g.conv_width, {0, all}, &w->conv_w);
  binder->ConvRange(prefix + "k_conv1d.weight", g.keys(), g.conv_width, {g.keys(), all},
                    &w->conv_w);
  binder->ConvRange(prefix + "v_conv1d.weight", g.values(), g.conv_width, {2 * g.keys(), all},
                    &w->conv_w);
  binder->Vector(prefix + "dt_bias", g.value_heads, TensorRole::kDtBias, &w->dt_bias);
  binder->Decay(prefix + "A_log", g.value_heads, &w->a);
  binder->Vector(prefix + "o_norm.weight", g.value_dim, TensorRole::kNorm, &w->norm);
  binder->LinearLayer(prefix + "o_proj", h, g.values(), false, &w->out);
}

}  // namespace

void BindOlmoHybrid(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.norm.weight", weights);
  // Names in the published checkpoint.
  binder->AlsoNamed(".input_layernorm.", ".attention_layer_norm.");
  binder->AlsoNamed(".post_attention_layernorm.", ".feedforward_layer_norm.");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const bool attention = config.layers[i].mixer == Mixer::kAttention;
    const auto norm = [&](const char* name, std::vector<float>* to) {
      binder->Vector(prefix + name, config.hidden_size, TensorRole::kNorm, to);
    };
    norm(attention ? "post_attention_layernorm.weight" : "input_layernorm.weight",
         &layer->mixer_norm);
    norm(attention ? "post_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
         &layer->ffn_norm);
    if (attention) {
      const AttentionConfig& a = *config.attention;
      BindAttention(config, binder, prefix + "self_attn.", layer);
      binder->Vector(prefix + "self_attn.q_norm.weight", a.heads * a.head_dim, TensorRole::kNorm,
                     &layer->attention->q_norm);
      binder->Vector(prefix + "self_attn.k_norm.weight", a.kv_heads * a.head_dim, TensorRole::kNorm,
                     &layer->attention->k_norm);
    } else {
      BindDelta(config, binder, prefix + "linear_attn.", &layer->gated_delta.emplace());
    }
    BindMlp(config, binder, prefix + "mlp.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
