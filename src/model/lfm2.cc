// LFM2: gated short convolutions and attention with per-head norms of queries and keys; a gated
// MLP, or in lfm2_moe from the first few layers on routed experts.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// "layer_types", or in older files the attention layers' indices.
void ParseLayers(ConfigReader* reader, ModelConfig* config) {
  const int64_t count = reader->Int({"num_hidden_layers"}, 32, kLayersRange);
  config->layers.resize(count, LayerConfig{.mixer = Mixer::kShortConv});
  const std::vector<std::string> types = reader->Texts({"layer_types"}, kLayersRange.max);
  if (types.empty()) {
    const std::vector<int64_t> attention = reader->Ints({"full_attn_idxs"}, kLayersRange.max);
    const bool all = reader->Find({"full_attn_idxs"}) == nullptr;  // the library's default
    for (LayerConfig& layer : config->layers)
      if (all) layer.mixer = Mixer::kAttention;
    for (const int64_t i : attention) {
      if (i < 0 || i >= count) {
        return reader->Fail(
            absl::StrCat("\"full_attn_idxs\" names layer ", i, ", there are ", count, " layers"));
      }
      config->layers[i].mixer = Mixer::kAttention;
    }
    return;
  }
  if (static_cast<int64_t>(types.size()) != count) {
    return reader->Fail(absl::StrCat("\"layer_types\" lists ", types.size(),
                                     " layers, \"num_hidden_layers\" is ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (types[i] == "full_attention") {
      config->layers[i].mixer = Mixer::kAttention;
    } else if (types[i] != "conv") {
      return reader->Fail(absl::StrCat("layer ", i, " has type \"", types[i],
                                       "\"; \"conv\" and \"full_attention\" are supported"));
    }
  }
}

void ParseMixers(ConfigReader* reader, ModelConfig* config) {
  config->max_position = reader->Int({"max_position_embeddings"}, 128000, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"norm_eps", "block_norm_eps"}, 1e-5));
  config->tie_word_embeddings = reader->Bool({"tie_word_embeddings", "tie_embedding"}, true);
  ParseLayers(reader, config);
  if (config->CountMixers(Mixer::kAttention) > 0) {
    config->attention = ParseAttention(reader, *config, 8);
    config->attention->qk_norm = QkNorm::kPerHead;
    config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0, 1e6);
  }
  if (config->CountMixers(Mixer::kShortConv) > 0) {
    config->short_conv = ShortConvConfig{reader->Int({"conv_L_cache"}, 3, kConvRange),
                                         reader->Bool({"conv_bias"}, false)};
  }
}

// Published widths are those before the gate's third is taken off.
int64_t MlpWidth(ConfigReader* reader) {
  int64_t width = reader->Int({"intermediate_size", "block_ff_dim"}, 12288, kWidthRange);
  if (!reader->Bool({"block_auto_adjust_ff_dim"}, true)) return width;
  const double multiplier = reader->Positive({"block_ffn_dim_multiplier"}, 1.0);
  const int64_t multiple = reader->Int({"block_multiple_of"}, 256, kWidthRange);
  width = static_cast<int64_t>(static_cast<double>(2 * width / 3) * multiplier);
  if (width > kWidthRange.max || width < 1) {
    reader->Fail(absl::StrCat("\"block_ffn_dim_multiplier\" makes the MLP ", width, " wide"));
    return 1;
  }
  return (width + multiple - 1) / multiple * multiple;
}

