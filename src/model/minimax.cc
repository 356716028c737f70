// MiniMax-Text-01: lightning attention and full attention, routed experts in every layer, and a
// residual that is the normed input.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// "layer_types", or in the original release "attn_type_list" of 0 (linear) and 1 (full).
void ParseLayers(ConfigReader* reader, ModelConfig* config) {
  const int64_t count = reader->Int({"num_hidden_layers"}, 32, kLayersRange);
  config->layers.resize(count, LayerConfig{.mixer = Mixer::kLightning, .mlp = false, .moe = true});
  std::vector<std::string> types = reader->Texts({"layer_types"}, kLayersRange.max);
  if (types.empty()) {
    for (const int64_t full : reader->Ints({"attn_type_list"}, kLayersRange.max))
      types.push_back(full == 1 ? "full_attention" : full == 0 ? "linear_attention" : "unknown");
  }
  if (types.empty()) {  // the library's default
    for (int64_t i = 0; i < count; i += 2) config->layers[i].mixer = Mixer::kAttention;
    return;
  }
  if (static_cast<int64_t>(types.size()) != count) {
    return reader->Fail(absl::StrCat("\"layer_types\" lists ", types.size(),
                                     " layers, \"num_hidden_layers\" is ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (types[i] == "full_attention") {
      config->layers[i].mixer = Mixer::kAttention;
    } else if (types[i] != "linear_attention") {
      return reader->Fail(absl::StrCat("layer ", i, " has type \"", types[i],
                                       "\"; \"linear_attention\" and \"full_attention\" are "
                                       "supported"));
    }
  }
}

ResidualShares ParseShares(ConfigReader* reader,
                           const char* alpha,
                           const char* old_alpha,
                           const char* beta,
                           const char* old_beta) {
  return ResidualShares{static_cast<float>(reader->Positive({alpha, old_alpha}, 1.0)),
                        static_cast<float>(reader->Positive({beta, old_beta}, 1.0))};
}

void BindLightning(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   LightningWeights* w) {
  const int64_t h = config.hidden_size, n = config.lightning->inner();
  binder->LinearLayer(prefix + "qkv_proj", 3 * n, h, false, &w->qkv);
  binder->LinearLayer(prefix + "output_gate", n, h, false, &w->gate);
  binder->Vector(prefix + "norm.weight", n, TensorRole::kNorm, &w->norm);
  binder->LinearLayer(prefix + "out_proj", h, n, false, &w->out);
}

}  // namespace

void ParseMiniMax(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  reader->RequireAbsent({"sliding_window"}, "windowed attention is not supported for minimax");
  reader->RequireAbsent({"shared_intermediate_size"}, "a shared expert is not supported");
  if (!reader->Bool({"postnorm"}, true))
    reader->Fail("\"postnorm\" is false; the residual must be the normed input");
  // The release states 10,240,000, more than angles are exact for: served as far as they are.
  config->max_position =
      std::min(reader->Int({"max_position_embeddings"}, 131072, Range{1, int64_t{1} << 30}),
               kPositionRange.max);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-5));
  ParseLayers(reader, config);
  // Both kinds of layer have the same heads.
  const AttentionConfig attention = ParseAttention(reader, *config, 8);
  if (config->CountMixers(Mixer::kAttention) > 0) {
    config->attention = attention;
    const int64_t dims =
        reader->Int({"rotary_dim"}, attention.head_dim, Range{1, attention.head_dim});
    const double share = static_cast<double>(dims) / static_cast<double>(attention.head_dim);
    config->attention->rope = ParseRope(reader, attention.head_dim, share, 1e6);
  }
  if (config->CountMixers(Mixer::kLightning) > 0)
    config->lightning = LightningConfig{attention.heads, attention.head_dim};
  NormedResidualConfig& residual = config->normed_residual.emplace();
  residual.attention =
      ParseShares(reader, "full_attn_alpha_factor", "layernorm_full_attention_alpha",
                  "full_attn_beta_factor", "layernorm_full_attention_beta");
  residual.linear =
      ParseShares(reader, "linear_attn_alpha_factor", "layernorm_linear_attention_alpha",
                  "linear_attn_beta_factor", "layernorm_linear_attention_beta");
  residual.ffn = ParseShares(reader, "mlp_alpha_factor", "layernorm_mlp_alpha", "mlp_beta_factor",
                             "layernorm_mlp_beta");
  MoeConfig& moe = config->moe.emplace();
  moe.experts = reader->Int({"num_local_experts"}, 8, Range{1, kExpertsRange.max});
  moe.top_k = reader->Int({"num_experts_per_tok"}, 2, Range{1, moe.experts});
  moe.width = reader->Int({"intermediate_size"}, 14336, kWidthRange);
  moe.router = Router::kSoftmax;
  moe.renormalise = true;
}

void BindMiniMax(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const int64_t h = config.hidden_size;
    binder->Vector(prefix + "input_layernorm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
    binder->Vector(prefix + "post_attention_layernorm.weight", h, TensorRole::kNorm,
                   &layer->ffn_norm);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindAttention(config, binder, prefix + "self_attn.", layer);
    } else {
      BindLightning(config, binder, prefix + "self_attn.", &layer->lightning.emplace());
    }
    const std::string moe = prefix + "block_sparse_moe.";
    MoeWeights* w = &layer->moe.emplace();
    binder->LinearLayer(moe + "gate", config.moe->experts, h, false, &w->router);
    BindExperts(config, binder, moe + "experts.", ExpertNames{"w1", "w3", "w2"}, w);
  }
}

}  // namespace baton::model
