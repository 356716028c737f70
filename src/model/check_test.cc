#include "model/check.h"

#include <string>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/generate.h"
#include "model/golden.h"
#include "model/inspect.h"
#include "model/model.h"
#include "model/temp_dir.h"

namespace baton::model {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

// A directory with a generated model and a changed config.json.
void Prepare(const TempDir& dir, const char* preset, const std::string& changes = "{}") {
  ASSERT_TRUE(GenerateCheckpoint(*PresetConfig(preset), {}, dir.path(), nullptr).ok());
  Json json = *PresetConfig(preset);
  json.merge_patch(*ParseJsonLenient(changes));
  dir.Write("config.json", json.dump());
}

TEST(Check, GoodModelsPass) {
  for (const char* preset :
       {"tiny-bamba", "tiny-granitemoehybrid", "tiny-granite-dense", "tiny-jamba", "tiny-llama",
        "tiny-falcon_h1", "tiny-falcon_mamba", "tiny-mamba2", "tiny-nemotron_h", "tiny-zamba",
        "tiny-zamba2", "tiny-qwen3_next", "tiny-qwen3_5", "tiny-qwen3_5_moe", "tiny-olmo_hybrid"}) {
    TempDir dir;
    Prepare(dir, preset);
    const CheckReport report = CheckModel(dir.path());
    EXPECT_TRUE(report.servable()) << FormatCheck(report);
    EXPECT_GT(report.parameters, 100000u);
    EXPECT_THAT(FormatCheck(report), HasSubstr("can be served"));
  }
}

// What check says, load says too.
void ExpectProblem(const TempDir& dir, const std::string& text) {
  const CheckReport report = CheckModel(dir.path());
  EXPECT_THAT(report.problems, Contains(HasSubstr(text)));
  EXPECT_THAT(FormatCheck(report), HasSubstr("CANNOT"));
  const auto model = Model::Load(dir.path(), {});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()), HasSubstr(text));
}

TEST(Check, ProblemsAreNamed) {
  TempDir dir;
  Prepare(dir, "tiny-llama", R"({"intermediate_size":200})");
  ExpectProblem(dir,
                "\"model.layers.0.mlp.gate_proj.weight\" has shape [208, 128], config.json "
                "asks for [200, 128]");
  Prepare(dir, "tiny-llama", R"({"num_hidden_layers":4})");
  ExpectProblem(dir, "\"model.layers.3.input_layernorm.weight\" of shape [128] is missing");
  Prepare(dir, "tiny-llama", R"({"num_hidden_layers":2})");
  ExpectProblem(dir, "is not part of this model type");
  Prepare(dir, "tiny-llama", R"({"model_type":"rwkv7"})");
  ExpectProblem(dir, "\"rwkv7\" is not supported");
  Prepare(dir, "tiny-llama", R"({"quantization_config":{"quant_method":"gptq"}})");
  ExpectProblem(dir, "gptq");
  Prepare(dir, "tiny-llama");
  dir.Write("config.json", "{broken");
  ExpectProblem(dir, "config.json");
  Prepare(dir, "tiny-llama");
  const std::string weights = *ReadFileBytes(dir.file("model.safetensors"), 1 << 30);
  dir.Write("model.safetensors", weights.substr(0, weights.size() - 1));
  ExpectProblem(dir, "truncated");
  dir.Write("model.safetensors", "");
  ExpectProblem(dir, "at least 8");
  std::filesystem::remove(dir.file("model.safetensors"));
  ExpectProblem(dir, "neither model.safetensors nor");
  dir.Write("m.gguf", "x");
  ExpectProblem(dir, "GGUF");
}

TEST(Check, AllProblemsAreListed) {
  TempDir dir;
  Prepare(dir, "tiny-llama", R"({"num_hidden_layers":5,"vocab_size":301})");
  dir.Write("hf_quant_config.json", "{}");
  const CheckReport report = CheckModel(dir.path());
  // Two ends, 16 tensors (biases included) in each of two layers, the quantisation file.
  EXPECT_THAT(report.problems, SizeIs(2 + 2 * 16 + 1)) << FormatCheck(report);
  std::filesystem::remove(dir.file("hf_quant_config.json"));
  EXPECT_THAT(std::string(Model::Load(dir.path(), {}).status().message()),
              HasSubstr("and 31 more"));
}

TEST(Check, WrongDTypeIsRefused) {
  TempDir dir;
  Prepare(dir, "tiny-llama");
  std::string weights = *ReadFileBytes(dir.file("model.safetensors"), 1 << 30);
  const size_t at = weights.find("\"F32\"", weights.find("\"model.norm.weight\""));
  ASSERT_NE(at, std::string::npos);
  weights.replace(at, 5, "\"I32\"");
  dir.Write("model.safetensors", weights);
  ExpectProblem(dir, "\"model.norm.weight\" has dtype I32");
}

