// Tensor names that several architectures share. `prefix` ends in a dot.
// Thread rule: free functions.
#ifndef BATON_MODEL_BIND_PARTS_H_
#define BATON_MODEL_BIND_PARTS_H_

#include <string>

#include "model/config.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {

// "model.layers.3."
std::string LayerPrefix(size_t layer);
// model.embed_tokens, lm_head unless tied, and the final norm under `norm_name`.
void BindEnds(const ModelConfig& config,
              WeightBinder* binder,
              const std::string& norm_name,
              DecoderWeights* weights);
// The same without the norm.
void BindEmbeddings(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
// Both under the names of the pure state-space models: {embeddings, norm_f} after "backbone.".
void BindBackboneEnds(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
// {q,k,v,o}_proj.
void BindAttention(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   LayerWeights* layer);
void BindAttentionWeights(const ModelConfig& config,
                          WeightBinder* binder,
                          const std::string& prefix,
                          AttentionWeights* weights);
// One head.
void BindMamba1(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer);
void BindMamba2(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer);
// {gate,up,down}_proj of `width`; no gate_proj where the form has none.
void BindMlp(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             const MlpConfig& mlp,
             MlpWeights* to);

// What a type calls an expert's matrices: "gate_proj", "up_proj", "down_proj" or "w1", "w3", "w2".
struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
};
// One tensor per matrix, `prefix`E.`name`.weight. No gate unless the experts are gated. The rest of
// a MoeWeights (router, shared expert, ...) is the architecture's to bind.
void BindExperts(const ModelConfig& config,
                 WeightBinder* binder,
                 const std::string& prefix,
                 const ExpertNames& names,
                 MoeWeights* moe);
// All experts in two tensors: `in` [E, 2I, h], an expert's gate rows over its up rows ([E, I, h]
// without gates), and `out` [E, h, I].
void BindFusedExperts(const ModelConfig& config,
                      WeightBinder* binder,
                      const std::string& in,
                      const std::string& out,
                      MoeWeights* moe);

}  // namespace baton::model

#endif  // BATON_MODEL_BIND_PARTS_H_
