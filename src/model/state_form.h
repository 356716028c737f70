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

// The heads of a layer that can keep its state narrow, each [state][head_dim]. A group of heads
// has its keys and queries (B and C, k and q) in common.
struct NarrowShape {
  int64_t heads = 0;
  int64_t groups = 0;  // divides heads
  int64_t state = 0;
  int64_t head_dim = 0;

  int64_t inputs() const { return heads * head_dim; }
  int64_t keys() const { return groups * state; }
  // f32 values of one token in the layer's tail: what it adds along its key (dt * x, v, u)
  // [inputs] | key [keys] | decay [heads].
  int64_t TailRow() const { return inputs() + keys() + heads; }
  // A multiple of 64.
  uint64_t TailBytes() const {
    return (static_cast<uint64_t>(kTailTokens * TailRow()) * sizeof(float) + 63) / 64 * 64;
  }
};
inline NarrowShape ShapeOf(const Mamba2Config& c) {
  return {c.heads, c.groups, c.state, c.head_dim};
}
inline NarrowShape ShapeOf(const GatedDeltaConfig& c) {
  return {c.value_heads, c.key_heads, c.key_dim, c.value_dim};
}
inline NarrowShape ShapeOf(const LightningConfig& c) {
  return {c.heads, c.heads, c.head_dim, c.head_dim};
}
// Bytes behind each slot, all layers one after the other; 0 for f32.
uint64_t SlotTailBytes(const ModelConfig& config, kernel::StateDType dtype);

}  // namespace baton::model

#endif  // BATON_MODEL_STATE_FORM_H_
