// Nemotron-H and Nemotron 3: one block per layer, Mamba-2 with groups, attention without
// positions, an MLP of squared ReLUs, or routed experts (a layer of the last two has no mixer).
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

constexpr LayerConfig kMambaLayer{.mixer = Mixer::kMamba2, .mlp = false};
constexpr LayerConfig kAttentionLayer{.mixer = Mixer::kAttention, .mlp = false};
constexpr LayerConfig kMlpLayer{.mixer = Mixer::kNone, .mlp = true};
constexpr LayerConfig kMoeLayer{.mixer = Mixer::kNone, .mlp = false, .moe = true};

// A letter a layer, or a list of words; num_hidden_layers does not count.
void ParseLayers(ConfigReader* reader, ModelConfig* config) {
  const std::string pattern = reader->Text({"hybrid_override_pattern"}, "");
  if (pattern.empty()) {
    const auto words = reader->Texts({"layers_block_type"}, kLayersRange.max);
    config->layers.resize(words.size());
    if (words.empty())
      return reader->Fail(
          "neither \"hybrid_override_pattern\" nor \"layers_block_type\" says what the layers are");
    ParseLayerKinds(reader,
                    {{"mamba", kMambaLayer},
                     {"attention", kAttentionLayer},
                     {"mlp", kMlpLayer},
                     {"moe", kMoeLayer}},
                    config);
    return;
  }
  if (static_cast<int64_t>(pattern.size()) > kLayersRange.max)
    return reader->Fail(absl::StrCat("\"hybrid_override_pattern\" has ", pattern.size(),
                                     " layers, at most ", kLayersRange.max, " are supported"));
  for (size_t i = 0; i < pattern.size(); ++i) {
    switch (pattern[i]) {
      case 'M':
        config->layers.push_back(kMambaLayer);
        break;
      case '*':
        config->layers.push_back(kAttentionLayer);
        break;
      case '-':
        config->layers.push_back(kMlpLayer);
        break;
      case 'E':
        config->layers.push_back(kMoeLayer);
        break;
      default:
        return reader->Fail(absl::StrCat("\"hybrid_override_pattern\" has '",
                                         std::string(1, pattern[i]), "' for layer ", i,
                                         "; M, *, - and E are supported"));
    }
  }
}

Mamba2Config ParseMixer(ConfigReader* reader) {
  Mamba2Config m;
  m.heads = reader->Int({"mamba_num_heads"}, 128, kHeadsRange);
  m.head_dim = reader->Int({"mamba_head_dim"}, 64, kWidthRange);
  m.state = reader->Int({"ssm_state_size"}, 128, kStateRange);
  m.groups = reader->Int({"n_groups", "mamba_n_groups"}, 8, kHeadsRange);
  m.norm_groups = m.groups;
  m.conv_width = reader->Int({"conv_kernel", "mamba_d_conv"}, 4, kConvRange);
  m.conv_bias = reader->Bool({"use_conv_bias", "mamba_conv_bias"}, true);
  m.proj_bias = reader->Bool({"use_bias", "mamba_proj_bias"}, false);
  const std::string act = reader->Text({"mamba_hidden_act"}, "silu");
  if (act != "silu" && act != "swish")
    reader->Fail(absl::StrCat("\"mamba_hidden_act\" is \"", act, "\"; only \"silu\" is supported"));
  CheckMamba2(reader, m);
  ParseStepLimit(reader, &m);
  return m;
}

MoeConfig ParseMoe(ConfigReader* reader) {
  MoeConfig m;
  m.experts = reader->Int({"n_routed_experts"}, 8, Range{1, kExpertsRange.max});
  m.top_k = reader->Int({"num_experts_per_tok"}, 2, Range{1, m.experts});
  m.width = reader->Int({"moe_intermediate_size"}, 7688, kWidthRange);
  m.router = Router::kSigmoid;
  m.correction = true;
  m.renormalise = reader->Bool({"norm_topk_prob"}, true);
  m.renormalise_eps = 1e-20f;
  m.scale = static_cast<float>(reader->Positive({"routed_scaling_factor"}, 1.0));
  m.groups = reader->Int({"n_group"}, 1, Range{1, kExpertGroupsMax});
  m.top_groups = reader->Int({"topk_group"}, 1, Range{1, m.groups});
  m.gated = false;
  m.latent = reader->Int({"moe_latent_size"}, 0, Range{0, kWidthRange.max});
  // Shared experts are stored as one.
  if (reader->Int({"n_shared_experts"}, 1, Range{0, 1}) == 1)
    m.shared_width = reader->Int({"moe_shared_expert_intermediate_size"}, 7688, kWidthRange);
  return m;
}

