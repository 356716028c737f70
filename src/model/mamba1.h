// One Mamba-1 layer of a step (models: jamba). Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA1_H_
#define BATON_MODEL_MAMBA1_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

std::unique_ptr<MixerBlock> MakeMamba1(const MixerPlace& place, const Mamba1Weights& weights);
void AddMamba1Parts(const Mamba1Config& config, uint32_t layer, LayoutSpec* spec);
// Operations of one token.
double Mamba1Cost(const Mamba1Config& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA1_H_
