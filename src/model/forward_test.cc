// Bits are a function of (model, tokens): the forward pass compared with itself, byte for byte,
// over splits, batch mates, threads, kernel implementations and garbage in unused memory.
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/generate.h"
#include "model/model.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"
#include "model/test_outcome.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// Instrumented kernels are twenty times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::vector<TokenId> RandomTokens(int64_t n, int64_t vocab_size, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng.Below(vocab_size));
  return tokens;
}

// How a history is run.
struct Plan {
  std::vector<int64_t> cuts = {};  // tokens per call; the last repeats
  int threads = 1;
  int others = 0;  // sequences that share every call, each at its own position and length
  bool others_first = false;
  uint8_t fill = 0;  // of unused KV memory
};

class Runner {
 public:
  explicit Runner(const Model& model) : model_(model) {}

  Outcome Run(const std::vector<TokenId>& tokens, const Plan& plan) {
    std::optional<ThreadPool> pool;
    if (plan.threads > 1) pool.emplace(plan.threads);
    const int64_t n = static_cast<int64_t>(tokens.size()), vocab = model_.vocab_size();
    SequenceMemory memory(model_.layout(), n + 5, plan.fill, model_.slot_tail_bytes());
    std::vector<float> logits(n * vocab);
    Others others(model_, plan);
    Workspace workspace;
    for (size_t call = 0; memory.position() < n; ++call) {
      const int64_t from = memory.position();
      const int64_t cut = plan.cuts.empty() ? n : plan.cuts[std::min(call, plan.cuts.size() - 1)];
      const int64_t count = std::min(cut, n - from);
      std::vector<BatchItem> batch;
      if (plan.others_first) others.Add(call, &batch);
      batch.push_back(memory.Extend(std::span(tokens).subspan(from, count), LogitsMode::kAll,
                                    logits.data() + from * vocab));
      if (!plan.others_first) others.Add(call, &batch);
      const Status status = model_.Forward(batch, &workspace, pool.has_value() ? &*pool : nullptr);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) break;
    }
    return Collect(model_, memory, std::move(logits));
  }

 private:
  // Sequences that run along and whose results nobody looks at.
  class Others {
   public:
    Others(const Model& model, const Plan& plan) : model_(model) {
      for (int i = 0; i < plan.others; ++i) {
        tokens_.push_back(RandomTokens(2000, model.vocab_size(), 1000 + i));
        memory_.push_back(std::make_unique<SequenceMemory>(model.layout(), 2000, plan.fill,
                                                           model.slot_tail_bytes()));
        logits_.emplace_back(model.vocab_size());
      }
    }
    void Add(size_t call, std::vector<BatchItem>* batch) {
      for (size_t i = 0; i < memory_.size(); ++i) {
        const int64_t from = memory_[i]->position();
        // 1, 2, 3, ... 40 tokens, now and then none.
        int64_t count = (call * 7 + i * 13) % 40 + (i % 2);
        count = std::min<int64_t>(count, 2000 - from);
        if (count == 0) continue;
        const LogitsMode mode = i % 3 == 0 ? LogitsMode::kNone : LogitsMode::kLast;
        batch->push_back(memory_[i]->Extend(std::span(tokens_[i]).subspan(from, count), mode,
                                            logits_[i].data()));
      }
    }

   private:
    const Model& model_;
    std::vector<std::vector<TokenId>> tokens_;
    std::vector<std::unique_ptr<SequenceMemory>> memory_;
    std::vector<std::vector<float>> logits_;
  };

  const Model& model_;
};

// A generated or recorded checkpoint, by name; loaded with the given kernels.
class Models {
 public:
  static const Model& Get(const std::string& name, const kernel::Kernels& kernels) {
    static auto& loaded = *new std::map<std::string, std::unique_ptr<Model>>;
    std::unique_ptr<Model>& model = loaded[name + "/" + kernels.name];
    if (model != nullptr) return *model;
    TempDir dir;
    const size_t at = name.find('@');  // of the state's dtype
    const std::string checkpoint = name.substr(0, at);
    std::string path = std::string(BATON_SOURCE_DIR) + "/test/golden/" + checkpoint;
    if (name.rfind("tiny-", 0) == 0) {
      path = dir.path();
      const bool bf16 = checkpoint.back() == '6';
      const std::string preset = bf16 ? checkpoint.substr(0, checkpoint.size() - 5) : checkpoint;
      GenerateOptions options;
      options.dtype = bf16 ? TensorDType::kBF16 : TensorDType::kF32;
      const auto report = GenerateCheckpoint(*PresetConfig(preset), options, path, nullptr);
      EXPECT_TRUE(report.ok()) << report.status();
    }
    LoadOptions options;
    options.kernels = &kernels;
    if (at != std::string::npos)
      options.state_dtype = *kernel::ParseStateDType(name.substr(at + 1));
    auto result = Model::Load(path, options);
    EXPECT_TRUE(result.ok()) << result.status();
    model = std::move(result).value();
    return *model;
  }
};

