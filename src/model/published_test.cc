// Checkpoints as they are published: other names, parts that are left out, FP8 with block scales,
// and the quantisation schemes that are refused by name.
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/check.h"
#include "model/checkpoint.h"
#include "model/generate.h"
#include "model/load.h"
#include "model/model.h"
#include "model/quantisation.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"
#include "model/weight_binder.h"

namespace baton::model {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

void Generate(const TempDir& dir, const char* preset) {
  ASSERT_TRUE(GenerateCheckpoint(*PresetConfig(preset), {}, dir.path(), nullptr).ok());
}

void Patch(const TempDir& dir, const char* preset, const std::string& changes) {
  Json json = *PresetConfig(preset);
  json.merge_patch(*ParseJsonLenient(changes));
  dir.Write("config.json", json.dump());
}

template <class T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  const auto* p = reinterpret_cast<const std::byte*>(values.data());
  return {p, p + values.size() * sizeof(T)};
}

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

// E4M3 by its definition.
float E4M3(uint8_t b) {
  const int e = b >> 3 & 15, m = b & 7;
  const double v = e == 0 ? std::ldexp(m / 8.0, -6) : std::ldexp(1 + m / 8.0, e - 7);
  return static_cast<float>((b & 0x80) != 0 ? -v : v);
}

// BF16 nearest to `v`, to even, by search among the two neighbours.
uint16_t NearestBF16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const auto low = static_cast<uint16_t>(bits >> 16);
  const auto value = [](uint16_t b) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(b) << 16));
  };
  const uint16_t high = static_cast<uint16_t>(low + 1);
  const double down = std::fabs(static_cast<double>(v) - value(low));
  const double up = std::fabs(static_cast<double>(v) - value(high));
  return down < up || (down == up && low % 2 == 0) ? low : high;
}

TEST(BlockScales, DequantiseToTheBit) {
  SplitMix64 rng(4);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5, 7}, {4, 3}, {130, 257}, {2, 9, 5}, {128, 128}, {1, 1}}) {
    const ScaleBlock block = shape[0] > 100 ? ScaleBlock{} : ScaleBlock{4, 3};
    StoredTensor weight{"w", TensorDType::kF8E4M3, shape, {}};
    std::vector<uint8_t> elements(static_cast<size_t>(Count(weight.shape)));
    for (uint8_t& b : elements) {
      do b = static_cast<uint8_t>(rng.Next());
      while ((b & 0x7F) == 0x7F);
    }
    weight.bytes = AsBytes(elements);
    StoredTensor scales{"s", TensorDType::kF32, ScaleShape(shape, block), {}};
    std::vector<float> factors(static_cast<size_t>(Count(scales.shape)));
    for (float& f : factors)
      f = std::ldexp(1.0f + static_cast<float>(rng.Below(1 << 20)) * 0x1p-20f, -9);
    scales.bytes = AsBytes(factors);
    const auto out = DequantiseBlocks(weight, scales, block);
    ASSERT_TRUE(out.ok()) << out.status();
    const size_t rank = shape.size();
    const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
    const int64_t sr = scales.shape[rank - 2], sc = scales.shape[rank - 1];
    for (int64_t i = 0; i < Count(shape); ++i) {
      const int64_t m = i / (rows * cols), r = i / cols % rows, c = i % cols;
      const float factor =
          factors[static_cast<size_t>((m * sr + r / block.rows) * sc + c / block.cols)];
      uint16_t got = 0;
      std::memcpy(&got, &(*out)[static_cast<size_t>(i) * 2], 2);
      ASSERT_EQ(got, NearestBF16(E4M3(elements[static_cast<size_t>(i)]) * factor)) << i;
    }
  }
}