void BindMixer(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               LayerWeights* layer) {
  const int64_t h = config.hidden_size;
  binder->Vector(prefix + "operator_norm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
  binder->Vector(prefix + "ffn_norm.weight", h, TensorRole::kNorm, &layer->ffn_norm);
}

void BindShortConv(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   ShortConvWeights* w) {
  const ShortConvConfig& c = *config.short_conv;
  const int64_t h = config.hidden_size;
  binder->LinearLayer(prefix + "in_proj", 3 * h, h, c.bias, &w->in);
  binder->Conv(prefix + "conv.weight", h, c.width, &w->conv_w);
  if (c.bias) binder->Vector(prefix + "conv.bias", h, TensorRole::kBias, &w->conv_b);
  binder->LinearLayer(prefix + "out_proj", h, h, c.bias, &w->out);
}

void BindAttentionBlock(const ModelConfig& config,
                        WeightBinder* binder,
                        const std::string& prefix,
                        AttentionWeights* w) {
  const AttentionConfig& a = *config.attention;
  const int64_t h = config.hidden_size, q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  binder->LinearLayer(prefix + "q_proj", q, h, a.bias, &w->q);
  binder->LinearLayer(prefix + "k_proj", kv, h, a.bias, &w->k);
  binder->LinearLayer(prefix + "v_proj", kv, h, a.bias, &w->v);
  binder->LinearLayer(prefix + "out_proj", h, q, a.bias, &w->o);
  binder->Vector(prefix + "q_layernorm.weight", a.head_dim, TensorRole::kNorm, &w->q_norm);
  binder->Vector(prefix + "k_layernorm.weight", a.head_dim, TensorRole::kNorm, &w->k_norm);
}

void BindGatedMlp(const ModelConfig& config,
                  WeightBinder* binder,
                  const std::string& prefix,
                  MlpWeights* w) {
  const int64_t h = config.hidden_size, width = config.mlp->width;
  binder->LinearLayer(prefix + "w1", width, h, false, &w->gate);
  binder->LinearLayer(prefix + "w3", width, h, false, &w->up);
  binder->LinearLayer(prefix + "w2", h, width, false, &w->down);
}

void BindMoe(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             MoeWeights* w) {
  const MoeConfig& m = *config.moe;
  binder->LinearLayer(prefix + "gate", m.experts, config.hidden_size, false, &w->router);
  if (m.correction)
    binder->Vector(prefix + "expert_bias", m.experts, TensorRole::kBias, &w->correction);
  BindExperts(config, binder, prefix + "experts.", ExpertNames{"w1", "w3", "w2"}, w);
}

}  // namespace

void ParseLfm2(ConfigReader* reader, ModelConfig* config) {
  ParseMixers(reader, config);
  config->mlp = MlpConfig{MlpWidth(reader), false};
}

// Experts from layer "num_dense_layers" on; the MLP before them is as wide as stated.
void ParseLfm2Moe(ConfigReader* reader, ModelConfig* config) {
  ParseMixers(reader, config);
  const int64_t layers = static_cast<int64_t>(config->layers.size());
  const int64_t dense = reader->Int({"num_dense_layers"}, 2, Range{0, kLayersRange.max});
  for (int64_t i = dense; i < layers; ++i) {
    config->layers[i].mlp = false;
    config->layers[i].moe = true;
  }
  if (dense > 0)
    config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 7168, kWidthRange), false};
  if (dense >= layers) return;
  MoeConfig& moe = config->moe.emplace();
  moe.experts = reader->Int({"num_experts"}, 32, Range{1, kExpertsRange.max});
  moe.top_k = reader->Int({"num_experts_per_tok"}, 4, Range{1, moe.experts});
  moe.width = reader->Int({"moe_intermediate_size"}, 1792, kWidthRange);
  moe.router = Router::kSigmoid;
  moe.correction = reader->Bool({"use_expert_bias"}, true);
  moe.renormalise = reader->Bool({"norm_topk_prob"}, true);
  moe.renormalise_eps = 1e-6f;
  moe.scale = static_cast<float>(reader->Positive({"routed_scaling_factor"}, 1.0));
}

void BindLfm2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.embedding_norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    BindMixer(config, binder, prefix, layer);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindAttentionBlock(config, binder, prefix + "self_attn.", &layer->attention.emplace());
    } else {
      BindShortConv(config, binder, prefix + "conv.", &layer->short_conv.emplace());
    }
    if (config.layers[i].moe) {
      BindMoe(config, binder, prefix + "feed_forward.", &layer->moe.emplace());
    } else {
      BindGatedMlp(config, binder, prefix + "feed_forward.", &layer->mlp.emplace());
    }
  }
}

}  // namespace baton::model
