// Qwen3.5 and later with routed experts: as the dense type, but for experts with a gated shared one
// in every layer.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/qwen_parts.h"

namespace baton::model {

void ParseQwen35Moe(ConfigReader* reader, ModelConfig* config) {
  ParseQwenMixers(reader, QwenDefaults{.layers = 40, .kv_heads = 2}, config);
  for (LayerConfig& layer : config->layers) {
    layer.moe = true;
    layer.mlp = false;
  }
  const int64_t experts = reader->Int({"num_experts"}, 256, Range{1, kExpertsRange.max});
  config->moe = ParseQwenMoe(reader, experts);
  config->moe->top_k =
      reader->Int({"num_experts_per_tok"}, std::min<int64_t>(experts, 8), Range{1, experts});
}

void BindQwen35Moe(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindQwen(config, binder, BindQwen35Projections, /*fused=*/true, weights);
}

}  // namespace baton::model
