// RecurrentGemma (Griffin): RG-LRU blocks and attention over a window, a GELU-gated MLP with
// biases, norms of 1 + w, embeddings times sqrt(h), capped logits.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernel/functions.h"
#include "kernel/packed_matrix.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// A pattern that repeats until every layer has its kind.
void ParseLayers(ConfigReader* reader, ModelConfig* config) {
  const int64_t count = reader->Int({"num_hidden_layers"}, 26, kLayersRange);
  config->layers.resize(count, LayerConfig{.mixer = Mixer::kRgLru});
  std::vector<std::string> types = reader->Texts({"block_types", "_block_types"}, kLayersRange.max);
  if (types.empty()) types = {"recurrent", "recurrent", "attention"};
  for (size_t i = 0; i < config->layers.size(); ++i) {
    const std::string& type = types[i % types.size()];
    if (type == "attention") {
      config->layers[i].mixer = Mixer::kAttention;
    } else if (type != "recurrent") {
      return reader->Fail(absl::StrCat("\"block_types\" names \"", type,
                                       "\"; \"recurrent\" and \"attention\" are supported"));
    }
  }
}

void RequireGeluTanh(ConfigReader* reader) {
  const std::string act = reader->Text({"hidden_activation", "hidden_act"}, "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh" && act != "gelu_new") {
    reader->Fail(absl::StrCat("\"hidden_activation\" is \"", act,
                              "\"; only \"gelu_pytorch_tanh\" is supported"));
  }
}

// A block-diagonal matrix, stored as [blocks, in, out].
void BindGate(const RgLruConfig& c,
              WeightBinder* binder,
              const std::string& prefix,
              std::vector<Linear>* gate) {
  gate->resize(c.blocks);
  binder->TransposedBlocks(prefix + "_weight", c.blocks, c.block_width(), gate);
  binder->BlockBiases(prefix + "_bias", c.blocks, c.block_width(), gate);
}

void BindRecurrent(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   RgLruWeights* w) {
  const RgLruConfig& c = *config.rg_lru;
  const int64_t h = config.hidden_size;
  binder->LinearLayer(prefix + "linear_x", c.width, h, true, &w->x);
  binder->LinearLayer(prefix + "linear_y", c.width, h, true, &w->y);
  binder->Conv(prefix + "conv_1d.weight", c.width, c.conv_width, &w->conv_w);
  binder->Vector(prefix + "conv_1d.bias", c.width, TensorRole::kBias, &w->conv_b);
  BindGate(c, binder, prefix + "rg_lru.input_gate", &w->input_gate);
  BindGate(c, binder, prefix + "rg_lru.recurrent_gate", &w->decay_gate);
  binder->Vector(prefix + "rg_lru.recurrent_param", c.width, TensorRole::kRgLru, &w->rate,
                 [](float v) { return -8.0f * kernel::Softplus(v); });
  binder->LinearLayer(prefix + "linear_out", h, c.width, true, &w->out);
}

void BindWindowAttention(const ModelConfig& config,
                         WeightBinder* binder,
                         const std::string& prefix,
                         AttentionWeights* w) {
  const AttentionConfig& a = *config.attention;
  const int64_t h = config.hidden_size, q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  binder->LinearLayer(prefix + "q_proj", q, h, a.bias, &w->q);
  binder->LinearLayer(prefix + "k_proj", kv, h, a.bias, &w->k);
  binder->LinearLayer(prefix + "v_proj", kv, h, a.bias, &w->v);
  binder->LinearLayer(prefix + "o_proj", h, q, true, &w->o);  // whatever attention_bias says
}

}  // namespace

void ParseRecurrentGemma(ConfigReader* reader, ModelConfig* config) {
  RequireGeluTanh(reader);
  // The model itself has no bound; this is what it was trained with.
  config->max_position = reader->Int({"max_position_embeddings"}, 8192, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  config->tie_word_embeddings = reader->Bool({"tie_word_embeddings"}, true);
  if (reader->Find({"logits_soft_cap"}) != nullptr)
    config->logits_soft_cap = static_cast<float>(reader->Positive({"logits_soft_cap"}, 30.0));
  // Rounded to what the model computes in, as everywhere in the published code.
  const float root = static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  const uint16_t rounded = kernel::ToBF16(root);
  config->embedding_multiplier = config->stated_dtype == "bfloat16"
                                     ? kernel::LoadElement(&rounded, kernel::DType::kBF16, 0)
                                     : root;
  ParseLayers(reader, config);
  const AttentionConfig attention = ParseAttention(reader, *config, std::nullopt);
  if (config->CountMixers(Mixer::kAttention) > 0) {
    AttentionConfig& a = config->attention.emplace(attention);
    a.window = reader->Int({"attention_window_size"}, 2048, kPositionRange);
    const double share = reader->Positive({"partial_rotary_factor"}, 0.5);
    a.rope = ParseRope(reader, a.head_dim, std::min(share, 1.0));
  }
  if (config->CountMixers(Mixer::kRgLru) > 0) {
    RgLruConfig& r = config->rg_lru.emplace();
    r.width = reader->Int({"lru_width"}, config->hidden_size, kWidthRange);
    r.blocks = attention.heads;
    r.conv_width = reader->Int({"conv1d_width"}, 4, kConvRange);
    if (r.width % r.blocks != 0) {
      reader->Fail(absl::StrCat("\"lru_width\" (", r.width,
                                ") is no multiple of \"num_attention_heads\" (", r.blocks, ")"));
    }
  }
  const int64_t width =
      reader->Int({"intermediate_size"}, 3 * config->hidden_size, Range{2, kWidthRange.max});
  config->mlp = MlpConfig{width / 2, true, MlpForm{.act = Activation::kGeluTanh}};
}

void BindRecurrentGemma(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  binder->Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                 &weights->embedding.w, TensorRole::kEmbedding);
  if (config.tie_word_embeddings) {
    binder->Ignore("lm_head.weight");  // some exporters save the tied copy too
  } else {
    binder->Matrix("lm_head.weight", config.vocab_size, config.hidden_size, &weights->lm_head.w);
  }
  const int64_t h = config.hidden_size;
  binder->NormPlusOne("model.final_norm.weight", h, &weights->final_norm);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    binder->NormPlusOne(prefix + "temporal_pre_norm.weight", h, &layer->mixer_norm);
    binder->NormPlusOne(prefix + "channel_pre_norm.weight", h, &layer->ffn_norm);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindWindowAttention(config, binder, prefix + "temporal_block.", &layer->attention.emplace());
    } else {
      BindRecurrent(config, binder, prefix + "temporal_block.", &layer->rg_lru.emplace());
    }
    BindMlp(config, binder, prefix + "mlp_block.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
