// One Mamba-2 layer of a step (models: bamba, granitemoehybrid). The conv window and an f32
// state in the sequence's slot are advanced in place, token after token; a narrow state once per
// grid step (narrow_state.h). Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA2_H_
#define BATON_MODEL_MAMBA2_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

std::unique_ptr<MixerBlock> MakeMamba2(const MixerPlace& place, const Mamba2Weights& weights);
void AddMamba2Parts(const Mamba2Config& config,
                    uint32_t layer,
                    kernel::StateDType state,
                    LayoutSpec* spec);
// Operations of one token.
double Mamba2Cost(const Mamba2Config& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA2_H_
