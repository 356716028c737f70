#include "model/lfm2_parts.h"

#include "absl/strings/str_cat.h"
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

}  // namespace

void ParseLfm2Mixers(ConfigReader* reader, ModelConfig* config) {
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

void BindLfm2Mixer(const ModelConfig& config,
                   WeightBinder* binder,
                   size_t index,
                   LayerWeights* layer) {
  const std::string prefix = LayerPrefix(index);
  const int64_t h = config.hidden_size;
  binder->Vector(prefix + "operator_norm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
  binder->Vector(prefix + "ffn_norm.weight", h, TensorRole::kNorm, &layer->ffn_norm);
  if (config.layers[index].mixer == Mixer::kAttention) {
    BindAttentionBlock(config, binder, prefix + "self_attn.", &layer->attention.emplace());
  } else {
    BindShortConv(config, binder, prefix + "conv.", &layer->short_conv.emplace());
  }
}

void BindLfm2Mlp(const ModelConfig& config,
                 WeightBinder* binder,
                 size_t index,
                 LayerWeights* layer) {
  const std::string prefix = LayerPrefix(index) + "feed_forward.";
  const int64_t h = config.hidden_size, width = config.mlp->width;
  MlpWeights* w = &layer->mlp.emplace();
  binder->LinearLayer(prefix + "w1", width, h, false, &w->gate);
  binder->LinearLayer(prefix + "w3", width, h, false, &w->up);
  binder->LinearLayer(prefix + "w2", h, width, false, &w->down);
}

}  // namespace baton::model
