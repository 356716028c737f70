#include "model/bind_parts.h"

#include "absl/strings/str_cat.h"

namespace baton::model {

std::string LayerPrefix(size_t layer) { return absl::StrCat("model.layers.", layer, "."); }

namespace {

void BindHead(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  if (config.tie_word_embeddings) {
    binder->Ignore("lm_head.weight");  // some exporters save the tied copy too
  } else {
    binder->Matrix("lm_head.weight", config.vocab_size, config.hidden_size, &weights->lm_head.w);
  }
}

}  // namespace

void BindEnds(const ModelConfig& config,
              WeightBinder* binder,
              const std::string& norm_name,
              DecoderWeights* weights) {
  BindEmbeddings(config, binder, weights);
  binder->Vector(norm_name, config.hidden_size, TensorRole::kNorm, &weights->final_norm);
}

void BindEmbeddings(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  binder->Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                 &weights->embedding.w, TensorRole::kEmbedding);
  BindHead(config, binder, weights);
}

void BindBackboneEnds(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  binder->Matrix("backbone.embeddings.weight", config.vocab_size, config.hidden_size,
                 &weights->embedding.w, TensorRole::kEmbedding);
  BindHead(config, binder, weights);
  binder->Vector("backbone.norm_f.weight", config.hidden_size, TensorRole::kNorm,
                 &weights->final_norm);
}

void BindAttentionWeights(const ModelConfig& config,
                          WeightBinder* binder,
                          const std::string& prefix,
                          AttentionWeights* w) {
  const AttentionConfig& a = *config.attention;
  const int64_t h = config.hidden_size, in = a.input > 0 ? a.input : h;
  binder->LinearLayer(prefix + "q_proj", a.heads * a.head_dim, in, a.bias, &w->q);
  binder->LinearLayer(prefix + "k_proj", a.kv_heads * a.head_dim, in, a.bias, &w->k);
  binder->LinearLayer(prefix + "v_proj", a.kv_heads * a.head_dim, in, a.bias, &w->v);
  binder->LinearLayer(prefix + "o_proj", h, a.heads * a.head_dim, a.bias, &w->o);
}

void BindAttention(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   LayerWeights* layer) {
  BindAttentionWeights(config, binder, prefix, &layer->attention.emplace());
}

void BindMamba1(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer) {
  const Mamba1Config& m = *config.mamba1;
  BATON_CHECK(m.heads == 1);
  Mamba1Weights& w = layer->mamba1.emplace();
  const int64_t h = config.hidden_size;
  binder->LinearLayer(prefix + "in_proj", 2 * m.inner, h, m.proj_bias, &w.in);
  binder->Conv(prefix + "conv1d.weight", m.inner, m.conv_width, &w.conv_w);
  if (m.conv_bias) binder->Vector(prefix + "conv1d.bias", m.inner, TensorRole::kBias, &w.conv_b);
  w.x.resize(1);
  w.dt.resize(1);
  binder->LinearLayer(prefix + "x_proj", m.part_width(), m.inner, false, &w.x[0]);
  binder->LinearLayer(prefix + "dt_proj", m.inner, m.dt_rank, false, &w.dt[0]);
  binder->Vector(prefix + "dt_proj.bias", m.inner, TensorRole::kDtBias, &w.dt_bias);
  if (m.part_norm == PartNorm::kWeighted) {
    binder->Vector(prefix + "dt_layernorm.weight", m.dt_rank, TensorRole::kNorm, &w.dt_norm);
    binder->Vector(prefix + "b_layernorm.weight", m.state, TensorRole::kNorm, &w.b_norm);
    binder->Vector(prefix + "c_layernorm.weight", m.state, TensorRole::kNorm, &w.c_norm);
  } else if (m.part_norm == PartNorm::kPlain) {
    w.dt_norm.assign(m.dt_rank, 1.0f);
    w.b_norm.assign(m.state, 1.0f);
    w.c_norm.assign(m.state, 1.0f);
  }
  binder->Decay2d(prefix + "A_log", {m.inner, m.state}, &w.a);
  binder->Vector(prefix + "D", m.inner, TensorRole::kSkip, &w.d);
  binder->LinearLayer(prefix + "out_proj", h, m.inner, m.proj_bias, &w.out);
}

void BindMamba2(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer) {
  const Mamba2Config& m = *config.mamba2;
  Mamba2Weights& w = layer->mamba2.emplace();
  binder->LinearLayer(prefix + "in_proj", m.in_proj(), config.hidden_size, m.proj_bias, &w.in);
  binder->Conv(prefix + "conv1d.weight", m.conv_channels(), m.conv_width, &w.conv_w);
  if (m.conv_bias)
    binder->Vector(prefix + "conv1d.bias", m.conv_channels(), TensorRole::kBias, &w.conv_b);
  binder->Vector(prefix + "dt_bias", m.heads, TensorRole::kDtBias, &w.dt_bias);
  binder->Decay(prefix + "A_log", m.heads, &w.a);
  binder->Vector(prefix + "D", m.heads, TensorRole::kSkip, &w.d);
  if (m.gate_norm != GateNorm::kNone)
    binder->Vector(prefix + "norm.weight", m.inner(), TensorRole::kNorm, &w.norm);
  binder->LinearLayer(prefix + "out_proj", config.hidden_size, m.inner(), m.proj_bias, &w.out);
}

void BindMlp(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             const MlpConfig& mlp,
             MlpWeights* to) {
  if (mlp.form.gated)
    binder->LinearLayer(prefix + "gate_proj", mlp.width, config.hidden_size, mlp.bias, &to->gate);
  binder->LinearLayer(prefix + "up_proj", mlp.width, config.hidden_size, mlp.bias, &to->up);
  binder->LinearLayer(prefix + "down_proj", config.hidden_size, mlp.width, mlp.bias, &to->down);
}

namespace {

int64_t ExpertHidden(const ModelConfig& config) {
  return config.moe->latent > 0 ? config.moe->latent : config.hidden_size;
}

}  // namespace

void BindExperts(const ModelConfig& config,
                 WeightBinder* binder,
                 const std::string& prefix,
                 const ExpertNames& names,
                 MoeWeights* moe) {
  const MoeConfig& m = *config.moe;
  const int64_t h = ExpertHidden(config);
  moe->experts.resize(m.experts);
  for (int64_t e = 0; e < m.experts; ++e) {
    MlpWeights* expert = &moe->experts[e];
    const std::string at = absl::StrCat(prefix, e, ".");
    if (m.gated) binder->LinearLayer(at + names.gate, m.width, h, false, &expert->gate);
    binder->LinearLayer(at + names.up, m.width, h, false, &expert->up);
    binder->LinearLayer(at + names.down, h, m.width, false, &expert->down);
  }
}

void BindFusedExperts(const ModelConfig& config,
                      WeightBinder* binder,
                      const std::string& in,
                      const std::string& out,
                      MoeWeights* moe) {
  const MoeConfig& m = *config.moe;
  const int64_t h = ExpertHidden(config), rows = (m.gated ? 2 : 1) * m.width;
  moe->experts.resize(m.experts);
  for (int64_t e = 0; e < m.experts; ++e) {
    MlpWeights* expert = &moe->experts[e];
    const std::vector<int64_t> shape = {m.experts, rows, h};
    if (m.gated) binder->MatrixRows(in, shape, e * rows, m.width, &expert->gate.w);
    binder->MatrixRows(in, shape, (e + 1) * rows - m.width, m.width, &expert->up.w);
    binder->MatrixRows(out, {m.experts, h, m.width}, e * h, h, &expert->down.w);
  }
}

}  // namespace baton::model
