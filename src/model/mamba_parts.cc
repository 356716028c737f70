#include "model/mamba_parts.h"

#include "absl/strings/str_cat.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

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

}  // namespace

void ParseMambaLayers(ConfigReader* reader, Mixer mixer, int64_t layers, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position =
      reader->Int({"max_position_embeddings"}, kUnstatedMaxPosition, kPositionRange);
  config->rms_norm_eps =
      static_cast<float>(reader->Positive({"layer_norm_epsilon", "rms_norm_eps"}, 1e-5));
  config->layers.resize(reader->Int({"num_hidden_layers", "n_layer"}, layers, kLayersRange),
                        LayerConfig{.mixer = mixer, .mlp = false});
}

void ParseMamba1Model(ConfigReader* reader, ModelConfig* config) {
  ParseMambaLayers(reader, Mixer::kMamba1, 32, config);
  config->tie_word_embeddings = reader->Bool({"tie_word_embeddings"}, true);
  config->mamba1 = ParseMamba1Parts(reader, *config);
}

void BindMambaLayers(const ModelConfig& config,
                     WeightBinder* binder,
                     BindMambaMixer* mixer,
                     DecoderWeights* weights) {
  BindBackboneEnds(config, binder, weights);
  binder->AlsoNamed("backbone.", "model.");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("backbone.layers.", i, ".");
    LayerWeights* layer = &weights->layers[i];
    binder->Vector(prefix + "norm.weight", config.hidden_size, TensorRole::kNorm,
                   &layer->mixer_norm);
    mixer(config, binder, prefix + "mixer.", layer);
  }
}

}  // namespace baton::model
