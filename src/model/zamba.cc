// Zamba and Zamba2: a mixer in every layer, and in some layers before it a block of attention and
// MLP over (h, embeddings) whose weights those layers share. zamba has Mamba-1 in heads and one
// block; zamba2 has Mamba-2, several blocks, and low-rank additions per use.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

LayerConfig Plain(Mixer mixer) { return LayerConfig{.mixer = mixer, .mlp = false}; }
LayerConfig Hybrid(Mixer mixer) {
  return LayerConfig{.mixer = mixer, .mlp = false, .attention = true};
}

// Gives layers their kind by layers_block_type or, in older files, hybrid_layer_ids.
bool ParseHybridLayers(ConfigReader* reader, Mixer mixer, ModelConfig* config) {
  if (ParseLayerKinds(reader, {{"mamba", Plain(mixer)}, {"hybrid", Hybrid(mixer)}}, config))
    return true;
  const std::vector<int64_t> hybrid = reader->Ints({"hybrid_layer_ids"}, kLayersRange.max);
  for (const int64_t i : hybrid) {
    if (i < 0 || i >= static_cast<int64_t>(config->layers.size())) {
      reader->Fail(absl::StrCat("\"hybrid_layer_ids\" names layer ", i, ", there are ",
                                config->layers.size()));
      return true;
    }
    config->layers[i] = Hybrid(mixer);
  }
  return !hybrid.empty();
}

