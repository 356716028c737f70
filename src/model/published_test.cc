// Checkpoints as they are published: other names, parts that are left out, FP8 with block scales,
// and the quantisation schemes that are refused by name.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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
#include "model/test_outcome.h"
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

// A recorded hybrid as it would be published in FP8: its projections quantised block by block,
// other weights (embeddings, convs, routers, the small projections of the gates) left alone.
struct Fp8Form {
  const char* type;
  ScaleBlock block;
  TensorDType scales;  // F32 as DeepSeek stores them, BF16 as Qwen does
  bool fused = false;  // routed experts stacked as they are recorded, not one by one
};

class Fp8Hybrid : public testing::TestWithParam<Fp8Form> {
 protected:
  // The nearest of E4M3's finite values, which ascend with their codes.
  static uint8_t Encode(float v) {
    static const std::vector<float> values = [] {
      std::vector<float> all;
      for (uint8_t code = 0; code < 0x7F; ++code) all.push_back(E4M3(code));
      return all;
    }();
    const float size = std::fabs(v);
    auto at = std::lower_bound(values.begin(), values.end(), size);
    if (at == values.end() || (at != values.begin() && size - at[-1] < *at - size)) --at;
    return static_cast<uint8_t>((at - values.begin()) | (std::signbit(v) ? 0x80 : 0));
  }

  static float ToFloat(uint16_t bf16) {
    return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
  }

