// The gated short convolution of a step (models: lfm2, lfm2_moe): out(C * conv(B * x)). All it
// carries from token to token is the conv window, so its layers have no recurrent tensor at all.
// Thread rule: as Step.
#ifndef BATON_MODEL_SHORT_CONV_H_
#define BATON_MODEL_SHORT_CONV_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

std::unique_ptr<MixerBlock> MakeShortConv(const MixerPlace& place, const ShortConvWeights& weights);
void AddShortConvParts(const ModelConfig& config, uint32_t layer, LayoutSpec* spec);
// Operations of one token.
double ShortConvCost(const ShortConvConfig& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_SHORT_CONV_H_