// {up,down}_proj without a gate and without biases.
void BindPlainMlp(
    WeightBinder* binder, const std::string& prefix, int64_t in, int64_t width, MlpWeights* w) {
  binder->LinearLayer(prefix + "up_proj", width, in, false, &w->up);
  binder->LinearLayer(prefix + "down_proj", in, width, false, &w->down);
}

void BindMoe(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             MoeWeights* w) {
  const MoeConfig& m = *config.moe;
  const int64_t h = config.hidden_size;
  binder->LinearLayer(prefix + "gate", m.experts, h, false, &w->router);
  binder->Vector(prefix + "gate.e_score_correction_bias", m.experts, TensorRole::kBias,
                 &w->correction);
  BindExperts(config, binder, prefix + "experts.", {"", "up_proj", "down_proj"}, w);
  if (m.latent > 0) {
    binder->LinearLayer(prefix + "fc1_latent_proj", m.latent, h, false, &w->latent_in);
    binder->LinearLayer(prefix + "fc2_latent_proj", h, m.latent, false, &w->latent_out);
  }
  if (m.shared_width > 0)
    BindPlainMlp(binder, prefix + "shared_experts.", h, m.shared_width, &w->shared.emplace());
}

}  // namespace

void ParseNemotronH(ConfigReader* reader, ModelConfig* config) {
  reader->RequireAbsent({"sliding_window"}, "windowed attention is not supported for nemotron_h");
  config->max_position = reader->Int({"max_position_embeddings"}, 4096, kPositionRange);
  config->rms_norm_eps =
      static_cast<float>(reader->Positive({"layer_norm_epsilon", "rms_norm_eps"}, 1e-5));
  ParseLayers(reader, config);
  bool mlp = false, moe = false;
  for (const LayerConfig& layer : config->layers) {
    mlp |= layer.mlp;
    moe |= layer.moe;
  }
  const std::string act = reader->Text({"mlp_hidden_act"}, "relu2");
  if (act != "relu2")
    reader->Fail(absl::StrCat("\"mlp_hidden_act\" is \"", act, "\"; only \"relu2\" is supported"));
  if (config->CountMixers(Mixer::kAttention) > 0)
    config->attention = ParseAttention(reader, *config, 8);
  if (config->CountMixers(Mixer::kMamba2) > 0) config->mamba2 = ParseMixer(reader);
  const bool bias = reader->Bool({"mlp_bias"}, false);
  if (mlp) {
    config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 21504, kWidthRange), bias,
                            MlpForm{.act = Activation::kRelu2, .gated = false}};
  }
  if (moe) {
    if (bias) reader->Fail("\"mlp_bias\" is true: experts with biases are not supported");
    config->moe = ParseMoe(reader);
  }
}

void BindNemotronH(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindBackboneEnds(config, binder, weights);
  binder->AlsoNamed("backbone.", "model.");
  binder->IgnorePrefix("mtp.");  // drafts of later tokens
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("backbone.layers.", i, "."), block = prefix + "mixer.";
    const LayerConfig& kind = config.layers[i];
    LayerWeights* layer = &weights->layers[i];
    binder->Vector(prefix + "norm.weight", config.hidden_size, TensorRole::kNorm,
                   kind.mixer == Mixer::kNone ? &layer->ffn_norm : &layer->mixer_norm);
    if (kind.mixer == Mixer::kMamba2) BindMamba2(config, binder, block, layer);
    if (kind.mixer == Mixer::kAttention) BindAttention(config, binder, block, layer);
    if (kind.mlp) BindMlp(config, binder, block, *config.mlp, &layer->mlp.emplace());
    if (kind.moe) BindMoe(config, binder, block, &layer->moe.emplace());
  }
}

}  // namespace baton::model