  // Replaces `name` in `fp8`; `plain` gets, in F32, what quantisation.h says that it means.
  static void Quantise(const std::string& name, Tensors* fp8, Tensors* plain) {
    const Fp8Form& form = GetParam();
    const Stored t = fp8->at(name);
    std::vector<float> values(t.bytes.size() / sizeof(float));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
    const size_t rank = t.shape.size();
    const int64_t rows = t.shape[rank - 2], cols = t.shape[rank - 1];
    const std::vector<int64_t> shape = ScaleShape(t.shape, form.block);
    const auto scale_of = [&](int64_t i) {
      const int64_t m = i / (rows * cols), r = i / cols % rows, c = i % cols;
      return static_cast<size_t>((m * shape[rank - 2] + r / form.block.rows) * shape[rank - 1] +
                                 c / form.block.cols);
    };
    std::vector<float> scales(static_cast<size_t>(Count(shape)), 1e-6f);
    for (int64_t i = 0; i < Count(t.shape); ++i)
      scales[scale_of(i)] = std::max(scales[scale_of(i)], std::fabs(values[i]) / 448);
    std::vector<uint16_t> narrow;
    for (float& scale : scales) {
      narrow.push_back(NearestBF16(scale));
      if (form.scales == TensorDType::kBF16) scale = ToFloat(narrow.back());
    }
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < Count(t.shape); ++i) {
      const float scale = scales[scale_of(i)];
      codes.push_back(Encode(values[i] / scale));
      values[i] = ToFloat(NearestBF16(E4M3(codes.back()) * scale));
    }
    (*fp8)[name] = {TensorDType::kF8E4M3, t.shape, Bytes(codes)};
    (*fp8)[ScaleName(name)] = {form.scales, shape,
                               form.scales == TensorDType::kBF16 ? Bytes(narrow) : Bytes(scales)};
    (*plain)[name] = {TensorDType::kF32, t.shape, Bytes(values)};
  }

  // The stacked experts of "....experts.gate_up_proj" and "....experts.down_proj" one by one.
  static void Unstack(const std::string& name, Tensors* tensors) {
    const Stored t = tensors->at(name);
    const std::string prefix = name.substr(0, name.rfind('.') + 1);
    const bool both = name.ends_with("gate_up_proj");
    const int64_t parts = both ? 2 : 1, rows = t.shape[1] / parts, cols = t.shape[2];
    const auto size = static_cast<size_t>(rows * cols) * sizeof(float);
    const std::byte* from = t.bytes.data();
    for (int64_t e = 0; e < t.shape[0]; ++e)
      for (const char* part : both ? std::vector<const char*>{"gate_proj", "up_proj"}
                                   : std::vector<const char*>{"down_proj"}) {
        (*tensors)[prefix + std::to_string(e) + "." + part + ".weight"] = {
            t.dtype, {rows, cols}, {from, from + size}};
        from += size;
      }
    tensors->erase(name);
  }

  std::unique_ptr<Model> Load(const Tensors& tensors, const char* changes) {
    TempDir dir;
    Json json = *ReadJsonFile(dir_ + "/config.json");
    json.merge_patch(*ParseJsonLenient(changes));
    if (json.contains("quantization_config"))
      json["quantization_config"]["weight_block_size"] = {GetParam().block.rows,
                                                          GetParam().block.cols};
    dir.Write("config.json", json.dump());
    WriteAll(dir.file("model.safetensors"), tensors);
    auto model = Model::Load(dir.path(), {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  const std::string dir_ = std::string(BATON_SOURCE_DIR "/test/golden/short/") + GetParam().type;
};

TEST_P(Fp8Hybrid, GivesTheBitsOfItsWeightsDequantisedToF32) {
  const Tensors recorded = ReadAll(dir_ + "/model.safetensors");
  Tensors fp8 = recorded;
  for (const auto& [name, t] : recorded)
    if (!GetParam().fused && t.shape.size() == 3 && name.find(".experts.") != std::string::npos)
      Unstack(name, &fp8);
  Tensors plain = fp8;
  int quantised = 0;
  for (const auto& [name, t] : Tensors(fp8)) {
    const bool linear =
        name.find("proj") != std::string::npos || name.find("put_linear") != std::string::npos;
    const bool gate = name.find("in_proj_a.") != std::string::npos ||
                      name.find("in_proj_b.") != std::string::npos ||
                      name.find("in_proj_ba.") != std::string::npos;
    if (t.shape.size() < 2 || !linear || gate) continue;
    Quantise(name, &fp8, &plain);
    ++quantised;
  }
  ASSERT_GT(quantised, 8);
  const auto a = Load(fp8, kFp8), b = Load(plain, "{}"), original = Load(recorded, "{}");
  ASSERT_TRUE(a != nullptr && b != nullptr && original != nullptr);
  const std::vector<TokenId> tokens = RecordedTokens(ReadAll(dir_ + "/golden.safetensors"));
  const Outcome outcome = RunInPieces(*a, tokens);
  EXPECT_EQ(Difference(outcome, RunInPieces(*b, tokens)), "");
  EXPECT_EQ(Difference(outcome, RunInPieces(*a, tokens, {5, 16, 1})), "");
  // Quantised it was.
  EXPECT_NE(Difference(outcome, RunInPieces(*original, tokens)), "");
}

// In blocks of 128 x 128 most of these small matrices are one block; in smaller ones they have
// many, and edges.
INSTANTIATE_TEST_SUITE_P(
    Published,
    Fp8Hybrid,
    testing::Values(Fp8Form{"qwen3_5", {}, TensorDType::kBF16},           // gated delta
                    Fp8Form{"qwen3_5", {16, 24}, TensorDType::kF32},      //
                    Fp8Form{"qwen3_5_moe", {}, TensorDType::kBF16},       // with experts
                    Fp8Form{"qwen3_5_moe", {16, 24}, TensorDType::kF32},  //
                    Fp8Form{"qwen3_5_moe", {}, TensorDType::kF32, true},  //
                    Fp8Form{"qwen3_5_moe", {5, 7}, TensorDType::kF32, true},
                    Fp8Form{"qwen3_next", {}, TensorDType::kBF16},
                    Fp8Form{"qwen3_next", {16, 24}, TensorDType::kF32},
                    Fp8Form{"bamba", {}, TensorDType::kF32},  // Mamba-2
                    Fp8Form{"bamba", {16, 24}, TensorDType::kBF16},
                    Fp8Form{"granitemoehybrid", {}, TensorDType::kF32, true},
                    Fp8Form{"nemotron_h", {}, TensorDType::kF32},
                    Fp8Form{"nemotron_h", {16, 24}, TensorDType::kBF16}),
    [](const auto& info) {
      const Fp8Form& f = info.param;
      return std::string(f.type) + "_" + std::to_string(f.block.rows) + "x" +
             std::to_string(f.block.cols) + (f.fused ? "_stacked" : "");
    });

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
