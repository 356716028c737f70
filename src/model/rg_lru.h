// The recurrent block of Griffin in a step (models: recurrent_gemma): two branches, one through a
// convolution and the real-gated linear recurrence, one through GELU; out(S * y). The recurrence's
// gates are block-diagonal: each block of channels has a matrix of its own.
// Thread rule: as Step.
#ifndef BATON_MODEL_RG_LRU_H_
#define BATON_MODEL_RG_LRU_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

std::unique_ptr<MixerBlock> MakeRgLru(const MixerPlace& place, const RgLruWeights& weights);
void AddRgLruParts(const RgLruConfig& config, uint32_t layer, LayoutSpec* spec);
// Operations of one token.
double RgLruCost(const RgLruConfig& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_RG_LRU_H_