// What both types spell alike. `default_width` is of the MLP.
void ParseSharedBlock(ConfigReader* reader, int64_t default_width, ModelConfig* config) {
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

Mamba1Config ParseMamba1Heads(ConfigReader* reader, const ModelConfig& config) {
  Mamba1Config m;
  m.heads = reader->Int({"n_mamba_heads"}, 2, Range{1, 1024});
  m.inner = config.hidden_size * reader->Int({"mamba_expand"}, 2, Range{1, 64});
  m.state = reader->Int({"mamba_d_state"}, 16, kStateRange);
  m.conv_width = reader->Int({"mamba_d_conv"}, 4, kConvRange);
  m.dt_rank =
      reader->IntOrAuto({"mamba_dt_rank"}, kWidthRange).value_or((config.hidden_size + 15) / 16);
  m.conv_bias = reader->Bool({"mamba_conv_bias"}, true);
  m.proj_bias = reader->Bool({"mamba_proj_bias"}, false);
  m.part_norm = PartNorm::kNone;
  if (m.inner % m.heads != 0) {
    reader->Fail(absl::StrCat("mamba_expand * hidden_size (", m.inner,
                              ") is no multiple of \"n_mamba_heads\" (", m.heads, ")"));
  }
  if (m.proj_bias)
    reader->Fail("\"mamba_proj_bias\" is true: biases of the projections are not supported");
  const std::string act = reader->Text({"hidden_mamba_act"}, "silu");
  if (act != "silu" && act != "swish")
    reader->Fail(absl::StrCat("\"hidden_mamba_act\" is \"", act, "\"; only \"silu\" is supported"));
  return m;
}

Mamba2Config ParseMamba2Groups(ConfigReader* reader, const ModelConfig& config) {
  Mamba2Config m;
  const int64_t inner = config.hidden_size * reader->Int({"mamba_expand"}, 2, Range{1, 64});
  m.heads = reader->Int({"n_mamba_heads"}, 8, kHeadsRange);
  m.head_dim = reader->Int({"mamba_headdim"}, inner / m.heads, kWidthRange);
  m.state = reader->Int({"mamba_d_state"}, 64, kStateRange);
  m.groups = reader->Int({"mamba_ngroups"}, 1, kHeadsRange);
  m.norm_groups = m.groups;
  m.norm_eps = 1e-5f;  // whatever the file says
  m.conv_width = reader->Int({"mamba_d_conv"}, 4, kConvRange);
  m.conv_bias = reader->Bool({"use_conv_bias"}, true);
  if (m.inner() != inner) {
    reader->Fail(absl::StrCat("n_mamba_heads * mamba_headdim is ", m.inner(),
                              ", but mamba_expand * hidden_size is ", inner));
  }
  CheckMamba2(reader, m);
  ParseStepLimit(reader, &m);
  return m;
}

void BindMamba1Heads(const ModelConfig& config,
                     WeightBinder* binder,
                     const std::string& prefix,
                     Mamba1Weights* w) {
  const Mamba1Config& m = *config.mamba1;
  const int64_t h = config.hidden_size, channels = m.head_channels(), n = m.inner;
  // Stored as x0 z0 x1 z1 ...; wanted as x | z.
  binder->MatrixReordered(
      prefix + "in_proj.weight", 2 * n, h,
      [n](int64_t row) { return row < n ? 2 * row : 2 * (row - n) + 1; }, &w->in.w);
  binder->Conv(prefix + "conv1d.weight", n, m.conv_width, &w->conv_w);
  if (m.conv_bias) binder->Vector(prefix + "conv1d.bias", n, TensorRole::kBias, &w->conv_b);
  w->x.resize(m.heads);
  w->dt.resize(m.heads);
  for (int64_t i = 0; i < m.heads; ++i) {
    binder->MatrixRows(prefix + "x_proj_weight", {m.heads, m.part_width(), channels},
                       i * m.part_width(), m.part_width(), &w->x[i].w);
    binder->MatrixRows(prefix + "dt_proj_weight", {m.heads, channels, m.dt_rank}, i * channels,
                       channels, &w->dt[i].w);
  }
  binder->FlatVector(prefix + "dt_proj_bias", {m.heads, channels}, TensorRole::kDtBias,
                     &w->dt_bias);
  binder->Decay2d(prefix + "A_log", {m.heads, channels, m.state}, &w->a);
  binder->FlatVector(prefix + "D", {m.heads, channels}, TensorRole::kSkip, &w->d);
  binder->LinearLayer(prefix + "out_proj", h, n, false, &w->out);
}

void BindMixer(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               LayerWeights* layer) {
  binder->Vector(prefix + "input_layernorm.weight", config.hidden_size, TensorRole::kNorm,
                 &layer->mixer_norm);
  if (config.mamba2.has_value()) {
    BindMamba2(config, binder, prefix + "mamba.", layer);
  } else {
    BindMamba1Heads(config, binder, prefix + "mamba.", &layer->mamba1.emplace());
  }
}

void BindBlock(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               SharedBlockWeights* block) {
  const int64_t h = config.hidden_size, width = config.shared_block->mlp.width;
  const std::string mlp = prefix + "feed_forward.";
  binder->Vector(prefix + "input_layernorm.weight", 2 * h, TensorRole::kNorm, &block->input_norm);
  binder->Vector(prefix + "pre_ff_layernorm.weight", h, TensorRole::kNorm, &block->ffn_norm);
  BindAttentionWeights(config, binder, prefix + "self_attn.", &block->attention);
  if (config.mamba2.has_value()) {  // zamba2 keeps gate over up in one
    binder->MatrixRows(mlp + "gate_up_proj.weight", {2 * width, h}, 0, width, &block->mlp.gate.w);
    binder->MatrixRows(mlp + "gate_up_proj.weight", {2 * width, h}, width, width, &block->mlp.up.w);
    binder->LinearLayer(mlp + "down_proj", h, width, false, &block->mlp.down);
  } else {
    BindMlp(config, binder, mlp, config.shared_block->mlp, &block->mlp);
  }
}

// The additions of the `use`-th use, stored with the block: list.USE.0 is A, list.USE.1 is B.
void BindAdditions(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& block,
                   size_t use,
                   SharedUseWeights* to) {
  const SharedBlockConfig& s = *config.shared_block;
  const AttentionConfig& a = *config.attention;
  const int64_t h = config.hidden_size, width = s.mlp.width;
  if (s.mlp_rank > 0) {
    const std::string list = absl::StrCat(block, "feed_forward.gate_up_proj_adapter_list.", use);
    LowRank& l = to->gate_up.emplace();
    l.b.resize(2);
    binder->Matrix(list + ".0.weight", s.mlp_rank, h, &l.a.w);
    for (int64_t i = 0; i < 2; ++i) {
      binder->MatrixRows(list + ".1.weight", {2 * width, s.mlp_rank}, i * width, width, &l.b[i].w);
    }
  }
  if (s.attention_rank == 0) return;
  const int64_t rows[] = {a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.head_dim};
  const char* names[] = {"q", "k", "v"};
  to->qkv.resize(3);
  for (int i = 0; i < 3; ++i) {
    const std::string list =
        absl::StrCat(block, "self_attn.linear_", names[i], "_adapter_list.", use);
    to->qkv[i].b.resize(1);
    binder->Matrix(list + ".0.weight", s.attention_rank, a.input, &to->qkv[i].a.w);
    binder->Matrix(list + ".1.weight", rows[i], s.attention_rank, &to->qkv[i].b[0].w);
  }
}

// `block_name`: what the block is called inside a layer.
void BindLayers(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& block_name,
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
      BindMixer(config, binder, prefix, layer);
      continue;
    }
    BindMixer(config, binder, prefix + "mamba_decoder.", layer);
    SharedUseWeights& shared = layer->shared.emplace();
    shared.block = use % blocks;
    binder->LinearLayer(prefix + "linear", config.hidden_size, config.hidden_size, false,
                        &shared.linear);
    const std::string block = prefix + block_name + ".";
    if (stored_at.size() == shared.block) {
      stored_at.push_back(block);
      BindBlock(config, binder, block, &weights->shared_blocks[shared.block]);
    } else {
      binder->IgnorePrefix(block);  // some exporters save the shared weights with every use
    }
    BindAdditions(config, binder, stored_at[shared.block], use++, &shared);
  }
}

}  // namespace

