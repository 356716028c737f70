#include "model/qwen_parts.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

AttentionConfig ParseAttentionBlock(ConfigReader* reader, const QwenDefaults& defaults) {
  AttentionConfig a;
  a.heads = reader->Int({"num_attention_heads"}, 16, kHeadsRange);
  a.kv_heads = reader->Int({"num_key_value_heads"}, defaults.kv_heads, kHeadsRange);
  if (a.heads % a.kv_heads != 0) {
    reader->Fail(absl::StrCat("\"num_attention_heads\" (", a.heads,
                              ") is no multiple of \"num_key_value_heads\" (", a.kv_heads, ")"));
  }
  a.head_dim = reader->Int({"head_dim"}, 256, kHeadDimRange);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  a.qk_norm = QkNorm::kPerHead;
  a.output_gate = true;
  if (!reader->Bool({"attn_output_gate"}, true)) {
    reader->Fail(
        "\"attn_output_gate\" is false: attention without an output gate is not supported for this "
        "model type");
  }
  reader->RequireAbsent({"attention_bias"}, "biases of attention are not supported for this type");
  reader->RequireAbsent({"use_sliding_window"},
                        "windowed attention is not supported for this type");
  double share = 0.25;
  if (const Json* rope = reader->Find({"rope_parameters", "rope_scaling"});
      rope != nullptr && rope->is_object()) {
    ConfigReader inner(*rope);
    share = inner.Positive({"partial_rotary_factor"},
                           reader->Positive({"partial_rotary_factor"}, share));
    if (!inner.ok()) reader->Fail(std::string(inner.status().message()));
  } else {
    share = reader->Positive({"partial_rotary_factor"}, share);
  }
  if (share > 1) {
    reader->Fail(absl::StrCat("\"partial_rotary_factor\" is ", share, ", above 1"));
    share = 1;
  }
  // Sections of the angles for time, height and width: of text all three positions are the same,
  // which is the plain rotation.
  a.rope = ParseRope(reader, a.head_dim, share);
  return a;
}

void AllowNames(WeightBinder* binder) {
  // Saved beside a vision model; that and the layers that guess several tokens ahead stay unread.
  binder->AlsoNamed("model.", "model.language_model.");
  for (const char* prefix : {"mtp.", "model.visual.", "visual."}) binder->IgnorePrefix(prefix);
}

void BindQwenEnds(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEmbeddings(config, binder, weights);
  binder->NormPlusOne("model.norm.weight", config.hidden_size, &weights->final_norm);
}

void BindNorms(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               LayerWeights* layer) {
  const int64_t h = config.hidden_size;
  binder->NormPlusOne(prefix + "input_layernorm.weight", h, &layer->mixer_norm);
  binder->NormPlusOne(prefix + "post_attention_layernorm.weight", h, &layer->ffn_norm);
}

void BindGatedAttention(const ModelConfig& config,
                        WeightBinder* binder,
                        const std::string& prefix,
                        AttentionWeights* w) {
  const AttentionConfig& a = *config.attention;
  const int64_t h = config.hidden_size, dim = a.head_dim, width = a.heads * dim;
  // Per head its query rows, then its gate's.
  std::vector<WeightBinder::Run> query, gate;
  for (int64_t head = 0; head < a.heads; ++head) {
    query.push_back({2 * head * dim, dim});
    gate.push_back({(2 * head + 1) * dim, dim});
  }
  binder->MatrixRuns(prefix + "q_proj.weight", {2 * width, h}, query, &w->q.w);
  binder->MatrixRuns(prefix + "q_proj.weight", {2 * width, h}, gate, &w->gate.w);
  binder->LinearLayer(prefix + "k_proj", a.kv_heads * dim, h, false, &w->k);
  binder->LinearLayer(prefix + "v_proj", a.kv_heads * dim, h, false, &w->v);
  binder->LinearLayer(prefix + "o_proj", h, width, false, &w->o);
  binder->NormPlusOne(prefix + "q_norm.weight", dim, &w->q_norm);
  binder->NormPlusOne(prefix + "k_norm.weight", dim, &w->k_norm);
}