class ForwardTest : public testing::TestWithParam<std::string> {
 protected:
  const Model& simd() { return Models::Get(GetParam(), kernel::SimdKernels()); }
  const Model& reference() { return Models::Get(GetParam(), kernel::ReferenceKernels()); }
  // Past the first attention split and off the grid for the models that are not recorded.
  int64_t length() const { return GetParam().rfind("tiny-", 0) == 0 && !kSanitized ? 291 : 61; }
  std::vector<TokenId> tokens() { return RandomTokens(length(), simd().vocab_size(), 7); }
  void ExpectSame(const Plan& plan, const char* what) {
    static auto& base = *new std::map<std::string, Outcome>;
    if (base.count(GetParam()) == 0) base[GetParam()] = Runner(simd()).Run(tokens(), Plan{});
    EXPECT_EQ(Difference(base[GetParam()], Runner(simd()).Run(tokens(), plan)), "") << what;
  }
};

TEST_P(ForwardTest, SplitsChangeNoBit) {
  for (const int64_t cut : {1, 3, 8, 37}) ExpectSame({.cuts = {cut}}, "even pieces");
  ExpectSame({.cuts = {37, 1, 1, 16, 5, 64, 1}}, "mixed pieces");
}

TEST_P(ForwardTest, BatchMatesChangeNoBit) {
  ExpectSame({.cuts = {8}, .others = 5}, "others after");
  ExpectSame({.cuts = {3}, .others = 3, .others_first = true}, "others before");
  ExpectSame({.cuts = {}, .others = 17, .others_first = true}, "one call");
}

TEST_P(ForwardTest, ThreadsChangeNoBit) {
  ExpectSame({.threads = 2}, "2 threads");
  ExpectSame({.cuts = {8}, .threads = 2, .others = 5}, "2 threads, batch");
  ExpectSame({.cuts = {1}, .threads = 3}, "3 threads, single tokens");
}

TEST_P(ForwardTest, UnusedMemoryChangesNoBit) {
  ExpectSame({.cuts = {5}, .fill = 0xff}, "NaN in blocks");  // 0xffffffff is a NaN
}

TEST_P(ForwardTest, EveryKernelSetAgreesWithTheReference) {
  const Outcome expected = Runner(reference()).Run(tokens(), Plan{});
  for (const kernel::Kernels* kernels : kernel::SupportedKernels()) {
    const Model& model = Models::Get(GetParam(), *kernels);
    EXPECT_EQ(Difference(expected, Runner(model).Run(tokens(), Plan{.cuts = {40}})), "")
        << kernels->name;
    EXPECT_EQ(model.fingerprint(), reference().fingerprint()) << kernels->name;
    EXPECT_EQ(model.layout().FirstDifference(reference().layout()), "") << kernels->name;
  }
}

// A check that cannot fail is no check.

TEST_P(ForwardTest, ComparisonSeesOneBit) {
  const Outcome base = Runner(simd()).Run(tokens(), Plan{});
  const auto flip = [](void* p) { *static_cast<uint8_t*>(p) ^= 1; };
  Outcome changed = base;
  flip(&changed.logits.back());
  EXPECT_EQ(Difference(base, changed), "logits ");
  if (!base.state.empty()) {
    for (size_t p = 0; p < base.state.size(); ++p) {
      changed = base;
      flip(&changed.state[p].back());
      EXPECT_EQ(Difference(base, changed), "state ");
    }
  }
  if (!base.keys.empty()) {
    changed = base;
    flip(&changed.keys.back());
    EXPECT_EQ(Difference(base, changed), "keys ");
    changed = base;
    flip(&changed.values.front());
    EXPECT_EQ(Difference(base, changed), "values ");
  }
}

TEST_P(ForwardTest, OneOtherTokenChangesEverything) {
  std::vector<TokenId> other = tokens();
  other[1] = (other[1] + 1) % simd().vocab_size();
  const std::string difference =
      Difference(Runner(simd()).Run(tokens(), Plan{}), Runner(simd()).Run(other, Plan{}));
  EXPECT_THAT(difference, HasSubstr("logits"));
  if (simd().layout().has_state()) {
    EXPECT_THAT(difference, HasSubstr("state"));
  }
  if (!simd().layout().groups().empty()) {
    EXPECT_THAT(difference, HasSubstr("keys values"));
  }
}

