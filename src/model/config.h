// The shape of a model, read from a published config.json: typed, bounded, with the defaults of the
// transformers library where a key is absent. Old and new spellings of a key are both honoured.
// It holds no weights and says nothing of tokens' text. Thread rule: plain values.
#ifndef BATON_MODEL_CONFIG_H_
#define BATON_MODEL_CONFIG_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/types.h"
#include "model/quantisation.h"

namespace baton::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

// Rotate-half position embedding on the first `dims` of each head (models: bamba, llama).
struct RopeConfig {
  double theta = 10000;
  int64_t dims = 0;  // even, <= head_dim
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_freq_factor = 1;   // kLlama3 only
  double high_freq_factor = 4;  // kLlama3 only
  double original_max_position = 8192;
};

// RMS norm of queries and keys before the rotation.
enum class QkNorm : uint8_t { kNone, kPerHead, kAllHeads };

struct AttentionConfig {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  float scale = 0;  // of the scores
  bool bias = false;
  int64_t input = 0;         // width of what it reads; 0: the hidden size
  float key_multiplier = 1;  // of the keys, before the rotation
  QkNorm qk_norm = QkNorm::kNone;
  bool output_gate = false;  // output *= sigmoid(gate x)
  int64_t window = 0;        // tokens a query sees including itself; 0: all
  std::optional<RopeConfig> rope;
};

// What becomes of a Mamba-2 layer's y and its gate z, each group of channels by itself.
enum class GateNorm : uint8_t {
  kGateFirst,  // w * rms(y * silu(z))
  kNormFirst,  // w * rms(y) * silu(z)
  kNone,       // y * silu(z)
};

struct Mamba2Config {
  int64_t heads = 0;     // H
  int64_t head_dim = 0;  // P
  int64_t state = 0;     // N
  int64_t groups = 1;    // of B and C; divides heads
  int64_t norm_groups = 1;
  int64_t conv_width = 4;  // K
  bool conv_bias = true;
  bool proj_bias = false;
  float dt_min = 0;  // clamp of the step
  float dt_max = 0;
  GateNorm gate_norm = GateNorm::kGateFirst;
  float norm_eps = 0;  // of the gated norm; 0: the model's
  // Of the segments z, x, B, C, dt of the input projection.
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};

  int64_t inner() const { return heads * head_dim; }
  int64_t conv_channels() const { return inner() + 2 * groups * state; }
  int64_t in_proj() const { return inner() + conv_channels() + heads; }
};

// RMS norm of the parts dt, B and C of the selective projection.
enum class PartNorm : uint8_t { kNone, kPlain, kWeighted };

struct Mamba1Config {
  int64_t inner = 0;  // I
  // Equal runs of channels, each with selective projections of its own.
  int64_t heads = 1;
  int64_t state = 0;  // N
  int64_t dt_rank = 0;
  int64_t conv_width = 4;
  bool conv_bias = true;
  bool proj_bias = false;
  PartNorm part_norm = PartNorm::kWeighted;
  float part_eps = 0;  // of that norm; 0: the model's

  int64_t head_channels() const { return inner / heads; }
  int64_t part_width() const { return dt_rank + 2 * state; }  // of one head
};

// Gated convolution over hidden_size channels.
struct ShortConvConfig {
  int64_t width = 3;  // K
  bool bias = false;  // of both projections and the convolution
};

// Gated delta rule (models: qwen3_next, qwen3_5, olmo_hybrid).
struct GatedDeltaConfig {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
  int64_t conv_width = 4;  // K
  float beta_scale = 1;    // 2: a state may also flip its sign along a key
  float norm_eps = 0;      // of the gated norm of the output

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t conv_channels() const { return 2 * keys() + values(); }
  // q | k | v | z | b | a
  int64_t in_proj() const { return conv_channels() + values() + 2 * value_heads; }
};

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu2 };

// How a feed-forward part computes: down(act(gate x) * up x), or, not gated, down(act(up x)).
struct MlpForm {
  Activation act = Activation::kSilu;
  bool gated = true;
  float gate_multiplier = 1;  // of gate x (models: falcon_h1)
  float down_multiplier = 1;  // of the output

  bool operator==(const MlpForm&) const = default;
};

// Real-gated linear recurrence over `width` channels.
struct RgLruConfig {
  int64_t width = 0;
  int64_t blocks = 1;  // of the gates; divides width
  int64_t conv_width = 4;

  int64_t block_width() const { return width / blocks; }
};

// Lightning attention; keys and values are equally wide.
struct LightningConfig {
  int64_t heads = 0;
  int64_t head_dim = 0;

  int64_t inner() const { return heads * head_dim; }
};

struct MlpConfig {
  int64_t width = 0;
  bool bias = false;
  MlpForm form = {};
};

