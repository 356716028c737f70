// Zamba2: Mamba-2 in every layer, and in some layers before it one of several shared blocks of
// attention and MLP, with low-rank additions per use.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"
#include "model/zamba_parts.h"

namespace baton::model {
namespace {

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

// Gate over up in one tensor.
void BindBlockMlp(const ModelConfig& config,
                  WeightBinder* binder,
                  const std::string& prefix,
                  MlpWeights* w) {
  const int64_t h = config.hidden_size, width = config.shared_block->mlp.width;
  binder->MatrixRows(prefix + "gate_up_proj.weight", {2 * width, h}, 0, width, &w->gate.w);
  binder->MatrixRows(prefix + "gate_up_proj.weight", {2 * width, h}, width, width, &w->up.w);
  binder->LinearLayer(prefix + "down_proj", h, width, false, &w->down);
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

}  // namespace

void ParseZamba2(ConfigReader* reader, ModelConfig* config) {
  reader->RequireAbsent({"add_bias_linear"}, "biases of the projections are not supported");
  reader->RequireAbsent({"use_long_context"}, "the stretched rotation is not supported");
  config->layers.resize(reader->Int({"num_hidden_layers"}, 54, kLayersRange),
                        ZambaPlain(Mixer::kMamba2));
  if (!ParseZambaLayers(reader, Mixer::kMamba2, config)) {
    reader->Fail(
        "neither \"layers_block_type\" nor \"hybrid_layer_ids\" says which layers use a shared "
        "block");
  }
  config->mamba2 = ParseMamba2Groups(reader, *config);
  ParseZambaBlock(reader, 4 * config->hidden_size, config);
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

void BindZamba2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindZambaLayers(config, binder,
                  ZambaTensors{.block = "shared_transformer",
                               .mixer = BindMamba2,
                               .mlp = BindBlockMlp,
                               .additions = BindAdditions},
                  weights);
}

}  // namespace baton::model
