// Zamba: Mamba-1 in heads in every layer, and in some layers before it the one block of attention
// and MLP that they share.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/zamba_parts.h"

namespace baton::model {
namespace {

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

void BindMamba1Heads(const ModelConfig& config,
                     WeightBinder* binder,
                     const std::string& prefix,
                     LayerWeights* layer) {
  const Mamba1Config& m = *config.mamba1;
  Mamba1Weights* w = &layer->mamba1.emplace();
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

void BindBlockMlp(const ModelConfig& config,
                  WeightBinder* binder,
                  const std::string& prefix,
                  MlpWeights* w) {
  BindMlp(config, binder, prefix, config.shared_block->mlp, w);
}

}  // namespace

void ParseZamba(ConfigReader* reader, ModelConfig* config) {
  config->layers.resize(reader->Int({"num_hidden_layers"}, 76, kLayersRange),
                        ZambaPlain(Mixer::kMamba1));
  if (!ParseZambaLayers(reader, Mixer::kMamba1, config)) {
    const int64_t period = reader->Int({"attn_layer_period"}, 6, kLayersRange);
    const int64_t offset = reader->Int({"attn_layer_offset"}, 4, Range{0, kLayersRange.max});
    // Two plain ones, a hybrid, and then every `period`-th, counted from there.
    for (size_t i = 2; i < config->layers.size(); ++i) {
      if (i == 2 || static_cast<int64_t>(i - 3) % period == offset)
        config->layers[i] = ZambaHybrid(Mixer::kMamba1);
    }
  }
  config->mamba1 = ParseMamba1Heads(reader, *config);
  ParseZambaBlock(reader, 14848, config);
}

void BindZamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindZambaLayers(
      config, binder,
      ZambaTensors{.block = "shared_transf", .mixer = BindMamba1Heads, .mlp = BindBlockMlp},
      weights);
}

}  // namespace baton::model
