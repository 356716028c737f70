// The block of a layer that looks across tokens: attention, or a recurrence. It owns a share of
// the sequence's memory, which it declares in the layout. One implementation per kind, each in its
// own file; mixers.cc holds the one switch over kinds.
//
// Thread rule: immutable after construction; Run as Step.
#ifndef BATON_MODEL_MIXER_H_
#define BATON_MODEL_MIXER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "identity/layout.h"
#include "kernel/state_dtype.h"
#include "model/config.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

class MixerBlock {
 public:
  virtual ~MixerBlock() = default;
  // Floats Run takes from the arena for `rows` rows.
  virtual int64_t Scratch(int64_t rows) const = 0;
  // y = block(x) for all rows of the step; advances every item's memory by its tokens.
  virtual void Run(const Step& step, Rows x, Rows y, int64_t rows) const = 0;
};

// Where a block finds its memory. All of it outlives the block.
struct MixerPlace {
  const ModelConfig* config = nullptr;
  const Layout* layout = nullptr;
  uint32_t layer = 0;  // of the model
  kernel::StateDType state_dtype = kernel::StateDType::kF32;
  uint64_t tail_offset = 0;  // of the block's narrow tail, bytes from the start of the slot

  // Offset in the slot of this layer's `component`; the layout has it.
  uint64_t Part(std::string_view component) const;
};

// The block of kind `mixer`, null for kNone, with the weights of that kind in `weights`.
std::unique_ptr<MixerBlock> MakeMixer(Mixer mixer,
                                      const MixerPlace& place,
                                      const LayerWeights& weights);

// Appends the state parts of a layer of this kind; attention has none.
void AddStateParts(
    Mixer mixer, const ModelConfig& config, uint32_t layer, kernel::StateDType, LayoutSpec* spec);

// Bytes behind the slot that a layer of this kind needs for a narrow state; 0 for f32.
uint64_t MixerTailBytes(Mixer mixer, const ModelConfig& config, kernel::StateDType state);

// Operations per token, and per pair of tokens, of one layer of this kind (prefill_cost.h).
struct MixerCost {
  double per_token = 0;
  double per_token_pair = 0;
};
inline double Product(int64_t a, int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}
MixerCost CountMixerCost(Mixer mixer, const ModelConfig& config);

}  // namespace baton::model

#endif  // BATON_MODEL_MIXER_H_
