// The causal convolution that most kinds of recurrent layer begin with. Thread rule: as Step.
#ifndef BATON_MODEL_RECURRENT_H_
#define BATON_MODEL_RECURRENT_H_

#include <cstdint>
#include <vector>

#include "model/step.h"

namespace baton::model {

struct ConvLayer {
  const std::vector<float>* weight;  // [K][channels]
  const std::vector<float>* bias;    // [channels] or empty
  int64_t channels;
  int64_t width;
  uint64_t offset;  // of the window in the slot, bytes
  bool silu = true;
};

// y = conv(x), through silu if `silu`, for every item; its window in the slot moves on by its
// tokens.
void RunConv(const Step& step, const ConvLayer& layer, Rows x, Rows y);

}  // namespace baton::model

#endif  // BATON_MODEL_RECURRENT_H_
