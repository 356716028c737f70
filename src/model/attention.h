// One attention layer of a step: projections, rotary positions, KV written to the sequence's
// blocks, causal attention over them. K and V are read back from the blocks, never from the
// projections, so what a token sees does not depend on which call computed it.
// Thread rule: as Step.
#ifndef BATON_MODEL_ATTENTION_H_
#define BATON_MODEL_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "identity/layout.h"
#include "model/config.h"
#include "model/mixer.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

// Rotation frequencies, [dims / 2]: theta^(-2i / dims), scaled as the config says.
std::vector<float> RopeFrequencies(const RopeConfig& rope);

int64_t RopeScratch(const AttentionConfig& config, int64_t rows);
// `frequencies` empty: an empty table.
RopeTable BuildRopeTable(const Step& step, const std::vector<float>& frequencies, int64_t rows);

// Cuts the items of `work` into runs of rows for the attention loop; once per step.
void PlanAttention(Workspace::Impl* work);

// `added`: of queries, keys and values; outlives the block.
std::unique_ptr<MixerBlock> MakeAttention(const MixerPlace& place,
                                          const AttentionWeights& weights,
                                          const std::vector<LowRank>* added = nullptr);
MixerCost AttentionCost(const AttentionConfig& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_ATTENTION_H_
