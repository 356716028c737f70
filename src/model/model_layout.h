// The layout of a model's per-sequence memory, from its config alone. Thread rule: free functions.
#ifndef BATON_MODEL_MODEL_LAYOUT_H_
#define BATON_MODEL_MODEL_LAYOUT_H_

#include "base/status.h"
#include "base/types.h"
#include "identity/layout.h"
#include "model/config.h"

namespace baton::model {

// Component names of the state parts.
inline constexpr char kConvComponent[] = "conv";  // [K-1][C] f32, oldest tap first
inline constexpr char kSsmComponent[] = "ssm";    // Mamba-2 [H][N][P], Mamba-1 [N][I], f32

// Recurrent layers in order, each "conv" then "ssm"; one KV group "full" with every attention
// layer. Fails where sizes exceed the layout's bounds.
StatusOr<Layout> BuildLayout(const ModelConfig& config, const Sha256& numerics_tag);

}  // namespace baton::model

#endif  // BATON_MODEL_MODEL_LAYOUT_H_
