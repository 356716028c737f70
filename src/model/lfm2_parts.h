// What lfm2 and lfm2_moe share: keys of config.json and tensor names.
// Thread rule: free functions.
#ifndef BATON_MODEL_LFM2_PARTS_H_
#define BATON_MODEL_LFM2_PARTS_H_

#include <cstddef>

#include "model/config.h"
#include "model/config_reader.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {

// Everything but the feed-forward parts: kinds of layers, attention with per-head norms, short
// convolutions.
void ParseLfm2Mixers(ConfigReader* reader, ModelConfig* config);
// Binds the norms and the mixer of layer `index`.
void BindLfm2Mixer(const ModelConfig& config,
                   WeightBinder* binder,
                   size_t index,
                   LayerWeights* layer);
// Binds the gated MLP of layer `index`.
void BindLfm2Mlp(const ModelConfig& config,
                 WeightBinder* binder,
                 size_t index,
                 LayerWeights* layer);

}  // namespace baton::model

#endif  // BATON_MODEL_LFM2_PARTS_H_
