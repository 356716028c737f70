// One gated delta rule layer of a step (models: qwen3_next, qwen3_5, olmo_hybrid). The conv window
// over q | k | v and an f32 state [value head][key_dim][value_dim] in the sequence's slot are
// advanced in place, token after token; a narrow state once per grid step (narrow_state.h).
// Thread rule: as Step.
#ifndef BATON_MODEL_GATED_DELTA_H_
#define BATON_MODEL_GATED_DELTA_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

std::unique_ptr<MixerBlock> MakeGatedDelta(const MixerPlace& place,
                                           const GatedDeltaWeights& weights);
void AddGatedDeltaParts(const GatedDeltaConfig& config,
                        uint32_t layer,
                        kernel::StateDType state,
                        LayoutSpec* spec);
// Operations of one token.
double GatedDeltaCost(const GatedDeltaConfig& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_GATED_DELTA_H_
