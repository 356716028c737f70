// Granite 4: Mamba-2 and attention layers, a shared gated MLP, optionally summed with routed
// experts; multipliers on embeddings, residuals, attention scores and logits.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"

namespace baton::model {
namespace {

void ParseLayers(ConfigReader* reader, ModelConfig* config) {
  const int64_t count = reader->Int({"num_hidden_layers"}, 32, kLayersRange);
  config->layers.resize(count, LayerConfig{.mixer = Mixer::kMamba2});
  const std::vector<std::string> types =
      reader->Texts({"layer_types", "layers_block_type"}, kLayersRange.max);
  if (types.empty()) return;
  if (static_cast<int64_t>(types.size()) != count) {
    return reader->Fail(absl::StrCat("\"layer_types\" lists ", types.size(),
                                     " layers, \"num_hidden_layers\" is ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (types[i] == "attention" || types[i] == "full_attention") {
      config->layers[i].mixer = Mixer::kAttention;
    } else if (types[i] != "mamba" && types[i] != "linear_attention") {
      return reader->Fail(absl::StrCat("layer ", i, " has type \"", types[i],
                                       "\"; \"mamba\" and \"attention\" are supported"));
    }
  }
}

}  // namespace

void ParseGraniteMoeHybrid(ConfigReader* reader, ModelConfig* config) {
  RequireSilu(reader);
  config->max_position = reader->Int({"max_position_embeddings"}, 2048, kPositionRange);
  config->rms_norm_eps = static_cast<float>(reader->Positive({"rms_norm_eps"}, 1e-6));
  const auto multiplier = [&](const char* key) {
    return static_cast<float>(reader->Positive({key}, 1.0));
  };
  config->embedding_multiplier = multiplier("embedding_multiplier");
  config->residual_multiplier = multiplier("residual_multiplier");
  config->logits_divisor = multiplier("logits_scaling");
  ParseLayers(reader, config);

  if (config->CountMixers(Mixer::kAttention) > 0) {
    config->attention = ParseAttention(reader, *config, std::nullopt);
    config->attention->scale = multiplier("attention_multiplier");
    const std::string position = reader->Text({"position_embedding_type"}, "nope");
    if (position == "rope") {
      config->attention->rope = ParseRope(reader, config->attention->head_dim, 1.0);
    } else if (position != "nope") {
      reader->Fail(absl::StrCat("\"position_embedding_type\" is \"", position,
                                "\"; \"nope\" and \"rope\" are supported"));
    }
  }
  if (config->CountMixers(Mixer::kMamba2) > 0) {
    config->mamba2 = ParseMamba2(reader, *config);
    // The reference normalises over the whole width even with several groups of B and C.
    config->mamba2->norm_groups = 1;
  }
  config->mlp = MlpConfig{reader->Int({"shared_intermediate_size"}, 1024, kWidthRange), false};
  const int64_t experts = reader->Int({"num_local_experts"}, 8, kExpertsRange);
  if (experts == 0) return;  // dense variant
  config->moe = MoeConfig{.experts = experts,
                          .top_k = reader->Int({"num_experts_per_tok"}, 2, Range{1, experts}),
                          .width = reader->Int({"intermediate_size"}, 11008, kWidthRange),
                          .router = Router::kTopKSoftmax};
  for (LayerConfig& layer : config->layers) layer.moe = true;
}

namespace {

// One tensor holds gate over up, so two matrices are cut from it: both start on a panel.
void BindSharedMlp(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   MlpWeights* mlp) {
  const int64_t h = config.hidden_size, width = config.mlp->width;
  const std::string in = prefix + "input_linear.weight";
  binder->MatrixRows(in, {2 * width, h}, 0, width, &mlp->gate.w);
  binder->MatrixRows(in, {2 * width, h}, width, width, &mlp->up.w);
  binder->Matrix(prefix + "output_linear.weight", h, width, &mlp->down.w);
}

}  // namespace

void BindGraniteMoeHybrid(const ModelConfig& config,
                          WeightBinder* binder,
                          DecoderWeights* weights) {
  BindEnds(config, binder, "model.norm.weight", weights);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerWeights* layer = &weights->layers[i];
    const int64_t h = config.hidden_size;
    binder->Vector(prefix + "input_layernorm.weight", h, TensorRole::kNorm, &layer->mixer_norm);
    binder->Vector(prefix + "post_attention_layernorm.weight", h, TensorRole::kNorm,
                   &layer->ffn_norm);
    if (config.layers[i].mixer == Mixer::kAttention) {
      BindAttention(config, binder, prefix + "self_attn.", layer);
    } else {
      BindMamba2(config, binder, prefix + "mamba.", layer);
    }
    BindSharedMlp(config, binder, prefix + "shared_mlp.", &layer->mlp.emplace());
    if (config.layers[i].moe) {
      const std::string block = prefix + "block_sparse_moe.";
      MoeWeights& moe = layer->moe.emplace();
      binder->Matrix(block + "router.layer.weight", config.moe->experts, h, &moe.router.w);
      BindFusedExperts(config, binder, block + "input_linear.weight",
                       block + "output_linear.weight", &moe);
    }
  }
}

}  // namespace baton::model
