// Qwen3.5 and later, dense: gated delta rule layers with one gated attention layer in four, a gated
// MLP in each. The text part alone or beside a vision model, which is left out.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/qwen_parts.h"

namespace baton::model {

void ParseQwen35(ConfigReader* reader, ModelConfig* config) {
  ParseQwenMixers(reader, QwenDefaults{.layers = 32, .kv_heads = 4}, config);
  config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 12288, kWidthRange)};
}

void BindQwen35(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindQwen(config, binder, BindQwen35Projections, /*fused=*/false, weights);
}

}  // namespace baton::model