TEST(BlockScales, NotFiniteIsRefused) {
  const std::vector<uint8_t> nan = {0x7F};
  const std::vector<uint8_t> one = {0x38};
  const std::vector<float> scale = {1}, infinite = {std::numeric_limits<float>::infinity()};
  const auto run = [](const std::vector<uint8_t>& w, const std::vector<float>& s) {
    return DequantiseBlocks({"w", TensorDType::kF8E4M3, {1, 1}, AsBytes(w)},
                            {"s", TensorDType::kF32, {1, 1}, AsBytes(s)}, {})
        .ok();
  };
  EXPECT_TRUE(run(one, scale));
  EXPECT_FALSE(run(nan, scale));
  EXPECT_FALSE(run(one, infinite));
}

constexpr char kFp8[] =
    R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic",
        "weight_block_size":[128,128]}})";

// Stores every projection of `tensors` as FP8 with block scales; `plain` gets what that means.
void Quantise(Tensors* tensors, Tensors* plain) {
  SplitMix64 rng(9);
  const ScaleBlock block;
  for (const auto& [name, t] : Tensors(*tensors)) {
    if (t.shape.size() < 2 || name.find("proj") == std::string::npos) continue;
    StoredTensor weight{name, TensorDType::kF8E4M3, t.shape, {}};
    std::vector<uint8_t> elements(static_cast<size_t>(Count(weight.shape)));
    for (uint8_t& b : elements) b = static_cast<uint8_t>(rng.Below(0x78) | (rng.Next() & 0x80));
    StoredTensor scales{ScaleName(name), TensorDType::kF32, ScaleShape(t.shape, block), {}};
    std::vector<float> factors(static_cast<size_t>(Count(scales.shape)));
    for (float& f : factors) f = static_cast<float>(1 + rng.Below(1000)) * 1e-6f;
    (*tensors)[name] = {TensorDType::kF8E4M3, t.shape, Bytes(elements)};
    (*tensors)[scales.name] = {TensorDType::kF32, scales.shape, Bytes(factors)};
    weight.bytes = (*tensors)[name].bytes;
    scales.bytes = (*tensors)[scales.name].bytes;
    (*plain)[name] = {TensorDType::kBF16, t.shape, *DequantiseBlocks(weight, scales, block)};
  }
}

TEST(BlockScales, AModelLoadsAsTheBF16ModelItMeans) {
  TempDir fp8, bf16;
  Generate(fp8, "tiny-llama");
  Generate(bf16, "tiny-llama");
  Tensors quantised = ReadAll(fp8.file("model.safetensors"));
  Tensors plain = quantised;
  Quantise(&quantised, &plain);
  ASSERT_GT(quantised.size(), plain.size());
  WriteAll(fp8.file("model.safetensors"), quantised);
  WriteAll(bf16.file("model.safetensors"), plain);
  Patch(fp8, "tiny-llama", kFp8);
  const CheckReport report = CheckModel(fp8.path());
  EXPECT_TRUE(report.servable()) << FormatCheck(report);
  EXPECT_THAT(report.notes, Contains(HasSubstr("loaded as BF16")));
  const auto a = Model::Load(fp8.path(), {});
  const auto b = Model::Load(bf16.path(), {});
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ((*a)->fingerprint(), (*b)->fingerprint());

  // Without the config's word for it, FP8 is a dtype like any other that does not load.
  Patch(fp8, "tiny-llama", "{}");
  EXPECT_THAT(CheckModel(fp8.path()).problems, Contains(HasSubstr("has dtype F8_E4M3")));
  Patch(fp8, "tiny-llama", kFp8);
  const std::string scale = "model.layers.0.mlp.down_proj.weight_scale_inv";
  Tensors changed = quantised;
  changed.erase(scale);
  WriteAll(fp8.file("model.safetensors"), changed);
  EXPECT_THAT(CheckModel(fp8.path()).problems,
              Contains(HasSubstr(scale + "\" of shape [1, 2] is missing")));
  changed = quantised;
  changed[scale].shape = {2, 1};
  WriteAll(fp8.file("model.safetensors"), changed);
  EXPECT_THAT(CheckModel(fp8.path()).problems,
              Contains(HasSubstr("blocks of 128 x 128 ask for [1, 2]")));
}

