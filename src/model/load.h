// Fills the weights of a bound model from a checkpoint, one pass per tensor: pack, digest, give
// the file's pages back. Thread rule: free functions.
#ifndef BATON_MODEL_LOAD_H_
#define BATON_MODEL_LOAD_H_

#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "model/checkpoint.h"
#include "model/weight_binder.h"

namespace baton::model {

// Runs every consumer of `binder` and returns the model fingerprint over all bound tensors,
// `config_text` and `adapter`. The checkpoint must have passed binder.Compare. `pool` may be null.
StatusOr<Sha256> LoadWeights(const WeightBinder& binder,
                             const Checkpoint& checkpoint,
                             const std::string& config_text,
                             const std::string& adapter,
                             ThreadPool* pool);

}  // namespace baton::model

#endif  // BATON_MODEL_LOAD_H_
