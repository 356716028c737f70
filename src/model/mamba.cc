// Pure state-space models, no attention and no KV: Mamba-1 (mamba; falcon_mamba, which also
// normalises dt, B and C without weights) and Mamba-2 (mamba2). A layer is its mixer only.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

// What the three types spell alike; every layer becomes a `mixer`.
void ParseCommon(ConfigReader* reader, Mixer mixer, int64_t layers, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position =
      reader->Int({"max_position_embeddings"}, kUnstatedMaxPosition, kPositionRange);
  config->rms_norm_eps =
      static_cast<float>(reader->Positive({"layer_norm_epsilon", "rms_norm_eps"}, 1e-5));
  config->layers.resize(reader->Int({"num_hidden_layers", "n_layer"}, layers, kLayersRange),
                        LayerConfig{.mixer = mixer, .mlp = false});
}

Mamba1Config ParseMamba1Parts(ConfigReader* reader, const ModelConfig& config) {
  Mamba1Config m;
  const int64_t expanded = config.hidden_size * reader->Int({"expand"}, 2, Range{1, 64});
  m.inner = reader->Int({"intermediate_size", "d_inner"}, expanded, kWidthRange);
  m.state = reader->Int({"state_size"}, 16, kStateRange);
  m.conv_width = reader->Int({"conv_kernel"}, 4, kConvRange);
  m.dt_rank =
      reader->IntOrAuto({"time_step_rank"}, kWidthRange).value_or((config.hidden_size + 15) / 16);
  m.conv_bias = reader->Bool({"use_conv_bias"}, true);
  m.proj_bias = reader->Bool({"use_bias"}, false);
  m.part_norm = PartNorm::kNone;
  return m;
}

std::string MixerPrefix(size_t layer) { return absl::StrCat("backbone.layers.", layer, "."); }

void BindNorm(const ModelConfig& config, size_t layer, WeightBinder* binder, LayerWeights* to) {
  binder->Vector(MixerPrefix(layer) + "norm.weight", config.hidden_size, TensorRole::kNorm,
                 &to->mixer_norm);
}

}  // namespace

void ParseMamba(ConfigReader* reader, ModelConfig* config) {
  ParseCommon(reader, Mixer::kMamba1, 32, config);
  config->tie_word_embeddings = reader->Bool({"tie_word_embeddings"}, true);
  config->mamba1 = ParseMamba1Parts(reader, *config);
}

void ParseFalconMamba(ConfigReader* reader, ModelConfig* config) {
  ParseMamba(reader, config);
  config->mamba1->part_norm = PartNorm::kPlain;
  config->mamba1->part_eps = static_cast<float>(reader->Positive({"mixer_rms_eps"}, 1e-6));
}

void ParseMamba2Model(ConfigReader* reader, ModelConfig* config) {
  ParseCommon(reader, Mixer::kMamba2, 64, config);
  // "norm_before_gate" is true in published files whose models were trained with the gate first;
  // no implementation reads it.
  if (!reader->Bool({"rms_norm"}, true))
    reader->Fail("\"rms_norm\" is false; only the gated norm is supported");
  Mamba2Config m;
  m.heads = reader->Int({"num_heads"}, 128, kHeadsRange);
  m.head_dim = reader->Int({"head_dim"}, 64, kWidthRange);
  m.state = reader->Int({"state_size"}, 128, kStateRange);
  m.groups = reader->Int({"n_groups"}, 8, kHeadsRange);
  // The published library normalises over the whole width; the models were trained per group.
  m.norm_groups = m.groups;
  m.conv_width = reader->Int({"conv_kernel"}, 4, kConvRange);
  m.conv_bias = reader->Bool({"use_conv_bias"}, true);
  m.proj_bias = reader->Bool({"use_bias"}, false);
  const int64_t inner = config->hidden_size * reader->Int({"expand"}, 2, Range{1, 64});
  if (m.inner() != inner) {
    reader->Fail(absl::StrCat("num_heads * head_dim is ", m.inner(),
                              ", but expand * hidden_size is ", inner));
  }
  CheckMamba2(reader, m);
  ParseStepLimit(reader, &m);
  config->mamba2 = m;
}

void BindMamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindBackboneEnds(config, binder, weights);
  binder->AlsoNamed("backbone.", "model.");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    BindNorm(config, i, binder, &weights->layers[i]);
    if (config.mamba2.has_value()) {
      BindMamba2(config, binder, MixerPrefix(i) + "mixer.", &weights->layers[i]);
    } else {
      BindMamba1(config, binder, MixerPrefix(i) + "mixer.", &weights->layers[i]);
    }
  }
}

}  // namespace baton::model