TEST(Quantisation, OtherSchemesAreRefusedByName) {
  for (const char* scheme : {"gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt",
                             "mxfp4", "fbgemm_fp8", "hqq", "torchao", "quanto", "aqlm"}) {
    const auto read = ReadQuantisation({{"quantization_config", {{"quant_method", scheme}}}});
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(scheme));
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("use the BF16 release"));
  }
  const auto error = [](const Json& q) {
    return std::string(ReadQuantisation({{"quantization_config", q}}).status().message());
  };
  EXPECT_THAT(error({{"quant_method", "fp8"}}), HasSubstr("weight_block_size"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"fmt", "e5m2"}, {"weight_block_size", {128, 128}}}),
              HasSubstr("e4m3"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"weight_block_size", {128, 0}}}),
              HasSubstr("two whole numbers"));
  EXPECT_THAT(error({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}), HasSubstr("NVFP4"));
  EXPECT_THAT(error("x\n"), HasSubstr("unnamed"));
  // In the wrapper of a vision model, too.
  EXPECT_FALSE(
      ReadQuantisation({{"text_config", {{"quantization_config", {{"quant_method", "awq"}}}}}})
          .ok());
  EXPECT_FALSE((*ReadQuantisation(Json::object())).has_value());
}

TEST(Quantisation, MarkerFilesAreRefusedByName) {
  TempDir dir;
  Generate(dir, "tiny-llama");
  dir.Write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_THAT(CheckModel(dir.path()).problems, Contains(HasSubstr("NVFP4")));
  EXPECT_THAT(std::string(Model::Load(dir.path(), {}).status().message()), HasSubstr("NVFP4"));
  std::filesystem::remove(dir.file("hf_quant_config.json"));
  dir.Write("quantize_config.json", R"({"quant_method": "gptq"})");
  EXPECT_THAT(CheckModel(dir.path()).problems, Contains(HasSubstr("gptq")));
}

// Names: second spellings, and baggage that is left unread.
TEST(WeightBinder, FindsTensorsUnderTheirOtherNames) {
  TempDir dir;
  Tensors tensors;
  const std::vector<float> two = {1, 2};
  for (const char* name : {"model.language_model.a", "model.language_model.old.b", "c",
                           "mtp.layers.0.x", "mtp.y", "model.visual.z"}) {
    tensors[name] = {TensorDType::kF32, {2}, Bytes(two)};
  }
  WriteAll(dir.file("model.safetensors"), tensors);
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<float> a, b, c;
  WeightBinder binder;
  binder.Vector("model.a", 2, TensorRole::kNorm, &a);
  binder.Vector("model.new.b", 2, TensorRole::kNorm, &b);
  binder.Vector("c", 2, TensorRole::kNorm, &c);
  EXPECT_EQ(binder.Compare(**checkpoint).size(), 2u + 5u);
  binder.AlsoNamed("model.", "model.language_model.");
  binder.AlsoNamed("new.", "old.");
  binder.IgnorePrefix("mtp.");
  EXPECT_THAT(binder.Compare(**checkpoint), testing::ElementsAre(HasSubstr("model.visual.z")));
  binder.IgnorePrefix("model.visual.");
  EXPECT_THAT(binder.Compare(**checkpoint), IsEmpty());
  EXPECT_EQ(binder.IgnoredByPrefix(**checkpoint),
            (std::vector<std::pair<std::string, int64_t>>{{"mtp.", 2}, {"model.visual.", 1}}));
  const auto fingerprint = LoadWeights(binder, **checkpoint, "config", "", nullptr);
  ASSERT_TRUE(fingerprint.ok()) << fingerprint.status();
  EXPECT_EQ(b, two);

  // The same weights under the bound names are the same model.
  TempDir plain;
  WriteAll(plain.file("model.safetensors"),
           {{"model.a", tensors["c"]}, {"model.new.b", tensors["c"]}, {"c", tensors["c"]}});
  const auto same = LoadWeights(binder, **Checkpoint::Open(plain.path()), "config", "", nullptr);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(*same, *fingerprint);
}

}  // namespace
}  // namespace baton::model
