// Pieces of config.json that several architectures spell alike. Thread rule: free functions.
#ifndef BATON_MODEL_CONFIG_PARTS_H_
#define BATON_MODEL_CONFIG_PARTS_H_

#include "model/config.h"
#include "model/config_reader.h"

namespace baton::model {

// num_attention_heads, num_key_value_heads, head_dim, attention_bias; scale = head_dim^-1/2, no
// rotation. `kv_fallback` is the number of KV heads where the key is absent (nullopt: heads).
AttentionConfig ParseAttention(ConfigReader* reader,
                               const ModelConfig& config,
                               std::optional<int64_t> kv_fallback);
// rope_theta, rope_scaling, or both inside rope_parameters. Rotates `share` of head_dim. `theta` is
// the default where the key is absent.
RopeConfig ParseRope(ConfigReader* reader, int64_t head_dim, double share, double theta = 10000.0);
// mamba_n_heads and friends; bamba and granitemoehybrid spell and default them alike.
Mamba2Config ParseMamba2(ConfigReader* reader, const ModelConfig& config);
// Refuses activations other than silu.
void RequireSilu(ConfigReader* reader);

}  // namespace baton::model

#endif  // BATON_MODEL_CONFIG_PARTS_H_
