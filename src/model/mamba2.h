// One Mamba-2 layer of a step (models: bamba, granitemoehybrid). The conv window and an f32
// state in the sequence's slot are advanced in place, token after token; a narrow state once per
// grid step (mamba2_narrow.h). Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA2_H_
#define BATON_MODEL_MAMBA2_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "model/config.h"
#include "model/mixer.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

// Set where the state is kept in fewer bits (state_form.h).
struct NarrowMamba2 {
  kernel::StateDType dtype;
  kernel::Rounding rounding;
  uint32_t layer;         // of the model
  uint64_t scale_offset;  // bytes from the start of the slot; e4m3 only
  uint64_t tail_offset;
};

struct Mamba2Layer {
  const Mamba2Config* config;
  const Mamba2Weights* weights;
  float norm_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
  std::optional<NarrowMamba2> narrow = std::nullopt;
};

std::unique_ptr<MixerBlock> MakeMamba2(const MixerPlace& place, const Mamba2Weights& weights);
void AddMamba2Parts(const Mamba2Config& config,
                    uint32_t layer,
                    kernel::StateDType state,
                    LayoutSpec* spec);
// Operations of one token.
double Mamba2Cost(const Mamba2Config& config, int64_t hidden);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA2_H_
