// Pieces of config.json that several architectures spell alike. Thread rule: free functions.
#ifndef BATON_MODEL_CONFIG_PARTS_H_
#define BATON_MODEL_CONFIG_PARTS_H_

#include "model/config.h"
#include "model/config_reader.h"

namespace baton::model {

// num_attention_heads, num_key_value_heads, head_dim, attention_bias; scale = head_dim^-1/2, no
// rotation. `kv_fallback` is the number of KV heads where the key is absent (nullopt: heads),
// `heads_fallback` that of query heads.
AttentionConfig ParseAttention(ConfigReader* reader,
                               const ModelConfig& config,
                               std::optional<int64_t> kv_fallback,
                               int64_t heads_fallback = 32);
// rope_theta, rope_scaling, or both inside rope_parameters. Rotates `share` of head_dim. `theta` is
// the default where the key is absent.
RopeConfig ParseRope(ConfigReader* reader, int64_t head_dim, double share, double theta = 10000.0);
// mamba_n_heads and friends; bamba, granitemoehybrid and falcon_h1 spell and default them alike.
// `inner` is heads * head_dim; absent: mamba_expand * hidden_size.
Mamba2Config ParseMamba2(ConfigReader* reader,
                         const ModelConfig& config,
                         std::optional<int64_t> inner = std::nullopt);
// time_step_limit into dt_min and dt_max.
void ParseStepLimit(ConfigReader* reader, Mamba2Config* mamba2);
// Fails where heads and groups do not go together.
void CheckMamba2(ConfigReader* reader, const Mamba2Config& mamba2);
// layers_block_type of `config->layers`, which has been sized, by `kinds`: {"mamba", {...}}, ....
// Fails where the list is of another length or has another kind. False if there is no list.
struct LayerKind {
  const char* name;
  LayerConfig layer;
};
bool ParseLayerKinds(ConfigReader* reader,
                     std::initializer_list<LayerKind> kinds,
                     ModelConfig* config);
// A pure state-space model states no longest sequence; something must be bounded.
inline constexpr int64_t kUnstatedMaxPosition = int64_t{1} << 20;
// layer_types ("linear_attention", "full_attention"); without it every `interval`-th layer attends,
// the others are gated delta rule layers.
void ParseDeltaLayers(ConfigReader* reader, int64_t count, int64_t interval, ModelConfig* config);
struct GatedDeltaDefaults {
  int64_t key_heads, value_heads, key_dim, value_dim;
};
// linear_num_key_heads and friends; without the norm's eps.
GatedDeltaConfig ParseGatedDelta(ConfigReader* reader, const GatedDeltaDefaults& defaults);
// Refuses activations other than silu.
void RequireSilu(ConfigReader* reader);

}  // namespace baton::model

#endif  // BATON_MODEL_CONFIG_PARTS_H_
