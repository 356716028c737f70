#include "model/state_form.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernel/kernels.h"
#include "model/mixer.h"

namespace baton::model {

Status CheckStateDType(const ModelConfig& config, kernel::StateDType dtype) {
  if (dtype == kernel::StateDType::kF32) return absl::OkStatus();
  const auto refused = [&](const std::string& why) {
    const std::string name(kernel::StateDTypeName(dtype));
    return absl::InvalidArgumentError(
        absl::StrCat("state dtype ", name, ": ", why, "; use --state-dtype f32"));
  };
  if (config.CountMixers(Mixer::kMamba1) > 0) {
    return refused(absl::StrCat(
        "the model has Mamba-1 layers, for which it saves nothing: between two roundings the "
        "inputs of ",
        kTailTokens, " tokens are kept, ", 2 * kTailTokens,
        " values per channel, and the f32 state itself has ", config.mamba1->state));
  }
  if (config.CountMixers(Mixer::kGatedDelta) > 0) {
    return refused(
        "the model has gated delta rule layers, whose step form rounds once per token; there is no "
        "form for them that rounds once per grid step");
  }
  if (config.CountMixers(Mixer::kMamba2) == 0)
    return refused("the model has no recurrent state that could be kept in it");
  if (config.mamba2->head_dim > kernel::kMaxHeadDim) {
    return refused(absl::StrCat("the model's recurrent heads are ", config.mamba2->head_dim,
                                " wide, at most ", kernel::kMaxHeadDim, " are supported"));
  }
  return absl::OkStatus();
}

uint64_t SlotTailBytes(const ModelConfig& config, kernel::StateDType dtype) {
  uint64_t bytes = 0;
  for (const LayerConfig& layer : config.layers)
    bytes += MixerTailBytes(layer.mixer, config, dtype);
  return bytes;
}

}  // namespace baton::model
