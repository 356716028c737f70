// Jamba: Mamba-1 layers with one attention layer in eight (no positions), MLP and routed experts
// in alternate layers.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// Layers i with i % period == offset.
struct Every {
  int64_t period;
  int64_t offset;
  bool Holds(int64_t i) const { return i % period == offset; }
};

Every ParseEvery(ConfigReader* reader,
                 const char* period_key,
                 const char* offset_key,
                 Every fallback) {
  Every e;
  e.period = reader->Int({period_key}, fallback.period, kLayersRange);
  e.offset = reader->Int({offset_key}, fallback.offset, Range{0, kLayersRange.max});
  if (e.offset >= e.period) {
    reader->Fail(absl::StrCat("\"", offset_key, "\" (", e.offset, ") is not below \"", period_key,
                              "\" (", e.period, ")"));
  }
  return e;
}

Mamba1Config ParseMamba1(ConfigReader* reader, const ModelConfig& config) {
  Mamba1Config m;
  m.inner = config.hidden_size * reader->Int({"mamba_expand"}, 2, Range{1, 64});
  m.state = reader->Int({"mamba_d_state"}, 16, kStateRange);
  m.conv_width = reader->Int({"mamba_d_conv"}, 4, kConvRange);
  m.dt_rank =
      reader->IntOrAuto({"mamba_dt_rank"}, kWidthRange).value_or((config.hidden_size + 15) / 16);
  m.conv_bias = reader->Bool({"mamba_conv_bias"}, true);
  m.proj_bias = reader->Bool({"mamba_proj_bias"}, false);
  return m;
}

}  // namespace

void ParseJamba(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  reader->RequireAbsent({"sliding_window"}, "windowed attention is not supported for jamba");
  config->max_position = reader->Int({"max_position_embeddings"}, 262144, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  config->layers.resize(reader->Int({"num_hidden_layers"}, 32, kLayersRange));
  const Every attention = ParseEvery(reader, "attn_layer_period", "attn_layer_offset", Every{8, 4});
  const Every moe = ParseEvery(reader, "expert_layer_period", "expert_layer_offset", Every{2, 1});
  const int64_t experts = reader->Int({"num_experts"}, 16, Range{1, kExpertsRange.max});
  const int64_t width = reader->Int({"intermediate_size"}, 14336, kWidthRange);
  bool any_mlp = false, any_moe = false;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.mixer = attention.Holds(i) ? Mixer::kAttention : Mixer::kMamba1;
    layer.moe = moe.Holds(i) && experts > 1;  // one expert is a plain MLP
    layer.mlp = !layer.moe;
    any_mlp |= layer.mlp;
    any_moe |= layer.moe;
  }
  if (config->CountMixers(Mixer::kAttention) > 0)
    config->attention = ParseAttention(reader, *config, 8);
  if (config->CountMixers(Mixer::kMamba1) > 0) config->mamba1 = ParseMamba1(reader, *config);
  if (any_mlp) config->mlp = MlpConfig{width, false};
  if (any_moe) {
    config->moe = MoeConfig{.experts = experts,
                            .top_k = reader->Int({"num_experts_per_tok"}, 2, Range{1, experts}),
                            .width = width,
                            .router = Router::kSoftmax};
  }
}

void BindJamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
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
      BindMamba1(config, binder, prefix + "mamba.", layer);
    }
    if (config.layers[i].moe) {
      const std::string block = prefix + "feed_forward.";
      MoeWeights& moe = layer->moe.emplace();
      binder->LinearLayer(block + "router", config.moe->experts, h, false, &moe.router);
      BindExperts(config, binder, block + "experts.", {"gate_proj", "up_proj", "down_proj"}, &moe);
    } else {
      BindMlp(config, binder, prefix + "feed_forward.", *config.mlp, &layer->mlp.emplace());
    }
  }
}

}  // namespace baton::model
