// The one place that knows all kinds of mixer. A new kind is its own file, with its block, state
// parts and cost, and a case in each function here.
#include <string_view>

#include "model/attention.h"
#include "model/gated_delta.h"
#include "model/lightning.h"
#include "model/mamba1.h"
#include "model/mamba2.h"
#include "model/mixer.h"
#include "model/rg_lru.h"
#include "model/short_conv.h"
#include "model/state_form.h"

namespace baton::model {

uint64_t MixerPlace::Part(std::string_view component) const {
  return layout->parts()[*layout->FindPart(layer, component)].offset;
}

std::unique_ptr<MixerBlock> MakeMixer(Mixer mixer,
                                      const MixerPlace& place,
                                      const LayerWeights& weights) {
  switch (mixer) {
    case Mixer::kAttention:
      return MakeAttention(place, *weights.attention);
    case Mixer::kMamba2:
      return MakeMamba2(place, *weights.mamba2);
    case Mixer::kMamba1:
      return MakeMamba1(place, *weights.mamba1);
    case Mixer::kNone:
      break;
    case Mixer::kShortConv:
      return MakeShortConv(place, *weights.short_conv);
    case Mixer::kLightning:
      return MakeLightning(place, *weights.lightning);
    case Mixer::kGatedDelta:
      return MakeGatedDelta(place, *weights.gated_delta);
    case Mixer::kRgLru:
      return MakeRgLru(place, *weights.rg_lru);
  }
  return nullptr;
}

void AddStateParts(Mixer mixer,
                   const ModelConfig& config,
                   uint32_t layer,
                   kernel::StateDType state,
                   LayoutSpec* spec) {
  switch (mixer) {
    case Mixer::kAttention:
    case Mixer::kNone:
      break;
    case Mixer::kMamba2:
      AddMamba2Parts(*config.mamba2, layer, state, spec);
      break;
    case Mixer::kMamba1:
      AddMamba1Parts(*config.mamba1, layer, spec);
      break;
    case Mixer::kShortConv:
      AddShortConvParts(config, layer, spec);
      break;
    case Mixer::kLightning:
      AddLightningParts(*config.lightning, layer, state, spec);
      break;
    case Mixer::kGatedDelta:
      AddGatedDeltaParts(*config.gated_delta, layer, state, spec);
      break;
    case Mixer::kRgLru:
      AddRgLruParts(*config.rg_lru, layer, spec);
      break;
  }
}

uint64_t MixerTailBytes(Mixer mixer, const ModelConfig& config, kernel::StateDType state) {
  if (state == kernel::StateDType::kF32) return 0;
  switch (mixer) {
    case Mixer::kMamba2:
      return ShapeOf(*config.mamba2).TailBytes();
    case Mixer::kLightning:
      return ShapeOf(*config.lightning).TailBytes();
    case Mixer::kGatedDelta:
      return ShapeOf(*config.gated_delta).TailBytes();
    case Mixer::kAttention:
    case Mixer::kMamba1:
    case Mixer::kNone:
    case Mixer::kShortConv:
    case Mixer::kRgLru:
      break;
  }
  return 0;
}

MixerCost CountMixerCost(Mixer mixer, const ModelConfig& config) {
  switch (mixer) {
    case Mixer::kAttention:
      return AttentionCost(*config.attention, config.hidden_size);
    case Mixer::kNone:
      break;
    case Mixer::kMamba2:
      return MixerCost{Mamba2Cost(*config.mamba2, config.hidden_size)};
    case Mixer::kMamba1:
      return MixerCost{Mamba1Cost(*config.mamba1, config.hidden_size)};
    case Mixer::kShortConv:
      return MixerCost{ShortConvCost(*config.short_conv, config.hidden_size)};
    case Mixer::kLightning:
      return MixerCost{LightningCost(*config.lightning, config.hidden_size)};
    case Mixer::kGatedDelta:
      return MixerCost{GatedDeltaCost(*config.gated_delta, config.hidden_size)};
    case Mixer::kRgLru:
      return MixerCost{RgLruCost(*config.rg_lru, config.hidden_size)};
  }
  return {};
}

}  // namespace baton::model
