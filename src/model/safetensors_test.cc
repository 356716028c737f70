#include "model/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/temp_dir.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// A file with this header and `data_bytes` of data.
std::string FileWith(const std::string& header, size_t data_bytes) {
  const uint64_t n = header.size();
  std::string out(reinterpret_cast<const char*>(&n), 8);
  return out + header + std::string(data_bytes, 'x');
}

StatusOr<SafetensorsHeader> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file.data(), file.size())));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string file = FileWith(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      16);
  const auto header = Parse(file);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].elements(), 1);
  EXPECT_EQ(header->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->tensors[1].dtype, TensorDType::kBF16);
  EXPECT_EQ(header->tensors[1].bytes.data() - header->tensors[0].bytes.data(), 4);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(Safetensors, GapsAndEmptyTensorsAreAllowed) {
  const auto header = Parse(FileWith(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[8,12]},)"
                                     R"("b":{"dtype":"U8","shape":[0],"data_offsets":[9,9]}})",
                                     20));
  EXPECT_TRUE(header.ok()) << header.status();
}

struct BadCase {
  const char* name;
  std::string file;
  const char* message;
};

TEST(Safetensors, DamageIsRefusedByName) {
  const auto tensor = [](const std::string& fields) { return "{\"t\":{" + fields + "}}"; };
  const std::vector<BadCase> cases = {
      {"empty", "", "at least 8"},
      {"short", "1234567", "at least 8"},
      {"header longer than the file", std::string("\xff\0\0\0\0\0\0\0{}", 10),
       "longer than the file"},
      {"absurd header length", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "limit"},
      {"no JSON", FileWith("hello", 0), "not valid JSON"},
      {"empty header", FileWith("", 0), "not valid JSON"},
      {"array", FileWith("[1]", 0), "unexpected an array"},
      {"bad UTF-8", FileWith("{\"\xff\":{}}", 0), "not valid JSON in UTF-8"},
      {"trailing text", FileWith("{} x", 0), "not valid JSON"},
      {"unclosed", FileWith("{\"t\":{", 0), "not valid JSON"},
      {"unknown dtype", FileWith(tensor(R"("dtype":"Q4","shape":[1],"data_offsets":[0,1])"), 1),
       "dtype \"Q4\" is not supported"},
      {"shape is no list", FileWith(tensor(R"("dtype":"U8","shape":4,"data_offsets":[0,4])"), 4),
       "unexpected a number"},
      {"negative dimension",
       FileWith(tensor(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4), "negative number"},
      {"fractional", FileWith(tensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,4])"), 4),
       "not a whole number"},
      {"missing field", FileWith(tensor(R"("dtype":"U8","shape":[4])"), 4), "is missing"},
      {"three offsets", FileWith(tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,8])"), 9),
       "more than two"},
      {"repeated field", FileWith(tensor(R"("dtype":"U8","dtype":"U8","shape":[4])"), 4),
       "repeated field \"dtype\""},
      {"unknown field", FileWith(tensor(R"("dtype":"U8","shape":[4],"strides":[1])"), 4),
       "\"strides\""},
      {"shape and bytes differ",
       FileWith(tensor(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])"), 20),
       "needs 24 bytes, its range holds 20"},
      {"truncated data", FileWith(tensor(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"), 8),
       "truncated"},
      {"end before begin", FileWith(tensor(R"("dtype":"U8","shape":[0],"data_offsets":[5,4])"), 9),
       "claims bytes 5 to 4"},
      {"shape overflows",
       FileWith(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
       "more than 2^62"},
      {"offset overflows",
       FileWith(
           tensor(
               R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615])"),
           9),
       "truncated"},
      {"overlap",
       FileWith(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                9),
       "\"a\" and \"b\" overlap"},
      {"name twice",
       FileWith(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                9),
       "named twice"},
      {"metadata is no map of strings", FileWith(R"({"__metadata__":{"a":1}})", 0),
       "unexpected a number"},
      {"nested metadata", FileWith(R"({"__metadata__":{"a":{}}})", 0), "unexpected an object"},
      {"deep nesting", FileWith(std::string(100000, '['), 0), "unexpected an array"},
      {"too many dimensions",
       FileWith(tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1),
       "more than 8"},
  };
  for (const BadCase& bad : cases) {
    const auto header = Parse(bad.file);
    ASSERT_FALSE(header.ok()) << bad.name;
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(header.status().message()), HasSubstr(bad.message)) << bad.name;
  }
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string file = FileWith(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  ASSERT_TRUE(Parse(file).ok());
  for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(Parse(file.substr(0, n)).ok()) << n;
}

TEST(Safetensors, WrittenFileReadsBack) {
  TempDir dir;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> b = {7, 8};
  auto writer = SafetensorsWriter::Create(
      dir.file("t"), {{"z", TensorDType::kF32, {2, 3}}, {"b", TensorDType::kBF16, {2}}},
      {{"k", "v"}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(AsBytes(a)).ok());
  ASSERT_TRUE(writer->Append(AsBytes(b)).ok());
  ASSERT_TRUE(writer->Close().ok());
  const auto file = SafetensorsFile::Open(dir.file("t"));
  ASSERT_TRUE(file.ok()) << file.status();
  const StoredTensor* z = (*file)->Find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(std::memcmp(z->bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(z->bytes.data()) % 8, 0u);
  (*file)->ReleasePages(z->bytes);
  EXPECT_EQ(std::memcmp(z->bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(std::memcmp((*file)->Find("b")->bytes.data(), b.data(), 4), 0);
  EXPECT_EQ((*file)->Find("none"), nullptr);
  EXPECT_EQ((*file)->metadata().at("k"), "v");
}

TEST(Safetensors, WriterKeepsItsPromise) {
  TempDir dir;
  const std::vector<TensorSpec> specs = {{"a", TensorDType::kU8, {4}}};
  const std::vector<uint8_t> three = {1, 2, 3};
  auto writer = SafetensorsWriter::Create(dir.file("t"), specs, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(AsBytes(three)).ok());
  EXPECT_THAT(std::string(writer->Append(AsBytes(three)).message()), HasSubstr("promised"));
  writer = SafetensorsWriter::Create(dir.file("t"), specs, {});
  ASSERT_TRUE(writer->Append(AsBytes(three)).ok());
  EXPECT_THAT(std::string(writer->Close().message()), HasSubstr("3 of the promised 4"));
  EXPECT_FALSE(SafetensorsWriter::Create(dir.file("t"), {specs[0], specs[0]}, {}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create("/nonexistent/t", specs, {}).ok());
}

TEST(Safetensors, OpenNamesThePath) {
  TempDir dir;
  EXPECT_EQ(SafetensorsFile::Open(dir.file("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(SafetensorsFile::Open(dir.path()).status().message()),
              HasSubstr("not a regular file"));
  dir.Write("bad", "{}");
  EXPECT_THAT(std::string(SafetensorsFile::Open(dir.file("bad")).status().message()),
              HasSubstr(dir.file("bad")));
  dir.Write("empty", "");
  EXPECT_FALSE(SafetensorsFile::Open(dir.file("empty")).ok());
}

}  // namespace
}  // namespace baton::model
