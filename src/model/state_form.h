// How recurrent state lives between tokens. f32 state is advanced in place, token after token. A
// narrow one is a base at the last grid boundary, in fewer bits, that nothing changes until the
// next boundary, and a tail: what the recurrence needs of the tokens since. The base is rounded
// once per 16 tokens. The tail lies behind the slot, is empty on the grid and so is no part of a
// bundle; every token of it is written before it is read.
// Thread rule: plain values and pure functions.
#ifndef BATON_MODEL_STATE_FORM_H_
#define BATON_MODEL_STATE_FORM_H_

#include <cstdint>

#include "base/status.h"
#include "base/types.h"
#include "kernel/state_dtype.h"
#include "model/config.h"

namespace baton::model {

// Tokens a tail holds at most: the 16th of a step folds it.
inline constexpr int64_t kTailTokens = kBlockTokens - 1;

// With few bits, rounding to nearest loses what a step adds to a state that hardly fades, more of
// it the longer the history (bench/state_dtype: from 8,192 tokens on for bf16); at random it is
// kept on the average. f16 has bits enough.
constexpr kernel::Rounding RoundingOf(kernel::StateDType dtype) {
  return dtype == kernel::StateDType::kF16 ? kernel::Rounding::kNearest
                                           : kernel::Rounding::kStochastic;
}

// kInvalidArgument, naming the reason and the remedy, if the model cannot keep state in `dtype`.
Status CheckStateDType(const ModelConfig& config, kernel::StateDType dtype);

// f32 values of one token in the tail of a Mamba-2 layer: dt * x [H*P] | B [G*N] | decay [H].
inline int64_t TailRow(const Mamba2Config& c) { return c.inner() + c.groups * c.state + c.heads; }
// Bytes of one Mamba-2 layer's tail, a multiple of 64.
inline uint64_t LayerTailBytes(const Mamba2Config& c) {
  return (static_cast<uint64_t>(kTailTokens * TailRow(c)) * sizeof(float) + 63) / 64 * 64;
}
// Bytes behind each slot, all layers one after the other; 0 for f32.
uint64_t SlotTailBytes(const ModelConfig& config, kernel::StateDType dtype);

}  // namespace baton::model

#endif  // BATON_MODEL_STATE_FORM_H_
