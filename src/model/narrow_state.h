// The state advance of a recurrent layer whose state is narrow (state_form.h): Mamba-2, lightning
// attention and the gated delta rule, whose heads all hold S = decay * S + key (x) input. How a
// history is cut into calls changes no bit: a token's output is a function of the base of its grid
// step and the step's inputs up to it, wherever those lie. Thread rule: as Step.
#ifndef BATON_MODEL_NARROW_STATE_H_
#define BATON_MODEL_NARROW_STATE_H_

#include <cstdint>
#include <optional>

#include "model/mixer.h"
#include "model/state_form.h"
#include "model/step.h"

namespace baton::model {

// Offsets are bytes from the start of the slot.
struct NarrowLayer {
  NarrowShape shape;
  kernel::StateDType dtype;
  kernel::Rounding rounding;
  uint32_t layer;  // of the model
  uint64_t base_offset;
  uint64_t scale_offset;  // e4m3 only
  uint64_t tail_offset;
};

// Absent where the state is f32.
std::optional<NarrowLayer> NarrowLayerAt(const MixerPlace& place, const NarrowShape& shape);

// Rows of the step, all layers' items one after the other.
struct NarrowRows {
  Rows input;                    // [heads * head_dim]: v; of Mamba-2 and the delta rule scratch
  Rows key;                      // [groups * state]: B, or k
  Rows query;                    // [groups * state]: C, or q
  const float* decay = nullptr;  // [heads]
  int64_t decay_stride = 0;      // 0: every row's is the same
  Rows y;                        // out, [heads * head_dim]
  int64_t rows = 0;
  // Mamba-2: input = dt * x, y += d * x.
  Rows x = {};               // [heads * head_dim]
  Rows dt = {};              // [heads]
  const float* d = nullptr;  // [heads]
  // The gated delta rule: input = u.
  Rows value = {};  // [heads * head_dim]
  Rows share = {};  // beta, [heads]

  bool delta_rule() const { return value.data != nullptr; }
};

// f32 scratch AdvanceNarrow takes.
int64_t NarrowScratch(const NarrowShape& shape, int64_t rows, bool delta_rule);
void AdvanceNarrow(const Step& step, const NarrowLayer& layer, const NarrowRows& rows);

}  // namespace baton::model

#endif  // BATON_MODEL_NARROW_STATE_H_
