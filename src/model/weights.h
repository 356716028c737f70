// The weights of a decoder as the forward pass reads them: matrices packed in their stored dtype,
// everything small widened to f32 once. Shapes are those of model/config.h.
// Thread rule: immutable after load.
#ifndef BATON_MODEL_WEIGHTS_H_
#define BATON_MODEL_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/packed_matrix.h"

namespace baton::model {

// y = W x + b.
struct Linear {
  kernel::PackedMatrix w;
  std::vector<float> bias;  // empty: none
};

struct AttentionWeights {
  Linear q, k, v, o;
  Linear gate;                        // as q; empty unless AttentionConfig.output_gate
  std::vector<float> q_norm, k_norm;  // [head_dim] or [heads * head_dim], empty without norm
};

struct Mamba2Weights {
  Linear in;                   // rows z(I) | x(I) | B(G*N) | C(G*N) | dt(H)
  std::vector<float> conv_w;   // [K][C]; the last row multiplies the newest input
  std::vector<float> conv_b;   // [C] or empty
  std::vector<float> dt_bias;  // [H]
  std::vector<float> a;        // [H], -exp(A_log)
  std::vector<float> d;        // [H]
  std::vector<float> norm;     // [I]; empty without norm
  Linear out;
};

struct Mamba1Weights {
  Linear in;                                   // rows x(I) | z(I)
  std::vector<float> conv_w;                   // [K][I]
  std::vector<float> conv_b;                   // [I] or empty
  std::vector<Linear> x;                       // per head: rows dt(R) | B(N) | C(N)
  std::vector<Linear> dt;                      // per head: [I / heads, R]; their bias is dt_bias
  std::vector<float> dt_norm, b_norm, c_norm;  // [R], [N], [N]; empty without norm
  std::vector<float> dt_bias;                  // [I]
  std::vector<float> a;                        // [N][I], -exp(A_log)
  std::vector<float> d;                        // [I]
  Linear out;
};

struct RgLruWeights {
  Linear x, y;                                 // the two branches, [w, h]
  std::vector<float> conv_w, conv_b;           // [K][w], [w]
  std::vector<Linear> input_gate, decay_gate;  // one [w/blocks, w/blocks] per block
  std::vector<float> rate;                     // [w], -8 * softplus(recurrent_param)
  Linear out;
};

struct LightningWeights {
  Linear qkv;               // rows per head q(D) | k(D) | v(D)
  Linear gate;              // [H*D, h]
  std::vector<float> norm;  // [H*D]
  Linear out;
};

struct ShortConvWeights {
  Linear in;                  // rows B(h) | C(h) | x(h)
  std::vector<float> conv_w;  // [K][h]
  std::vector<float> conv_b;  // [h] or empty
  Linear out;
};

struct GatedDeltaWeights {
  // One after another the rows q | k | v | z (each all heads) | b(Hv) | a(Hv), in up to 6 matrices.
  std::vector<Linear> in;
  std::vector<float> conv_w;   // [K][C] over q | k | v
  std::vector<float> dt_bias;  // [Hv]
  std::vector<float> a;        // [Hv], -exp(A_log)
  std::vector<float> norm;     // [value_dim]
  Linear out;
};

// The matrices of MlpForm.
struct MlpWeights {
  Linear gate, up, down;  // gate is empty where the form is not gated
};

struct MoeWeights {
  Linear router;                     // [E, h]
  std::vector<float> correction;     // [E] or empty
  std::vector<MlpWeights> experts;   // no gate unless MoeConfig.gated
  Linear latent_in, latent_out;      // [latent, h], [h, latent]; empty unless MoeConfig.latent
  std::optional<MlpWeights> shared;  // as the experts, but of the hidden size
  Linear shared_gate;                // [1, h] or empty
};

// An addition B A x to a product.
struct LowRank {
  Linear a;               // [rank, in]
  std::vector<Linear> b;  // each [out, rank]
};

// The weights of SharedBlockConfig that several layers use.
struct SharedBlockWeights {
  std::vector<float> input_norm;  // [2 h]
  AttentionWeights attention;
  std::vector<float> ffn_norm;  // [h]
  MlpWeights mlp;
};

// What a layer that uses a shared block has for itself.
struct SharedUseWeights {
  size_t block = 0;
  std::vector<LowRank> qkv;        // empty, or for q, k and v
  std::optional<LowRank> gate_up;  // b: gate, up
  Linear linear;                   // [h, h]
};

struct LayerWeights {
  std::vector<float> mixer_norm, ffn_norm;  // [h]
  std::optional<AttentionWeights> attention;
  std::optional<Mamba2Weights> mamba2;
  std::optional<Mamba1Weights> mamba1;
  std::optional<ShortConvWeights> short_conv;
  std::optional<LightningWeights> lightning;
  std::optional<GatedDeltaWeights> gated_delta;
  std::optional<RgLruWeights> rg_lru;
  std::optional<MlpWeights> mlp;
  std::optional<MoeWeights> moe;
  std::optional<SharedUseWeights> shared;
};

struct DecoderWeights {
  Linear embedding;               // [V, h]; also the output matrix if tied
  Linear lm_head;                 // [V, h]; empty if tied
  std::vector<float> final_norm;  // [h]
  std::vector<LayerWeights> layers;
  std::vector<SharedBlockWeights> shared_blocks;
};

}  // namespace baton::model

#endif  // BATON_MODEL_WEIGHTS_H_
