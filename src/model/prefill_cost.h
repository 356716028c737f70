// Operations that prefill of a history costs, from a model's config alone: what a reused state
// saves. Thread rule: free functions.
#ifndef BATON_MODEL_PREFILL_COST_H_
#define BATON_MODEL_PREFILL_COST_H_

#include "model/config.h"

namespace baton::model {

// Of n tokens: per_token * n + per_token_pair * n * n. A multiply-add counts two. Matrices count
// with the parameters that are active (chosen experts only); the output head, computed once, and
// elementwise work are left out.
struct PrefillCost {
  double per_token = 0;
  double per_token_pair = 0;
};

PrefillCost CountPrefillCost(const ModelConfig& config);

}  // namespace baton::model

#endif  // BATON_MODEL_PREFILL_COST_H_
