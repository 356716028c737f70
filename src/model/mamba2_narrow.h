// The state advance of a Mamba-2 layer whose state is narrow (state_form.h). How a history is cut
// into calls changes no bit: a token's output is a function of the base of its grid step and the
// step's inputs up to it, wherever those lie. Thread rule: as Step.
#ifndef BATON_MODEL_MAMBA2_NARROW_H_
#define BATON_MODEL_MAMBA2_NARROW_H_

#include <cstdint>

#include "model/mamba2.h"
#include "model/step.h"

namespace baton::model {

// Rows of the step, all layers' items one after the other, as RunMamba2 has them.
struct Mamba2Rows {
  Rows conv;   // x | B | C after the convolution
  Rows dt;     // [heads]
  Rows decay;  // [heads]
  Rows dx;     // scratch, [inner]
  Rows y;      // out, [inner]
  int64_t rows = 0;
};

// f32 scratch AdvanceNarrow takes besides.
int64_t NarrowScratch(const Mamba2Config& config, int64_t rows);
// layer.narrow is set.
void AdvanceNarrow(const Step& step, const Mamba2Layer& layer, const Mamba2Rows& rows);

}  // namespace baton::model

#endif  // BATON_MODEL_MAMBA2_NARROW_H_
