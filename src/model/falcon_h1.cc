// Falcon-H1: Mamba-2 and attention side by side in every layer, a gated MLP, and a multiplier at
// every joint.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// `count` numbers under `key`, or ones.
std::vector<float> Multipliers(ConfigReader* reader, const char* key, size_t count) {
  const std::vector<double> found = reader->Numbers({key}, count);
  if (found.empty()) return std::vector<float>(count, 1.0f);
  if (found.size() != count) {
    reader->Fail(absl::StrCat("\"", key, "\" has ", found.size(), " numbers, expected ", count));
    return std::vector<float>(count, 1.0f);
  }
  return std::vector<float>(found.begin(), found.end());
}

void ParseMixer(ConfigReader* reader, ModelConfig* config) {
  std::optional<int64_t> inner;
  if (reader->Find({"mamba_d_ssm"}) != nullptr)
    inner = reader->Int({"mamba_d_ssm"}, std::nullopt, kWidthRange);
  Mamba2Config m = ParseMamba2(reader, *config, inner);
  m.norm_groups = m.groups;
  if (!reader->Bool({"mamba_rms_norm"}, false)) {
    m.gate_norm = GateNorm::kNone;
  } else if (reader->Bool({"mamba_norm_before_gate"}, true)) {
    m.gate_norm = GateNorm::kNormFirst;
  }
  const std::vector<float> by = Multipliers(reader, "ssm_multipliers", m.multipliers.size());
  std::copy(by.begin(), by.end(), m.multipliers.begin());
  config->mamba2 = m;
}

}  // namespace

void ParseFalconH1(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  reader->RequireAbsent({"projectors_bias"}, "biases of output projections are not supported");
  const auto multiplier = [&](const char* key) {
    return static_cast<float>(reader->Number({key}, 1.0));
  };
  config->max_position = reader->Int({"max_position_embeddings"}, 8192, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-5));
  config->embedding_multiplier = multiplier("embedding_multiplier");
  config->logits_divisor = static_cast<float>(1.0 / reader->Positive({"lm_head_multiplier"}, 1.0));
  config->layers.resize(reader->Int({"num_hidden_layers"}, 32, kLayersRange),
                        LayerConfig{.mixer = Mixer::kMamba2, .attention = true});
  config->parallel = ParallelConfig{.mixer_in = multiplier("ssm_in_multiplier"),
                                    .mixer_out = multiplier("ssm_out_multiplier"),
                                    .attention_in = multiplier("attention_in_multiplier"),
                                    .attention_out = multiplier("attention_out_multiplier")};
  config->attention = ParseAttention(reader, *config, 8);
  config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0, 100000.0);
  config->attention->key_multiplier = multiplier("key_multiplier");
  ParseMixer(reader, config);
  const std::vector<float> by = Multipliers(reader, "mlp_multipliers", 2);
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 14336, kWidthRange),
                          reader->Bool({"mlp_bias"}, false),
                          MlpForm{.gate_multiplier = by[0], .down_multiplier = by[1]}};
}

void BindFalconH1(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.final_layernorm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const int64_t h = config.hidden_size;
    binder->Vector(prefix + "input_layernorm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
    binder->Vector(prefix + "pre_ff_layernorm.weight", h, TensorRole::kNorm, &layer->ffn_norm);
    BindMamba2(config, binder, prefix + "mamba.", layer);
    BindAttention(config, binder, prefix + "self_attn.", layer);
    BindMlp(config, binder, prefix + "feed_forward.", *config.mlp, &layer->mlp.emplace());
  }
}

}  // namespace baton::model
