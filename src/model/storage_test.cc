// Every type, its weights stored in F32 and in BF16, in one file and in shards: one model. The
// values are those of the golden checkpoints, rounded to BF16 so that either dtype can hold them.
// What the rounding itself changes in the logits is printed.
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernel/packed_matrix.h"
#include "model/golden.h"
#include "model/model.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

constexpr char kRoot[] = BATON_SOURCE_DIR "/test/golden/short/";

void CopyConfig(const std::string& type, const TempDir& to) {
  std::filesystem::copy_file(kRoot + type + "/config.json", to.file("config.json"));
}

// The same values in half the bytes; F32 tensors only, which all of the goldens' are.
Tensors Narrowed(const Tensors& tensors) {
  Tensors out;
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(t.dtype, TensorDType::kF32) << name;
    Stored& to = out[name];
    to = {TensorDType::kBF16, t.shape, std::vector<std::byte>(t.bytes.size() / 2)};
    for (size_t i = 0; i < t.bytes.size() / 4; ++i) {
      float v;
      std::memcpy(&v, t.bytes.data() + i * 4, 4);
      const uint16_t half = kernel::ToBF16(v);
      std::memcpy(to.bytes.data() + i * 2, &half, 2);
    }
  }
  return out;
}

Tensors Widened(const Tensors& tensors) {
  Tensors out;
  for (const auto& [name, t] : tensors) {
    Stored& to = out[name];
    to = {TensorDType::kF32, t.shape, std::vector<std::byte>(t.bytes.size() * 2)};
    for (size_t i = 0; i < t.bytes.size() / 2; ++i)  // a BF16 is the upper half of an F32
      std::memcpy(to.bytes.data() + i * 4 + 2, t.bytes.data() + i * 2, 2);
  }
  return out;
}

void WriteSharded(const TempDir& dir, const Tensors& tensors, size_t shards) {
  std::vector<Tensors> files(shards);
  Json map = Json::object();
  size_t i = 0;
  for (const auto& [name, t] : tensors) {
    const size_t shard = i++ % shards;
    files[shard][name] = t;
    map[name] = absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards);
  }
  for (size_t s = 0; s < shards; ++s)
    WriteAll(dir.file(absl::StrFormat("model-%05d-of-%05d.safetensors", s + 1, shards)), files[s]);
  dir.Write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

struct Outputs {
  std::vector<float> logits;
  std::vector<std::byte> slot;
  friend bool operator==(const Outputs&, const Outputs&) = default;
};

// All tokens, `chunk` at a time (0: at once).
Outputs RunModel(const Model& model, const std::vector<TokenId>& tokens, size_t chunk) {
  SequenceMemory memory(model.layout(), static_cast<int64_t>(tokens.size()));
  Workspace workspace;
  const auto vocab = static_cast<size_t>(model.vocab_size());
  Outputs run;
  run.logits.resize(tokens.size() * vocab);
  if (chunk == 0) chunk = tokens.size();
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto piece = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
    const BatchItem item = memory.Extend(piece, LogitsMode::kAll, run.logits.data() + at * vocab);
    const Status status = model.Forward(std::span(&item, 1), &workspace, nullptr);
    EXPECT_TRUE(status.ok()) << status;
  }
  run.slot.assign(memory.slot(), memory.slot() + model.layout().slot_bytes());
  return run;
}

class StorageTest : public testing::TestWithParam<const char*> {};

TEST_P(StorageTest, DtypeAndShardsOfTheFilesDoNotShowInTheBits) {
  const Tensors recorded = ReadAll(kRoot + std::string(GetParam()) + "/model.safetensors");
  const Tensors bf16 = Narrowed(recorded), f32 = Widened(bf16);
  const auto load = [&](const std::function<void(const TempDir&)>& write, const TempDir& dir) {
    CopyConfig(GetParam(), dir);
    write(dir);
    auto model = Model::Load(dir.path(), {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  };
  TempDir d[4];
  const std::unique_ptr<Model> models[] = {
      load([&](const TempDir& to) { WriteAll(to.file("model.safetensors"), f32); }, d[0]),
      load([&](const TempDir& to) { WriteSharded(to, f32, 3); }, d[1]),
      load([&](const TempDir& to) { WriteAll(to.file("model.safetensors"), bf16); }, d[2]),
      load([&](const TempDir& to) { WriteSharded(to, bf16, 5); }, d[3])};
  for (const auto& model : models) ASSERT_NE(model, nullptr);

  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < 37; ++i)
    tokens.push_back(static_cast<TokenId>((i * 7919 + 13) % models[0]->vocab_size()));
  const Outputs expected = RunModel(*models[0], tokens, 0);
  for (const auto& model : models)
    for (const size_t chunk : {size_t{0}, size_t{1}, size_t{8}})
      EXPECT_TRUE(RunModel(*model, tokens, chunk) == expected)
          << "model " << (&model - models) << ", " << chunk << " tokens at a time";

  // Shards are a matter of files only; another dtype is another set of weights.
  EXPECT_EQ(models[0]->fingerprint(), models[1]->fingerprint());
  EXPECT_EQ(models[2]->fingerprint(), models[3]->fingerprint());
  EXPECT_NE(models[0]->fingerprint(), models[2]->fingerprint());

  // The comparison can fail: the recorded weights, not rounded, give other bits.
  TempDir whole;
  const auto exact =
      load([&](const TempDir& to) { WriteAll(to.file("model.safetensors"), recorded); }, whole);
  ASSERT_NE(exact, nullptr);
  const Outputs unrounded = RunModel(*exact, tokens, 0);
  EXPECT_FALSE(unrounded == expected);
  float worst = 0;
  for (size_t i = 0; i < expected.logits.size(); ++i)
    worst = std::max(worst, std::fabs(unrounded.logits[i] - expected.logits[i]));
  std::printf("%s: weights rounded to BF16 move a logit by at most %.3f\n", GetParam(), worst);
}

INSTANTIATE_TEST_SUITE_P(Types,
                         StorageTest,
                         testing::Values("bamba",
                                         "falcon_h1",
                                         "falcon_mamba",
                                         "granitemoehybrid",
                                         "jamba",
                                         "lfm2",
                                         "lfm2_moe",
                                         "llama",
                                         "mamba",
                                         "mamba2",
                                         "minimax",
                                         "nemotron_h",
                                         "olmo_hybrid",
                                         "qwen3_5",
                                         "qwen3_5_moe",
                                         "qwen3_next",
                                         "recurrent_gemma",
                                         "zamba",
                                         "zamba2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::model