// A matrix kernel whose sum depends on the number of rows, as fast libraries have it: one rounding
// in the last place is enough to be seen by the split, the batch and the kernel comparison.
void RowDependentMatmul(const kernel::MatmulArgs& args) {
  kernel::ReferenceKernels().matmul(args);
  const int64_t row = args.rows % std::min<int64_t>(args.rows, 7);
  float& y = args.y[row * args.ldy + args.panel_begin * kernel::kLanes];
  y = std::nextafter(y, 1e30f);
}

TEST_P(ForwardTest, RowDependentKernelIsCaught) {
  kernel::Kernels bad = kernel::ReferenceKernels();
  bad.name = "row-dependent";
  bad.matmul = RowDependentMatmul;
  const Model& model = Models::Get(GetParam(), bad);
  std::vector<TokenId> t = tokens();
  t.resize(48);
  const Outcome one_shot = Runner(model).Run(t, Plan{});
  EXPECT_NE(Difference(one_shot, Runner(model).Run(t, {.cuts = {1}})), "") << "split";
  EXPECT_NE(Difference(one_shot, Runner(model).Run(t, {.others = 3})), "") << "batch";
  EXPECT_NE(Difference(one_shot, Runner(reference()).Run(t, Plan{})), "") << "kernels";
}

// Memory past the valid extent that is multiplied instead of selected away shows as NaN.
void LeakyAttention(const kernel::AttentionArgs& args) {
  kernel::ReferenceKernels().attention(args);
  const int64_t last = args.first_len + args.rows - 1;
  const float* block = args.blocks[(last - 1) / kBlockTokens];
  for (int64_t t = last % kBlockTokens; t < kBlockTokens && t > 0; ++t)
    args.out[0] += 0.0f * block[args.v_offset + t * args.head_dim];
}

TEST_P(ForwardTest, LeakFromUnusedMemoryIsCaught) {
  if (simd().layout().groups().empty()) GTEST_SKIP() << "no attention";
  kernel::Kernels bad = kernel::ReferenceKernels();
  bad.name = "leaky";
  bad.attention = LeakyAttention;
  const Model& model = Models::Get(GetParam(), bad);
  std::vector<TokenId> t = tokens();
  t.resize(21);
  EXPECT_NE(Difference(Runner(model).Run(t, {.cuts = {5}}),
                       Runner(model).Run(t, {.cuts = {5}, .fill = 0xff})),
            "");
}

INSTANTIATE_TEST_SUITE_P(Types,
                         ForwardTest,
                         testing::Values("short/bamba",
                                         "short/falcon_h1",
                                         "short/falcon_mamba",
                                         "short/mamba",
                                         "short/mamba2",
                                         "short/nemotron_h",
                                         "short/zamba",
                                         "short/zamba2",
                                         "tiny-falcon_h1",
                                         "tiny-falcon_mamba",
                                         "tiny-mamba",
                                         "tiny-mamba2",
                                         "tiny-nemotron_h",
                                         "tiny-zamba",
                                         "tiny-zamba2",
                                         "tiny-nemotron_h-bf16",
                                         "tiny-falcon_h1-bf16",
                                         "tiny-zamba-bf16",
                                         "tiny-nemotron_h@bf16",
                                         "tiny-falcon_h1@fp8_e4m3",
                                         "tiny-zamba2@f16",
                                         "short/granitemoehybrid",
                                         "short/jamba",
                                         "short/lfm2",
                                         "short/lfm2_moe",
                                         "short/minimax",
                                         "short/recurrent_gemma",
                                         "short/llama",
                                         "short/olmo_hybrid",
                                         "short/qwen3_5",
                                         "short/qwen3_5_moe",
                                         "short/qwen3_next",
                                         "long/bamba",
                                         "long/granitemoehybrid",
                                         "long/jamba",
                                         "long/llama",
                                         "long/olmo_hybrid",
                                         "long/qwen3_5",
                                         "long/qwen3_5_moe",
                                         "long/qwen3_next",
                                         "tiny-bamba",
                                         "tiny-granitemoehybrid",
                                         "tiny-granite-dense",
                                         "tiny-jamba",
                                         "tiny-lfm2",
                                         "tiny-lfm2_moe",
                                         "tiny-minimax",
                                         "tiny-recurrent_gemma",
                                         "tiny-recurrent_gemma-bf16",
                                         "tiny-llama",
                                         "tiny-olmo_hybrid",
                                         "tiny-qwen3_5",
                                         "tiny-qwen3_5_moe",
                                         "tiny-qwen3_next",
                                         "tiny-olmo_hybrid-bf16",
                                         "tiny-qwen3_5-bf16",
                                         "tiny-qwen3_5_moe-bf16",
                                         "tiny-qwen3_next-bf16",
                                         "tiny-granitemoehybrid-bf16",
                                         "tiny-jamba-bf16",
                                         "tiny-lfm2-bf16",
                                         "long/bamba@bf16",
                                         "short/granitemoehybrid@fp8_e4m3",
                                         "tiny-bamba@f16",
                                         "tiny-granitemoehybrid@bf16",
                                         "tiny-granite-dense@fp8_e4m3",
                                         "short/qwen3_5@bf16",
                                         "short/qwen3_next@fp8_e4m3",
                                         "short/olmo_hybrid@f16",
                                         "short/minimax@fp8_e4m3",
                                         "long/qwen3_5_moe@bf16",
                                         "tiny-qwen3_5@fp8_e4m3",
                                         "tiny-qwen3_5_moe@f16",
                                         "tiny-qwen3_next@bf16",
                                         "tiny-olmo_hybrid@bf16",
                                         "tiny-minimax@bf16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           if (const size_t at = name.find('@'); at != std::string::npos)
                             name.replace(at, 1, "_state_");
                           for (char& c : name)
                             if (c == '/' || c == '-') c = '_';
                           return name;
                         });

