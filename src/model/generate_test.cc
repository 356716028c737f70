#include "model/generate.h"

#include <string>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "model/temp_dir.h"

namespace baton::model {
namespace {

StatusOr<GenerateReport> Generate(const std::string& preset,
                                  const GenerateOptions& options,
                                  const TempDir& dir,
                                  ThreadPool* pool = nullptr) {
  return GenerateCheckpoint(*PresetConfig(preset), options, dir.path(), pool);
}

Sha256 Fingerprint(const TempDir& dir, ThreadPool* pool = nullptr) {
  LoadOptions options;
  options.pool = pool;
  const auto model = Model::Load(dir.path(), options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->fingerprint() : Sha256();
}

TEST(Generate, EveryPresetIsAConfig) {
  for (const std::string& name : PresetNames()) {
    const auto config = ParseConfig(*PresetConfig(name));
    EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  }
  EXPECT_FALSE(PresetConfig("none").ok());
}

TEST(Generate, BytesAreAFunctionOfTheSeed) {
  TempDir a, b, c, d;
  ThreadPool pool(3);
  ASSERT_TRUE(Generate("tiny-jamba", {.seed = 5}, a).ok());
  ASSERT_TRUE(Generate("tiny-jamba", {.seed = 5}, b, &pool).ok());
  ASSERT_TRUE(Generate("tiny-jamba", {.seed = 6}, c).ok());
  const auto bytes = [](const TempDir& dir) {
    return *ReadFileBytes(dir.file("model.safetensors"), 1 << 30);
  };
  EXPECT_EQ(bytes(a), bytes(b));
  EXPECT_NE(bytes(a), bytes(c));
  EXPECT_EQ(Fingerprint(a), Fingerprint(b, &pool));
  EXPECT_NE(Fingerprint(a), Fingerprint(c));
  // One weight bit makes another model.
  std::string changed = bytes(a);
  changed.back() ^= 1;
  d.Write("model.safetensors", changed);
  d.Write("config.json", *ReadFileBytes(a.file("config.json"), 1 << 20));
  EXPECT_NE(Fingerprint(a), Fingerprint(d));
}

TEST(Generate, ShardsHoldTheSameModel) {
  TempDir whole, sharded;
  const auto one = Generate("tiny-granitemoehybrid", {.dtype = TensorDType::kBF16}, whole);
  const auto many = Generate("tiny-granitemoehybrid",
                             {.dtype = TensorDType::kBF16, .shard_bytes_max = 200000}, sharded);
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(one->files, 1u);
  EXPECT_GT(many->files, 3u);
  EXPECT_EQ(one->bytes, many->bytes);
  EXPECT_EQ(one->parameters, one->bytes / 2);
  EXPECT_EQ(Fingerprint(whole), Fingerprint(sharded));
  const auto checkpoint = Checkpoint::Open(sharded.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->files(), many->files);
}

TEST(Generate, ErrorsAreReported) {
  TempDir dir;
  EXPECT_FALSE(GenerateCheckpoint(Json::object(), {}, dir.path(), nullptr).ok());
  EXPECT_FALSE(Generate("tiny-llama", {.dtype = TensorDType::kI64}, dir).ok());
  EXPECT_FALSE(GenerateCheckpoint(*PresetConfig("tiny-llama"), {}, dir.file("none"), nullptr).ok());
}

}  // namespace
}  // namespace baton::model
