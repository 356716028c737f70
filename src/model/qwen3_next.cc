// Qwen3-Next: gated delta rule layers with one gated attention layer in four; routed experts with a
// gated shared one, or an MLP in the layers that are named.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/qwen_parts.h"

namespace baton::model {

void ParseQwen3Next(ConfigReader* reader, ModelConfig* config) {
  ParseQwenMixers(reader, QwenDefaults{.layers = 48, .kv_heads = 2}, config);
  const int64_t experts = reader->Int({"num_experts"}, 512, kExpertsRange);
  const int64_t every = reader->Int({"decoder_sparse_step"}, 1, kLayersRange);
  const int64_t count = static_cast<int64_t>(config->layers.size());
  std::vector<bool> only_mlp(count);
  for (const int64_t i : reader->Ints({"mlp_only_layers"}, kLayersRange.max)) {
    if (i < 0 || i >= count) {
      return reader->Fail(
          absl::StrCat("\"mlp_only_layers\" names layer ", i, ", there are ", count, " layers"));
    }
    only_mlp[i] = true;
  }
  bool any_mlp = false, any_moe = false;
  for (int64_t i = 0; i < count; ++i) {
    LayerConfig& layer = config->layers[i];
    layer.moe = experts > 0 && !only_mlp[i] && (i + 1) % every == 0;
    layer.mlp = !layer.moe;
    any_mlp |= layer.mlp;
    any_moe |= layer.moe;
  }
  if (any_mlp) config->mlp = MlpConfig{reader->Int({"intermediate_size"}, 5632, kWidthRange)};
  if (any_moe) config->moe = ParseQwenMoe(reader, experts);
}

namespace {

// One key head after another: its q, k, then v and z of the value heads that use it; b and a alike.
void BindInterleaved(const ModelConfig& config,
                     WeightBinder* binder,
                     const std::string& prefix,
                     GatedDeltaWeights* w) {
  const GatedDeltaConfig& g = *config.gated_delta;
  const int64_t h = config.hidden_size, heads = g.value_heads / g.key_heads;
  const int64_t values = heads * g.value_dim, all = 2 * g.key_dim + 2 * values;
  std::vector<WeightBinder::Run> qkvz, ba;
  const auto add = [&](std::vector<WeightBinder::Run>* runs, int64_t stride, int64_t begin,
                       int64_t rows) {
    for (int64_t head = 0; head < g.key_heads; ++head)
      runs->push_back({head * stride + begin, rows});
  };
  add(&qkvz, all, 0, g.key_dim);
  add(&qkvz, all, g.key_dim, g.key_dim);
  add(&qkvz, all, 2 * g.key_dim, values);
  add(&qkvz, all, 2 * g.key_dim + values, values);
  add(&ba, 2 * heads, 0, heads);
  add(&ba, 2 * heads, heads, heads);
  w->in.resize(2);
  binder->MatrixRuns(prefix + "in_proj_qkvz.weight", {g.key_heads * all, h}, qkvz, &w->in[0].w);
  binder->MatrixRuns(prefix + "in_proj_ba.weight", {2 * g.value_heads, h}, ba, &w->in[1].w);
}

}  // namespace

void BindQwen3Next(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindQwen(config, binder, BindInterleaved, /*fused=*/false, weights);
}

}  // namespace baton::model
