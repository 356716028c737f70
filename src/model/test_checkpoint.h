// Configs and checkpoints for tests: presets with keys changed, and tensors of a file taken out,
// changed and written again. For tests only. Thread rule: free functions.
#ifndef BATON_MODEL_TEST_CHECKPOINT_H_
#define BATON_MODEL_TEST_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/safetensors.h"

namespace baton::model {

// A preset with keys replaced; null removes one.
inline StatusOr<ModelConfig> With(const std::string& preset, const std::string& changes) {
  Json json = *PresetConfig(preset);
  json.merge_patch(*ParseJsonLenient(changes));
  return ParseConfig(json);
}

inline std::string Error(const StatusOr<ModelConfig>& config) {
  return config.ok() ? "ok" : std::string(config.status().message());
}

struct Stored {
  TensorDType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Stored>;

inline Tensors ReadAll(const std::string& path) {
  Tensors out;
  const auto file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  for (const StoredTensor& t : (*file)->tensors())
    out[t.name] = {t.dtype, t.shape, {t.bytes.begin(), t.bytes.end()}};
  return out;
}

inline void WriteAll(const std::string& path, const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, t.dtype, t.shape});
  auto writer = SafetensorsWriter::Create(path, specs, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& [name, t] : tensors) ASSERT_TRUE(writer->Append(t.bytes).ok());
  const Status closed = writer->Close();
  ASSERT_TRUE(closed.ok()) << closed;
}

// The tokens of a golden.safetensors.
inline std::vector<TokenId> RecordedTokens(const Tensors& golden) {
  const Stored& ids = golden.at("input_ids");
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < ids.bytes.size(); i += sizeof(int64_t)) {
    int64_t id;
    std::memcpy(&id, ids.bytes.data() + i, sizeof id);
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

}  // namespace baton::model

#endif  // BATON_MODEL_TEST_CHECKPOINT_H_