// How a row's experts and their shares come from the router's logits. Ties: the lower id.
enum class Router : uint8_t {
  kSoftmax,      // over all experts; the top k of it
  kTopKSoftmax,  // the top k logits; softmax over those
  kSigmoid,      // of each logit; chosen by sigmoid + correction, the share is the sigmoid
};

inline constexpr int64_t kExpertGroupsMax = 256;

struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t width = 0;
  Router router = Router::kSoftmax;
  bool correction = false;   // kSigmoid: a bias per expert, for the choice only
  bool renormalise = false;  // shares / (their sum + renormalise_eps)
  float renormalise_eps = 0;
  float scale = 1;  // of the shares, last
  // Experts come from the `top_groups` best of `groups` runs of equal length; a run is as good as
  // the sum of its two best experts.
  int64_t groups = 1;
  int64_t top_groups = 1;
  bool gated = true;         // down(silu(gate x) * up x), or down(relu(up x)^2)
  int64_t latent = 0;        // width that experts read and write; 0: the hidden size
  int64_t shared_width = 0;  // of an expert that every row has with share 1; 0: there is none
  bool shared_gate = false;  // share sigmoid(gate x) instead
};

enum class Mixer : uint8_t {
  kAttention,
  kMamba2,
  kMamba1,
  kShortConv,
  kLightning,
  kGatedDelta,
  kRgLru,
  kNone
};

// h = residual * norm(h) + output * block(norm(h)), by kind of block.
struct ResidualShares {
  float residual = 1;
  float output = 1;
};
struct NormedResidualConfig {
  ResidualShares attention, linear, ffn;
};

struct LayerConfig {
  Mixer mixer = Mixer::kAttention;
  bool mlp = true;  // both: their outputs are summed
  bool moe = false;
  bool attention = false;  // beside another mixer: the layer has both KV and state

  bool attends() const { return attention || mixer == Mixer::kAttention; }
};

// Mixer and attention of a layer read the same normed input; both outputs are added.
struct ParallelConfig {
  float mixer_in = 1, mixer_out = 1;
  float attention_in = 1, attention_out = 1;
};

// A layer with `attention` beside its mixer first runs a block, attention and then MLP, over
// (h, embeddings), and the mixer reads norm(h + linear(block)). The j-th such layer uses the
// weights of block j % blocks, each with a low-rank addition of its own.
struct SharedBlockConfig {
  int64_t blocks = 1;
  MlpConfig mlp;
  int64_t mlp_rank = 0;        // of the addition to gate and up; 0: none
  int64_t attention_rank = 0;  // of that to queries, keys and values
};

struct ModelConfig {
  std::string model_type;
  std::string stated_dtype;  // what the file says; weights keep the dtype they have
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_position = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  float embedding_multiplier = 1;
  float residual_multiplier = 1;
  float logits_divisor = 1;
  // Layers with attention norm what their blocks give instead of what they read.
  bool attention_post_norm = false;
  float logits_soft_cap = 0;  // logits = cap * tanh(logits / cap); 0: none
  std::vector<TokenId> eos_token_ids;
  // Matrices may be stored in FP8 with scales per block; the fingerprint covers what they load as.
  std::optional<ScaleBlock> block_scales;
  std::vector<LayerConfig> layers;
  // Present iff a layer uses it.
  std::optional<AttentionConfig> attention;
  std::optional<Mamba2Config> mamba2;
  std::optional<Mamba1Config> mamba1;
  std::optional<ShortConvConfig> short_conv;
  std::optional<LightningConfig> lightning;
  std::optional<GatedDeltaConfig> gated_delta;
  std::optional<RgLruConfig> rg_lru;
  std::optional<MlpConfig> mlp;
  std::optional<MoeConfig> moe;
  // How layers are wired: at most one; without, by a plain residual.
  std::optional<NormedResidualConfig> normed_residual;
  std::optional<ParallelConfig> parallel;
  std::optional<SharedBlockConfig> shared_block;

  // Layers with a mixer of this kind; for attention, also those that have it beside another.
  int64_t CountMixers(Mixer mixer) const;
};

// Errors name the key, what was found, what is allowed and, for formats that are not supported,
// the remedy.
StatusOr<ModelConfig> ParseConfig(const Json& json);
// `path` is a config.json or a directory that holds one.
StatusOr<ModelConfig> ReadConfig(const std::string& path);

// Model types that ParseConfig accepts, "bamba, granitemoehybrid, ...".
std::string SupportedModelTypes();

// Every field that influences a computed bit, in a fixed order: what the model fingerprint covers.
std::string CanonicalText(const ModelConfig& config);

}  // namespace baton::model

#endif  // BATON_MODEL_CONFIG_H_