void BindDelta(const ModelConfig& config,
               WeightBinder* binder,
               const std::string& prefix,
               GatedDeltaWeights* w) {
  const GatedDeltaConfig& g = *config.gated_delta;
  binder->Conv(prefix + "conv1d.weight", g.conv_channels(), g.conv_width, &w->conv_w);
  binder->Vector(prefix + "dt_bias", g.value_heads, TensorRole::kDtBias, &w->dt_bias);
  binder->Decay(prefix + "A_log", g.value_heads, &w->a);
  binder->Vector(prefix + "norm.weight", g.value_dim, TensorRole::kNorm, &w->norm);
  binder->LinearLayer(prefix + "out_proj", config.hidden_size, g.values(), false, &w->out);
}

void BindMoe(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             bool fused,
             MoeWeights* moe) {
  const MoeConfig& m = *config.moe;
  const int64_t h = config.hidden_size;
  binder->LinearLayer(prefix + "gate", m.experts, h, false, &moe->router);
  const std::string in = prefix + "experts.gate_up_proj", out = prefix + "experts.down_proj";
  if (binder->Has(in)) fused = true;
  if (binder->Has(prefix + "experts.0.gate_proj.weight")) fused = false;
  if (fused) {
    BindFusedExperts(config, binder, in, out, moe);
  } else {
    BindExperts(config, binder, prefix + "experts.", {"gate_proj", "up_proj", "down_proj"}, moe);
  }
  BindMlp(config, binder, prefix + "shared_expert.", MlpConfig{m.shared_width, false},
          &moe->shared.emplace());
  binder->LinearLayer(prefix + "shared_expert_gate", 1, h, false, &moe->shared_gate);
}

}  // namespace

void ParseQwenMixers(ConfigReader* reader, const QwenDefaults& defaults, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position = reader->Int({"max_position_embeddings"}, 32768, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  const int64_t layers = reader->Int({"num_hidden_layers"}, defaults.layers, kLayersRange);
  const int64_t interval = reader->Int({"full_attention_interval"}, 4, kLayersRange);
  ParseDeltaLayers(reader, layers, interval, config);
  if (config->CountMixers(Mixer::kAttention) > 0)
    config->attention = ParseAttentionBlock(reader, defaults);
  if (config->CountMixers(Mixer::kGatedDelta) > 0) {
    config->gated_delta = ParseGatedDelta(reader, {16, 32, 128, 128});
    config->gated_delta->norm_eps = config->rms_norm_eps;
  }
}

MoeConfig ParseQwenMoe(ConfigReader* reader, int64_t experts) {
  MoeConfig m;
  m.experts = experts;
  m.top_k = reader->Int({"num_experts_per_tok"}, std::min<int64_t>(experts, 10), Range{1, experts});
  m.width = reader->Int({"moe_intermediate_size"}, 512, kWidthRange);
  m.router = Router::kSoftmax;
  m.renormalise = reader->Bool({"norm_topk_prob"}, true);
  m.shared_width = reader->Int({"shared_expert_intermediate_size"}, 512, kWidthRange);
  m.shared_gate = true;
  return m;
}

void BindQwen35Projections(const ModelConfig& config,
                           WeightBinder* binder,
                           const std::string& prefix,
                           GatedDeltaWeights* w) {
  const GatedDeltaConfig& g = *config.gated_delta;
  const int64_t h = config.hidden_size;
  w->in.resize(4);
  binder->LinearLayer(prefix + "in_proj_qkv", g.conv_channels(), h, false, &w->in[0]);
  binder->LinearLayer(prefix + "in_proj_z", g.values(), h, false, &w->in[1]);
  binder->LinearLayer(prefix + "in_proj_b", g.value_heads, h, false, &w->in[2]);
  binder->LinearLayer(prefix + "in_proj_a", g.value_heads, h, false, &w->in[3]);
}

void BindQwen(const ModelConfig& config,
              WeightBinder* binder,
              BindProjections* projections,
              bool fused,
              DecoderWeights* weights) {
  AllowNames(binder);
  BindQwenEnds(config, binder, weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    BindNorms(config, binder, prefix, layer);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindGatedAttention(config, binder, prefix + "self_attn.", &layer->attention.emplace());
    } else {
      GatedDeltaWeights& delta = layer->gated_delta.emplace();
      projections(config, binder, prefix + "linear_attn.", &delta);
      BindDelta(config, binder, prefix + "linear_attn.", &delta);
    }
    if (config.layers[i].moe) {
      BindMoe(config, binder, prefix + "mlp.", fused, &layer->moe.emplace());
    } else {
      BindMlp(config, binder, prefix + "mlp.", *config.mlp, &layer->mlp.emplace());
    }
  }
}

}  // namespace baton::model
