// The models and endpoints a soak runs over. Thread rule: pure functions.
#ifndef BATON_TEST_SOAK_MODELS_H_
#define BATON_TEST_SOAK_MODELS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/model.h"

namespace baton::soak {

// The embedded model and one tiny checkpoint of each kind of state: "models/demo", ...
std::vector<std::string> RealModels();
// Of the source tree. CHECK-fails.
std::shared_ptr<const model::Model> LoadModel(const std::string& name);
std::string SourcePath(const std::string& relative);

// "inproc", "shm", "tcp", and if asked for "ucx" where this build has it.
std::vector<std::string> Schemes(bool ucx);
// One that is free for each of them.
std::vector<std::string> FreshEndpoints(bool ucx);
std::vector<TokenId> RandomTokens(SplitMix64* rng, size_t n, int64_t vocab);

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_MODELS_H_
