#include "model/state_form.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernel/kernels.h"
#include "model/mixer.h"

namespace baton::model {

namespace {

// Why a model with such layers keeps f32, "" if it need not.
std::string WhyNot(const ModelConfig& config) {
  if (config.CountMixers(Mixer::kMamba1) > 0) {
    return absl::StrCat(
        "the model has Mamba-1 layers, for which it saves nothing: between two roundings the "
        "inputs of ",
        kTailTokens, " tokens are kept, ", 2 * kTailTokens,
        " values per channel, and the f32 state itself has ", config.mamba1->state);
  }
  if (config.CountMixers(Mixer::kRgLru) > 0) {
    return absl::StrCat(
        "the model has RG-LRU layers, for which it saves nothing: between two roundings the "
        "inputs of ",
        kTailTokens, " tokens are kept, ", 2 * kTailTokens,
        " values per channel, and the f32 state itself has 1");
  }
  int64_t widest = 0;
  if (config.mamba2.has_value()) widest = config.mamba2->head_dim;
  if (config.gated_delta.has_value()) widest = std::max(widest, config.gated_delta->value_dim);
  if (config.lightning.has_value()) widest = std::max(widest, config.lightning->head_dim);
  if (widest > kernel::kMaxHeadDim) {
    return absl::StrCat("the model's recurrent heads are ", widest, " wide, at most ",
                        kernel::kMaxHeadDim, " are supported");
  }
  if (widest > 0) return "";
  return config.CountMixers(Mixer::kShortConv) > 0
             ? "the model has short convolutions, for which it saves nothing: their window is the "
               "inputs themselves"
             : "the model has no recurrent state that could be kept in it";
}

}  // namespace

Status CheckStateDType(const ModelConfig& config, kernel::StateDType dtype) {
  if (dtype == kernel::StateDType::kF32) return absl::OkStatus();
  const std::string why = WhyNot(config);
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("state dtype ",
                                                 std::string(kernel::StateDTypeName(dtype)), ": ",
                                                 why, "; use --state-dtype f32"));
}

uint64_t SlotTailBytes(const ModelConfig& config, kernel::StateDType dtype) {
  uint64_t bytes = 0;
  for (const LayerConfig& layer : config.layers)
    bytes += MixerTailBytes(layer.mixer, config, dtype);
  return bytes;
}

}  // namespace baton::model
