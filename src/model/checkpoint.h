// The tensors of a model directory: model.safetensors, or the shards that
// model.safetensors.index.json lists. Opens and checks every file; reads no tensor.
// Directories that hold another format (GGUF, PyTorch pickles, quantised weights) are refused by
// name with the remedy. Thread rule: immutable after Open.
#ifndef BATON_MODEL_CHECKPOINT_H_
#define BATON_MODEL_CHECKPOINT_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/safetensors.h"

namespace baton::model {

inline constexpr size_t kShardsMax = 4096;

class Checkpoint {
 public:
  static StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);

  // Null if there is none of that name.
  const StoredTensor* Find(std::string_view name) const;
  // Every tensor by name, sorted.
  const std::map<std::string, const StoredTensor*, std::less<>>& tensors() const {
    return tensors_;
  }
  // Path of the file that holds `name`; "" if there is none.
  std::string FileOf(std::string_view name) const;
  size_t files() const { return files_.size(); }
  // Gives the pages of a tensor that has been copied back to the system.
  void Release(const StoredTensor& tensor) const;

 private:
  Checkpoint() = default;
  Status Add(std::unique_ptr<SafetensorsFile> file);
  Status OpenShards(const std::string& dir, const std::string& index_path);
  const SafetensorsFile* Owner(const StoredTensor& tensor) const;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_CHECKPOINT_H_
