#include "model/checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/temp_dir.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

void WriteShard(const TempDir& dir, const std::string& name, std::vector<std::string> tensors) {
  std::vector<TensorSpec> specs;
  for (const std::string& t : tensors) specs.push_back({t, TensorDType::kU8, {1}});
  auto writer = SafetensorsWriter::Create(dir.file(name), specs, {});
  ASSERT_TRUE(writer.ok());
  const std::vector<uint8_t> bytes(tensors.size(), 1);
  ASSERT_TRUE(writer->Append(AsBytes(bytes)).ok());
  ASSERT_TRUE(writer->Close().ok());
}

std::string Error(const TempDir& dir) {
  const auto checkpoint = Checkpoint::Open(dir.path());
  return checkpoint.ok() ? "ok" : std::string(checkpoint.status().message());
}

constexpr char kIndex[] = "model.safetensors.index.json";

TEST(Checkpoint, ShardsAreOneSetOfTensors) {
  TempDir dir;
  WriteShard(dir, "s1", {"a", "b"});
  WriteShard(dir, "s2", {"c"});
  dir.Write(kIndex, R"({"metadata":{},"weight_map":{"a":"s1","b":"s1","c":"s2"}})");
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->files(), 2u);
  EXPECT_EQ((*checkpoint)->tensors().size(), 3u);
  EXPECT_EQ((*checkpoint)->FileOf("c"), dir.file("s2"));
  EXPECT_EQ((*checkpoint)->Find("d"), nullptr);
  (*checkpoint)->Release(*(*checkpoint)->Find("c"));
}

TEST(Checkpoint, SingleFileWinsOverAnIndex) {
  TempDir dir;
  WriteShard(dir, "model.safetensors", {"a"});
  dir.Write(kIndex, "broken");
  EXPECT_EQ(Error(dir), "ok");
}

TEST(Checkpoint, DisagreementsAreRefusedByName) {
  TempDir dir;
  WriteShard(dir, "s1", {"a", "b"});
  dir.Write(kIndex, R"({"weight_map":{"a":"s1","c":"s1"}})");
  EXPECT_THAT(Error(dir), HasSubstr("\"c\" should be in"));
  dir.Write(kIndex, R"({"weight_map":{"a":"s1","c":"missing"}})");
  EXPECT_THAT(Error(dir), HasSubstr("missing"));
  WriteShard(dir, "s2", {"b", "c"});
  dir.Write(kIndex, R"({"weight_map":{"a":"s1","c":"s2"}})");
  EXPECT_THAT(Error(dir), HasSubstr("\"b\" is in"));
  for (const char* bad : {"../s1", "/etc/passwd", "", ".."}) {
    dir.Write(kIndex, std::string(R"({"weight_map":{"a":")") + bad + "\"}}");
    EXPECT_THAT(Error(dir), HasSubstr("no file name in the model directory")) << bad;
  }
  dir.Write(kIndex, R"({"weight_map":{"a":1}})");
  EXPECT_THAT(Error(dir), HasSubstr("no file name"));
  dir.Write(kIndex, R"({"weight_map":{}})");
  EXPECT_THAT(Error(dir), HasSubstr("0 shards"));
  dir.Write(kIndex, R"({"weight_map":[]})");
  EXPECT_THAT(Error(dir), HasSubstr("weight_map"));
  dir.Write(kIndex, "[]");
  EXPECT_THAT(Error(dir), HasSubstr("weight_map"));
}

TEST(Checkpoint, OtherFormatsAreNamed) {
  TempDir dir;
  EXPECT_THAT(Error(dir), HasSubstr("neither"));
  dir.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Error(dir), HasSubstr("pickled"));
  std::filesystem::remove(dir.file("pytorch_model.bin"));
  dir.Write("model-Q4_K.gguf", "x");
  EXPECT_THAT(Error(dir), HasSubstr("GGUF"));
  EXPECT_EQ(Checkpoint::Open(dir.file("none")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace baton::model