TEST(Inspect, WorksFromABareConfig) {
  TempDir dir;
  dir.Write("anything.json", PresetConfig("granite-1b")->dump());
  InspectOptions options;
  options.memory_bytes = uint64_t{8} << 30;
  options.lengths = {1, 16, 17, 65536};
  const auto report = InspectModel(dir.file("anything.json"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  const uint64_t slot = report->layout.slot_bytes();
  const uint64_t block = report->layout.groups()[0].block_bytes;
  EXPECT_EQ(block, 16u * 2 * 8192);
  EXPECT_EQ(report->capacity[0].bytes, slot + block);
  EXPECT_EQ(report->capacity[1].bytes, slot + block);
  EXPECT_EQ(report->capacity[2].bytes, slot + 2 * block);
  EXPECT_EQ(report->capacity[3].bytes, slot + 4096 * block);
  EXPECT_EQ(report->capacity[3].sequences, options.memory_bytes / (slot + 4096 * block));
  // Attention in all 40 layers instead of 4.
  EXPECT_EQ(report->attention_kv_bytes_per_token, 10 * report->layout.kv_bytes_per_token());
  EXPECT_EQ(report->capacity[3].attention_bytes, 40960 * block);
  // What nine of ten attention layers would hold pays for the slot from there on.
  const auto even = static_cast<uint64_t>(report->break_even_tokens);
  EXPECT_EQ(even % 16, 0u);
  EXPECT_LE(slot + even / 16 * block, even / 16 * 10 * block);
  EXPECT_GT(slot + (even / 16 - 1) * block, (even / 16 - 1) * 10 * block);
  EXPECT_EQ(report->capacity[3].with_checkpoint, options.memory_bytes / (2 * slot + 4096 * block));
  const std::string text = FormatInspect(*report);
  EXPECT_THAT(text, HasSubstr("58060800 bytes in 72 parts"));
  EXPECT_THAT(text, HasSubstr("x 36 layers: 0-4, 6-14, 16-24, 26-34, 36-39"));
  EXPECT_THAT(text, HasSubstr("x 4 layers: 5, 15, 25, 35"));
  std::printf("%s", text.c_str());
}

// Geometry of published hybrids, to the byte: facts from their configs, of which test/configs holds
// the deciding keys. A model type that is not here yet is skipped by name.
struct Published {
  const char* file;
  int64_t recurrent_layers, attention_layers;
  uint64_t conv, recurrent, state, kv_per_token;
};
constexpr Published kPublished[] = {
    {"falcon-h1-0.5b", 36, 36, 387072, 28311552, 28698624, 18432},
    {"falcon-h1-34b", 72, 72, 2211840, 301989888, 304201728, 147456},
    {"granite-4.0-h-small", 36, 4, 1824768, 150994944, 152819712, 16384},
    {"granite-4.0-h-tiny", 36, 4, 718848, 56623104, 57341952, 8192},
    {"jamba-v0.1", 28, 4, 1376256, 14680064, 16056320, 16384},
    {"lfm2-1.2b", 10, 6, 81920, 0, 81920, 12288},
    {"nemotron-3-nano-30b-a3b", 23, 6, 847872, 48234496, 49082368, 6144},
    {"nemotron-3-super-120b-a12b", 40, 8, 2457600, 167772160, 170229760, 8192},
    {"nemotron-3-ultra-550b-a55b", 48, 12, 5308416, 402653184, 407961600, 12288},
    {"nemotron-h-56b", 54, 10, 6635520, 905969664, 912605184, 40960},
    {"nemotron-h-8b", 24, 4, 1474560, 100663296, 102137856, 16384},
    {"qwen3-next-80b-a3b", 36, 12, 1769472, 75497472, 77266944, 24576},
    {"qwen3.5-122b-a10b", 36, 12, 2654208, 150994944, 153649152, 24576},
    {"qwen3.5-27b", 48, 16, 2949120, 150994944, 153944064, 65536},
    {"qwen3.5-35b-a3b", 30, 10, 1474560, 62914560, 64389120, 20480},
    {"qwen3.5-397b-a17b", 45, 15, 3317760, 188743680, 192061440, 30720},
};

class InspectPublished : public testing::TestWithParam<Published> {};

TEST_P(InspectPublished, ToTheByte) {
  const Published& p = GetParam();
  const auto report =
      InspectModel(std::string(BATON_SOURCE_DIR) + "/test/configs/" + p.file + ".json", {});
  if (absl::IsUnimplemented(report.status()) &&
      report.status().message().find("model_type") != absl::string_view::npos) {
    GTEST_SKIP() << report.status();
  }
  ASSERT_TRUE(report.ok()) << report.status();
  const PublishedShape& shape = report->published;
  EXPECT_EQ(shape.recurrent_layers, p.recurrent_layers);
  EXPECT_EQ(shape.attention_layers, p.attention_layers);
  EXPECT_EQ(shape.conv_bytes, p.conv);
  EXPECT_EQ(shape.recurrent_bytes, p.recurrent);
  EXPECT_EQ(shape.state_bytes(), p.state);
  EXPECT_EQ(shape.kv_bytes_per_token, p.kv_per_token);
  // What is kept here is f32 throughout, and the slot holds all of it.
  EXPECT_EQ(report->layout.state_payload_bytes(), 2 * p.conv + p.recurrent);
  EXPECT_GE(report->layout.slot_bytes(), 2 * p.conv + p.recurrent);
  EXPECT_EQ(report->layout.kv_bytes_per_token(), 2 * p.kv_per_token);
  EXPECT_GT(report->capacity[0].sequences, 0u);
  EXPECT_THAT(FormatInspect(*report), HasSubstr("state per sequence " + std::to_string(p.state)));
}

INSTANTIATE_TEST_SUITE_P(All,
                         InspectPublished,
                         testing::ValuesIn(kPublished),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           for (char& c : name)
                             if (c == '-' || c == '.') c = '_';
                           return name;
                         });

TEST(Inspect, PureAttentionAndErrors) {
  TempDir dir;
  dir.Write("config.json", PresetConfig("tiny-llama")->dump());
  const auto report = InspectModel(dir.path(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->layout.slot_bytes(), 0u);
  EXPECT_EQ(report->break_even_tokens, 0);
  EXPECT_EQ(report->capacity[0].bytes, report->capacity[0].attention_bytes);
  FormatInspect(*report);
  InspectOptions options;
  options.lengths = {0};
  EXPECT_FALSE(InspectModel(dir.path(), options).ok());
  EXPECT_FALSE(InspectModel(dir.file("none.json"), {}).ok());
}

// Golden files that do not fit are an error; wrong numbers are a failed comparison.
class GoldenErrors : public testing::Test {
 protected:
  GoldenErrors() {
    const std::string from = std::string(BATON_SOURCE_DIR) + "/test/golden/short/bamba/";
    for (const char* f : {"config.json", "model.safetensors", "golden.safetensors"})
      std::filesystem::copy_file(from + f, dir_.file(f));
    golden_ = *ReadFileBytes(dir_.file("golden.safetensors"), 1 << 30);
  }
  // Replaces text of the header, keeping its length.
  StatusOr<GoldenReport> RunWith(const std::string& from, const std::string& to) {
    std::string bytes = golden_;
    BATON_CHECK(from.size() == to.size());
    const size_t at = bytes.find(from);
    BATON_CHECK(at != std::string::npos);
    bytes.replace(at, from.size(), to);
    dir_.Write("golden.safetensors", bytes);
    return RunGolden(dir_.path(), LoadOptions{}, nullptr);
  }
  // Adds one to a float of a tensor.
  StatusOr<GoldenReport> RunWithShifted(const std::string& name, int64_t element) {
    std::string bytes = golden_;
    {
      dir_.Write("golden.safetensors", golden_);
      const auto file = SafetensorsFile::Open(dir_.file("golden.safetensors"));
      const std::byte* view = (*file)->Find(name)->bytes.data();
      uint64_t header;
      std::memcpy(&header, golden_.data(), 8);
      const std::byte* first = view;  // of the data
      for (const StoredTensor& t : (*file)->tensors()) first = std::min(first, t.bytes.data());
      const size_t at = 8 + header + static_cast<size_t>(view - first) + element * 4;
      float v;
      std::memcpy(&v, bytes.data() + at, 4);
      v += 1.0f;
      std::memcpy(bytes.data() + at, &v, 4);
    }
    dir_.Write("golden.safetensors", bytes);
    return RunGolden(dir_.path(), LoadOptions{}, nullptr);
  }
  TempDir dir_;
  std::string golden_;
};

TEST_F(GoldenErrors, KeysThatDoNotFitAreErrors) {
  EXPECT_TRUE(RunWith("state20.l0.conv", "state20.l0.conv")->Passed({}));
  EXPECT_FALSE(RunWith("state20.l0.conv", "state20.l9.conv").ok());
  EXPECT_FALSE(RunWith("state20.l0.conv", "state20.l2.conv").ok());
  EXPECT_FALSE(RunWith("state20.l0.conv", "state20.l0.ccnv").ok());
  EXPECT_FALSE(RunWith("state20.l0.conv", "state21x10.conv").ok());
  EXPECT_FALSE(RunWith("state20.l2.k", "state20.l1.k").ok());
  EXPECT_FALSE(RunWith("\"input_ids\"", "\"input_idx\"").ok());
  EXPECT_FALSE(RunWith("\"logits\"", "\"logitz\"").ok());
}

TEST_F(GoldenErrors, EveryComponentIsCompared) {
  for (const char* name :
       {"logits", "state20.l0.rec", "state37.l3.rec", "state20.l2.k", "state37.l2.v"}) {
    const auto report = RunWithShifted(name, 5);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(report->Passed({})) << name;
    EXPECT_THAT(FormatGolden(*report, {}), HasSubstr("FAIL")) << name;
  }
  // Column 0 of 4 of the conv window is never read, column 1 is.
  EXPECT_TRUE(RunWithShifted("state20.l1.conv", 4)->Passed({}));
  EXPECT_FALSE(RunWithShifted("state20.l1.conv", 5)->Passed({}));
}

TEST(Golden, DiffersIfRotationDoes) {
  LoadOptions options;
  options.rotate_all_dims = true;
  const auto report =
      RunGolden(std::string(BATON_SOURCE_DIR) + "/test/golden/short/bamba", options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->Passed({}));
}

}  // namespace
}  // namespace baton::model
