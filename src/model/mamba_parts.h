// What the pure state-space types (mamba, falcon_mamba, mamba2) share: no attention and no KV; a
// layer is its mixer only. Thread rule: free functions.
#ifndef BATON_MODEL_MAMBA_PARTS_H_
#define BATON_MODEL_MAMBA_PARTS_H_

#include <cstdint>
#include <string>

#include "model/config.h"
#include "model/config_reader.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {

// What the three types spell alike; every layer becomes a `mixer`. `layers`: how many by default.
void ParseMambaLayers(ConfigReader* reader, Mixer mixer, int64_t layers, ModelConfig* config);
// A whole Mamba-1 model.
void ParseMamba1Model(ConfigReader* reader, ModelConfig* config);

// Binds the mixer of a layer; `prefix` ends in a dot.
using BindMambaMixer = void(const ModelConfig& config,
                            WeightBinder* binder,
                            const std::string& prefix,
                            LayerWeights* layer);
// All tensors.
void BindMambaLayers(const ModelConfig& config,
                     WeightBinder* binder,
                     BindMambaMixer* mixer,
                     DecoderWeights* weights);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA_PARTS_H_