class ForwardErrors : public testing::Test {
 protected:
  const Model& model_ = Models::Get("short/granitemoehybrid", kernel::SimdKernels());
  SequenceMemory memory_{model_.layout(), 64};
  Workspace workspace_;
  std::vector<TokenId> tokens_ = {1, 2, 3};
  std::vector<float> logits_ = std::vector<float>(97);
  BatchItem item_ = memory_.Extend(tokens_, LogitsMode::kLast, logits_.data());

  std::string Run(std::vector<BatchItem> batch) {
    std::vector<std::byte> before(memory_.slot(), memory_.slot() + model_.layout().slot_bytes());
    const Status status = model_.Forward(batch, &workspace_, nullptr);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::memcmp(before.data(), memory_.slot(), before.size()), 0) << "touched";
    }
    return std::string(status.message());
  }
};

TEST_F(ForwardErrors, BadBatchesTouchNothing) {
  BatchItem bad = item_;
  tokens_[2] = 97;
  EXPECT_THAT(Run({item_}), HasSubstr("token 97"));
  tokens_[2] = 3;
  bad.tokens = {};
  EXPECT_THAT(Run({bad}), HasSubstr("0 tokens"));
  bad = item_;
  bad.position = model_.max_model_len() - 2;
  EXPECT_THAT(Run({bad}), HasSubstr("context"));
  bad.position = -1;
  EXPECT_THAT(Run({bad}), HasSubstr("context"));
  bad.position = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Run({bad}), HasSubstr("context"));
  bad = item_;
  bad.slot = nullptr;
  EXPECT_THAT(Run({bad}), HasSubstr("no state slot"));
  bad = item_;
  bad.blocks.clear();
  EXPECT_THAT(Run({bad}), HasSubstr("block tables"));
  bad = item_;
  bad.position = 62;
  EXPECT_THAT(Run({bad}), HasSubstr("KV blocks"));
  std::byte* null_block[] = {nullptr};
  bad = item_;
  bad.blocks[0] = null_block;
  EXPECT_THAT(Run({bad}), HasSubstr("null"));
  bad = item_;
  bad.logits = nullptr;
  EXPECT_THAT(Run({bad}), HasSubstr("no place"));
  EXPECT_THAT(Run({item_, item_}), HasSubstr("share one state slot"));
  EXPECT_EQ(Run({item_}), "");
  EXPECT_EQ(Run({}), "");
}

TEST(ModelLoad, RotationOverrideChangesTheModel) {
  LoadOptions options;
  const std::string dir = std::string(BATON_SOURCE_DIR) + "/test/golden/short/bamba";
  const auto plain = Model::Load(dir, options);
  options.rotate_all_dims = true;
  const auto rotated = Model::Load(dir, options);
  options = {};
  options.adapter = "lora";
  const auto adapted = Model::Load(dir, options);
  options = {};
  options.max_model_len = 100;
  const auto shorter = Model::Load(dir, options);
  ASSERT_TRUE(plain.ok() && rotated.ok() && adapted.ok() && shorter.ok());
  EXPECT_NE((*plain)->fingerprint(), (*rotated)->fingerprint());
  EXPECT_NE((*plain)->fingerprint(), (*adapted)->fingerprint());
  EXPECT_EQ((*plain)->fingerprint(), (*shorter)->fingerprint());
  EXPECT_EQ((*shorter)->max_model_len(), 100);
  options.max_model_len = int64_t{1} << 30;
  EXPECT_THAT(std::string(Model::Load(dir, options).status().message()),
              HasSubstr("max_model_len"));
}

}  // namespace
}  // namespace baton::model
