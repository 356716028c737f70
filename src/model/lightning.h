// Lightning attention of a step (models: minimax): linear attention whose state fades by a constant
// per head and layer, S = exp(-slope) S + k (x) v, o = S^T q; then RMS norm over all heads, a
// sigmoid gate, and the output projection. No positions, no scale, no convolution. An f32 state is
// advanced token after token, a narrow one once per grid step (narrow_state.h).
// Thread rule: as Step.
#ifndef BATON_MODEL_LIGHTNING_H_
#define BATON_MODEL_LIGHTNING_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

// exp(-slope) of a head: 2^(-8(h+1)/H) * (1 - layer / (layers - 1) + 1e-5), as published.
float LightningDecay(const LightningConfig& config, int64_t head, int64_t layer, int64_t layers);

std::unique_ptr<MixerBlock> MakeLightning(const MixerPlace& place, const LightningWeights& weights);
void AddLightningParts(const LightningConfig& config,
                       uint32_t layer,
                       kernel::StateDType state,
                       LayoutSpec* spec);
// Operations of one token.
double LightningCost(const LightningConfig& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_LIGHTNING_H_
