// The layout of a model's per-sequence memory, from its config alone. Thread rule: free functions.
#ifndef BATON_MODEL_MODEL_LAYOUT_H_
#define BATON_MODEL_MODEL_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "identity/layout.h"
#include "kernel/state_dtype.h"
#include "model/config.h"

namespace baton::model {

// Component names of the state parts.
inline constexpr char kConvComponent[] = "conv";  // [K-1][C] f32, oldest tap first
inline constexpr char kSsmComponent[] =
    "ssm";  // Mamba-2 [H][N][P], Mamba-1 [N][I], delta rule and lightning [H][K][V]
inline constexpr char kScaleComponent[] = "scale";  // bf16 [H][N], of each row of an e4m3 "ssm"

// Recurrent layers in order, each "conv", "ssm" in `state`, and "scale" if that is e4m3; one KV
// group with every attention layer, "full" or "window". `numerics_tag` is that of the same `state`.
// Fails where sizes exceed the layout's bounds, and as CheckStateDType (state_form.h).
StatusOr<Layout> BuildLayout(const ModelConfig& config,
                             const Sha256& numerics_tag,
                             kernel::StateDType state = kernel::StateDType::kF32);

// The parts that mixers' own layout functions (mixers.cc) are made of. "conv": the last `width` - 1
// inputs of every channel.
StatePart ConvPart(uint32_t layer, int64_t width, int64_t channels);
// "ssm", f32.
StatePart SsmPart(uint32_t layer, std::vector<int64_t> shape, const char* axes);
// "ssm" of heads [H][rows][columns] in `state` and, if that is e4m3, "scale" of their rows.
void AddSsmParts(uint32_t layer,
                 std::vector<int64_t> shape,
                 const char* axes,
                 kernel::StateDType state,
                 LayoutSpec* spec);

}  // namespace baton::model

#endif  // BATON_MODEL_MODEL_LAYOUT_H_
