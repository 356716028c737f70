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
// {q,k,v,o}_proj.
void BindAttention(const ModelConfig& config,
                   WeightBinder* binder,
                   const std::string& prefix,
                   LayerWeights* layer);
void BindMamba2(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer);
// {gate,up,down}_proj of `width`.
void BindMlp(const ModelConfig& config,
             WeightBinder* binder,
             const std::string& prefix,
             const MlpConfig& mlp,
             MlpWeights* to);

}  // namespace baton::model

#endif  // BATON_MODEL_BIND_PARTS_H_