void ParseZamba(ConfigReader* reader, ModelConfig* config) {
  config->layers.resize(reader->Int({"num_hidden_layers"}, 76, kLayersRange),
                        Plain(Mixer::kMamba1));
  if (!ParseHybridLayers(reader, Mixer::kMamba1, config)) {
    const int64_t period = reader->Int({"attn_layer_period"}, 6, kLayersRange);
    const int64_t offset = reader->Int({"attn_layer_offset"}, 4, Range{0, kLayersRange.max});
    // Two plain ones, a hybrid, and then every `period`-th, counted from there.
    for (size_t i = 2; i < config->layers.size(); ++i) {
      if (i == 2 || static_cast<int64_t>(i - 3) % period == offset)
        config->layers[i] = Hybrid(Mixer::kMamba1);
    }
  }
  config->mamba1 = ParseMamba1Heads(reader, *config);
  ParseSharedBlock(reader, 14848, config);
}

void ParseZamba2(ConfigReader* reader, ModelConfig* config) {
  reader->RequireAbsent({"add_bias_linear"}, "biases of the projections are not supported");
  reader->RequireAbsent({"use_long_context"}, "the stretched rotation is not supported");
  config->layers.resize(reader->Int({"num_hidden_layers"}, 54, kLayersRange),
                        Plain(Mixer::kMamba2));
  if (!ParseHybridLayers(reader, Mixer::kMamba2, config)) {
    reader->Fail(
        "neither \"layers_block_type\" nor \"hybrid_layer_ids\" says which layers use a shared "
        "block");
  }
  config->mamba2 = ParseMamba2Groups(reader, *config);
  ParseSharedBlock(reader, 4 * config->hidden_size, config);
  if (!config->shared_block.has_value()) return;
  const int64_t uses = config->CountMixers(Mixer::kAttention);
  config->shared_block->blocks = reader->Int({"num_mem_blocks"}, 1, Range{1, uses});
  const int64_t rank = reader->Int({"adapter_rank"}, 128, kWidthRange);
  config->shared_block->mlp_rank = rank;
  if (reader->Bool({"use_shared_attention_adapter"}, false))
    config->shared_block->attention_rank = rank;
  if (reader->Bool({"use_mem_rope"}, false))
    config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0);
}

void BindZamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindLayers(config, binder, "shared_transf", weights);
}

void BindZamba2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindLayers(config, binder, "shared_transformer", weights);
}

}  // namespace baton::model
