// One Mamba-1 layer of a step (models: jamba). Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA1_H_
#define BATON_MODEL_MAMBA1_H_

#include <cstdint>

#include "model/config.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

struct Mamba1Layer {
  const Mamba1Config* config;
  const Mamba1Weights* weights;
  float rms_norm_eps;
  uint64_t conv_offset;  // bytes from the start of the slot
  uint64_t ssm_offset;
};

int64_t Mamba1Scratch(const Mamba1Config& config, int64_t rows);
void RunMamba1(const Step& step, const Mamba1Layer& layer, Rows x, Rows y, int64_t rows);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA1_H_
