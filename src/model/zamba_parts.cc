#include "model/zamba_parts.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

void BindMixer(const ModelConfig& config,
               WeightBinder* binder,
               const ZambaTensors& tensors,
               const std::string& prefix,
               LayerWeights* layer) {
  binder->Vector(prefix + "input_layernorm.weight", config.hidden_size, TensorRole::kNorm,
                 &layer->mixer_norm);
  tensors.mixer(config, binder, prefix + "mamba.", layer);
}

void BindBlock(const ModelConfig& config,
               WeightBinder* binder,
               const ZambaTensors& tensors,
               const std::string& prefix,
               SharedBlockWeights* block) {
  const int64_t h = config.hidden_size;
  binder->Vector(prefix + "input_layernorm.weight", 2 * h, TensorRole::kNorm, &block->input_norm);
  binder->Vector(prefix + "pre_ff_layernorm.weight", h, TensorRole::kNorm, &block->ffn_norm);
  BindAttentionWeights(config, binder, prefix + "self_attn.", &block->attention);
  tensors.mlp(config, binder, prefix + "feed_forward.", &block->mlp);
}

}  // namespace

LayerConfig ZambaPlain(Mixer mixer) { return LayerConfig{.mixer = mixer, .mlp = false}; }
LayerConfig ZambaHybrid(Mixer mixer) {
  return LayerConfig{.mixer = mixer, .mlp = false, .attention = true};
}

bool ParseZambaLayers(ConfigReader* reader, Mixer mixer, ModelConfig* config) {
  if (ParseLayerKinds(reader, {{"mamba", ZambaPlain(mixer)}, {"hybrid", ZambaHybrid(mixer)}},
                      config))
    return true;
  const std::vector<int64_t> hybrid = reader->Ints({"hybrid_layer_ids"}, kLayersRange.max);
  for (const int64_t i : hybrid) {
    if (i < 0 || i >= static_cast<int64_t>(config->layers.size())) {
      reader->Fail(absl::StrCat("\"hybrid_layer_ids\" names layer ", i, ", there are ",
                                config->layers.size()));
      return true;
    }
    config->layers[i] = ZambaHybrid(mixer);
  }
  return !hybrid.empty();
}

void ParseZambaBlock(ConfigReader* reader, int64_t default_width, ModelConfig* config) {
  const std::string act = reader->Text({"hidden_act"}, "gelu");
  if (act != "gelu")
    reader->Fail(absl::StrCat("\"hidden_act\" is \"", act, "\"; only \"gelu\" is supported"));
  config->max_position = reader->Int({"max_position_embeddings"}, 4096, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-5));
  config->tie_word_embeddings = reader->Bool({"tie_word_embeddings"}, true);
  if (config->CountMixers(Mixer::kAttention) == 0) return;
  SharedBlockConfig& block = config->shared_block.emplace();
  block.mlp = MlpConfig{reader->Int({"intermediate_size"}, default_width, kWidthRange), false,
                        MlpForm{.act = Activation::kGelu}};
  AttentionConfig a;
  a.input = 2 * config->hidden_size;
  a.heads = reader->Int({"num_attention_heads"}, 32, kHeadsRange);
  a.kv_heads = reader->Int({"num_key_value_heads"}, a.heads, kHeadsRange);
  a.head_dim = reader->Int({"attention_head_dim"}, a.input / a.heads, kAttentionDimRange);
  if (a.input % a.heads != 0 || a.heads % a.kv_heads != 0 || a.head_dim < 1 ||
      a.head_dim > kAttentionDimRange.max) {
    reader->Fail(absl::StrCat("attention of ", a.heads, " heads and ", a.kv_heads,
                              " KV heads over 2 * hidden_size = ", a.input,
                              " is not supported: a head must have 1 to ", kAttentionDimRange.max,
                              " dimensions, it would have ", a.input / a.heads));
    a.head_dim = 1;
  }
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim) / 2));
  config->attention = a;
}

void BindZambaLayers(const ModelConfig& config,
                     WeightBinder* binder,
                     const ZambaTensors& tensors,
                     DecoderWeights* weights) {
  BindEnds(config, binder, "model.final_layernorm.weight", weights);
  const size_t blocks =
      config.shared_block.has_value() ? static_cast<size_t>(config.shared_block->blocks) : 0;
  weights->shared_blocks.resize(blocks);
  std::vector<std::string> stored_at;  // each block with its first use
  size_t use = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    if (!config.layers[i].attention) {
      BindMixer(config, binder, tensors, prefix, layer);
      continue;
    }
    BindMixer(config, binder, tensors, prefix + "mamba_decoder.", layer);
    SharedUseWeights& shared = layer->shared.emplace();
    shared.block = use % blocks;
    binder->LinearLayer(prefix + "linear", config.hidden_size, config.hidden_size, false,
                        &shared.linear);
    const std::string block = prefix + tensors.block + ".";
    if (stored_at.size() == shared.block) {
      stored_at.push_back(block);
      BindBlock(config, binder, tensors, block, &weights->shared_blocks[shared.block]);
    } else {
      binder->IgnorePrefix(block);  // some exporters save the shared weights with every use
    }
    if (tensors.additions != nullptr)
      tensors.additions(config, binder, stored_at[shared.block], use, &shared);
    ++use;
  }
}

}  // namespace baton::model
