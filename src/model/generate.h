// Synthetic checkpoints: a published config with random weights of sane scale, for benchmarks and
// tests. The bytes are a function of (config, options) alone, whatever the machine and the number
// of threads. They are written as they are made; memory stays at a few megabytes.
// Thread rule: free functions.
#ifndef BATON_MODEL_GENERATE_H_
#define BATON_MODEL_GENERATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "model/safetensors.h"

namespace baton::model {

struct GenerateOptions {
  uint64_t seed = 1;
  TensorDType dtype = TensorDType::kF32;  // kF32 or kBF16
  // Most bytes of one file; 0: a single model.safetensors. A tensor is never split.
  uint64_t shard_bytes_max = 0;
};

struct GenerateReport {
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // of weights
  size_t files = 0;
};

// Writes config.json and the weights into the existing directory `dir`. `pool` may be null.
StatusOr<GenerateReport> GenerateCheckpoint(const Json& config,
                                            const GenerateOptions& options,
                                            const std::string& dir,
                                            ThreadPool* pool);

// Configs by name: "TYPE-100m" (12 layers, hidden 768, dense), one for each kind of recurrence, for
// measurements; "granite-1b" (the shape of a published 36 + 4 layer model); and "tiny-TYPE" for
// tests. NotFound lists the names.
StatusOr<Json> PresetConfig(const std::string& name);
std::vector<std::string> PresetNames();

}  // namespace baton::model

#endif  // BATON_MODEL_GENERATE_H_
