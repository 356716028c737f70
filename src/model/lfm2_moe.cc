// LFM2 with routed experts: as lfm2, but for experts in place of the MLP after the first layers.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/lfm2_parts.h"

namespace baton::model {
namespace {

void BindMoe(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             MoeWeights* w) {
  const MoeConfig& m = *config.moe;
  binder->LinearLayer(prefix + "gate", m.experts, config.hidden_size, false, &w->router);
  if (m.correction)
    binder->Vector(prefix + "expert_bias", m.experts, TensorRole::kBias, &w->correction);
  BindExperts(config, binder, prefix + "experts.", ExpertNames{"w1", "w3", "w2"}, w);
}

}  // namespace

// Experts from layer "num_dense_layers" on; the MLP before them is as wide as stated.
void ParseLfm2Moe(ConfigReader* reader, ModelConfig* config) {
  ParseLfm2Mixers(reader, config);
  const int64_t layers = static_cast<int64_t>(config->layers.size());
  const int64_t dense = reader->Int({"num_dense_layers"}, 2, Range{0, kLayersRange.max});
  for (int64_t i = dense; i < layers; ++i) {
    config->layers[i].mlp = false;
    config->layers[i].moe = true;
  }
  if (dense > 0)
    config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 7168, kWidthRange), false};
  if (dense >= layers) return;
  MoeConfig& moe = config->moe.emplace();
  moe.experts = reader->Int({"num_experts"}, 32, Range{1, kExpertsRange.max});
  moe.top_k = reader->Int({"num_experts_per_tok"}, 4, Range{1, moe.experts});
  moe.width = reader->Int({"moe_intermediate_size"}, 1792, kWidthRange);
  moe.router = Router::kSigmoid;
  moe.correction = reader->Bool({"use_expert_bias"}, true);
  moe.renormalise = reader->Bool({"norm_topk_prob"}, true);
  moe.renormalise_eps = 1e-6f;
  moe.scale = static_cast<float>(reader->Positive({"routed_scaling_factor"}, 1.0));
}

void BindLfm2Moe(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindEnds(config, binder, "model.embedding_norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerWeights* layer = &weights->layers[i];
    BindLfm2Mixer(config, binder, i, layer);
    if (config.layers[i].moe) {
      BindMoe(config, binder, LayerPrefix(i) + "feed_forward.", &layer->moe.emplace());
    } else {
      BindLfm2Mlp(config, binder, i, layer);
    }
  }
}

}  // namespace baton::model
