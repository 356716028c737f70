#include "model/recurrent.h"

namespace baton::model {

void RunConv(const Step& step, const ConvLayer& layer, Rows x, Rows y) {
  // Channels are independent; a task takes a whole number of cache lines of each row.
  constexpr int64_t kChunk = 128;
  const int64_t chunks = (layer.channels + kChunk - 1) / kChunk;
  const int64_t n_items = static_cast<int64_t>(step.items().size());
  int64_t longest = 0;
  for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
  step.For(n_items * chunks, kChunk * longest / 2, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      // Neighbouring chunks of one item in one call.
      const int64_t i = begin / chunks, first = begin % chunks;
      const int64_t last = std::min(chunks, first + end - begin);
      const StepItem& item = step.items()[i];
      step.kernels().conv(
          kernel::ConvArgs{.state = item.State(layer.offset),
                           .channels = layer.channels,
                           .begin = first * kChunk,
                           .end = std::min(last * kChunk, layer.channels),
                           .width = layer.width,
                           .weight = layer.weight->data(),
                           .bias = layer.bias->empty() ? nullptr : layer.bias->data(),
                           .tokens = item.tokens,
                           .x = x[item.row0],
                           .ldx = x.stride,
                           .y = y[item.row0],
                           .ldy = y.stride,
                           .silu = layer.silu});
      begin += last - first;
    }
  });
}

}  // namespace baton::model
