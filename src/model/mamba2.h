// One Mamba-2 layer of a step (models: bamba, granitemoehybrid). The conv window and the state in
// the sequence's slot are advanced in place, token after token. Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA2_H_
#define BATON_MODEL_MAMBA2_H_

#include <cstdint>

#include "model/config.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

struct Mamba2Layer {
  const Mamba2Config* config;
  const Mamba2Weights* weights;
  float rms_norm_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
};

int64_t Mamba2Scratch(const Mamba2Config& config, int64_t rows);
void RunMamba2(const Step& step, const Mamba2Layer& layer, Rows x, Rows y, int64_t rows);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA2_H_
