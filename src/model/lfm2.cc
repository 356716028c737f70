// LFM2: gated short convolutions and attention with per-head norms of queries and keys; a gated
// MLP in each layer.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/lfm2_parts.h"

namespace baton::model {
namespace {

// Published widths are those before the gate's third is taken off.
int64_t MlpWidth(ConfigReader* reader) {
  int64_t width = reader->Int({"intermediate_size", "block_ff_dim"}, 12288, kWidthRange);
  if (!reader->Bool({"block_auto_adjust_ff_dim"}, true)) return width;
  const double multiplier = reader->Positive({"block_ffn_dim_multiplier"}, 1.0);
  const int64_t multiple = reader->Int({"block_multiple_of"}, 256, kWidthRange);
  width = static_cast<int64_t>(static_cast<double>(2 * width / 3) * multiplier);
  if (width > kWidthRange.max || width < 1) {
    reader->Fail(absl::StrCat("\"block_ffn_dim_multiplier\" makes the MLP ", width, " wide"));
    return 1;
  }
  return (width + multiple - 1) / multiple * multiple;
}

}  // namespace

void ParseLfm2(ConfigReader* reader, ModelConfig* config) {
  ParseLfm2Mixers(reader, config);
  config->mlp = MlpConfig{MlpWidth(reader), false};
}

void BindLfm2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.embedding_norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    BindLfm2Mixer(config, binder, i, &weights->layers[i]);
    BindLfm2Mlp(config, binder, i, &weights->layers[i]);
  }
}

}  // namespace baton::model
