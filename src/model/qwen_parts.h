// What the Qwen types with gated delta rule layers share: keys of config.json and tensor names.
// Thread rule: free functions.
#ifndef BATON_MODEL_QWEN_PARTS_H_
#define BATON_MODEL_QWEN_PARTS_H_

#include <string>

#include "model/config.h"
#include "model/config_reader.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {

// Defaults of the transformers library that differ between the types.
struct QwenDefaults {
  int64_t layers;
  int64_t kv_heads;
};

// Everything but the feed-forward parts: kinds of layers, gated attention with per-head norms and a
// partly rotated head, gated delta rule.
void ParseQwenMixers(ConfigReader* reader, const QwenDefaults& defaults, ModelConfig* config);
// Routed experts with a gated shared one, in every layer that is not an MLP's.
MoeConfig ParseQwenMoe(ConfigReader* reader, int64_t experts);

// Binds the input projections of a gated delta rule layer; `prefix` ends in a dot.
using BindProjections = void(const ModelConfig& config,
                             WeightBinder* binder,
                             const std::string& prefix,
                             GatedDeltaWeights* w);
// Those of qwen3_5: in_proj_{qkv,z,b,a}.
BindProjections BindQwen35Projections;
// All tensors. Experts come in one tensor each or, fused, in two for all: whichever the checkpoint
// has, `fused` where neither is there.
void BindQwen(const ModelConfig& config,
              WeightBinder* binder,
              BindProjections* projections,
              bool fused,
              DecoderWeights* weights);

}  // namespace baton::model

#endif  // BATON_MODEL_QWEN_PARTS_H_
