// What the whole-model comparisons cannot see: how work is cut, which experts win a tie, and that
// a step allocates nothing once it has run.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/attention.h"
#include "model/embedding.h"
#include "model/generate.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

// The sanitizers bring their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BATON_COUNTS_ALLOCATIONS 1
void* operator new(size_t n) {
  g_allocations.fetch_add(1);
  void* p = std::malloc(n == 0 ? 1 : n);
  if (p == nullptr) std::abort();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace baton::model {
namespace {

TEST(PlanTiles, CoversEveryRowAndPanelOnce) {
  for (const int64_t matrix_rows : {1, 16, 17, 100, 520, 3352}) {
    const std::vector<float> zeros(matrix_rows * 8);
    const auto w =
        kernel::PackedMatrix::Pack(zeros.data(), kernel::DType::kF32, matrix_rows, 8, 8, nullptr);
    ASSERT_TRUE(w.ok());
    for (const int64_t rows : {1, 2, 4, 5, 16, 37, 128, 129, 512, 1000})
      for (const int threads : {1, 2, 16}) {
        const TilePlan plan = PlanTiles(*w, rows, threads);
        std::vector<int> covered(rows * w->panels());
        for (int64_t i = 0; i < plan.tiles(); ++i) {
          const Tile tile = plan.At(i);
          for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
            for (int64_t p = tile.panel_begin; p < tile.panel_end; ++p)
              ++covered[r * w->panels() + p];
        }
        EXPECT_EQ(covered, std::vector<int>(covered.size(), 1))
            << matrix_rows << " x " << rows << " on " << threads;
      }
  }
}

TEST(Embedding, RowsComeBackFromEveryDType) {
  constexpr int64_t kRows = 37, kCols = 5;
  for (const kernel::DType dtype :
       {kernel::DType::kF32, kernel::DType::kBF16, kernel::DType::kF16}) {
    // Bit patterns of finite values of each type.
    std::vector<uint8_t> bytes(kRows * kCols * kernel::DTypeSize(dtype));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 % 120);
    const auto w = kernel::PackedMatrix::Pack(bytes.data(), dtype, kRows, kCols, kCols, nullptr);
    ASSERT_TRUE(w.ok());
    for (int64_t r = 0; r < kRows; ++r) {
      float row[kCols];
      LoadRow(*w, r, 2.0f, row);
      for (int64_t k = 0; k < kCols; ++k)
        EXPECT_EQ(row[k], 2.0f * kernel::LoadElement(bytes.data(), dtype, r * kCols + k));
    }
  }
}

TEST(Rope, FrequenciesFollowTheConfig) {
  RopeConfig rope;
  rope.dims = 8;
  const std::vector<float> plain = RopeFrequencies(rope);
  EXPECT_EQ(plain, (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  EXPECT_EQ(RopeFrequencies(rope)[1], 0.025f);
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.original_max_position = 256;  // long above 256 tokens a turn, short below 64
  const std::vector<float> scaled = RopeFrequencies(rope);
  EXPECT_EQ(scaled[0], 1.0f);            // a turn of 6 tokens: kept
  EXPECT_FLOAT_EQ(scaled[1], 0.1f);      // of 63: kept
  EXPECT_FLOAT_EQ(scaled[2], 0.00125f);  // of 628: stretched
  rope.original_max_position = 400;      // short below 100, long above 400
  rope.dims = 6;                         // the middle one: theta^(-1/3), a turn of 135
  const double f = 1 / std::cbrt(1e4), turn = 2 * M_PI / f;
  const double kept = (400 / turn - 1) / 3;
  EXPECT_NEAR(RopeFrequencies(rope)[1], (1 - kept) * f / 8 + kept * f, 1e-7);
}

// A generated checkpoint whose tensors can be rewritten.
class EditedModel {
 public:
  explicit EditedModel(const char* preset) {
    BATON_CHECK(GenerateCheckpoint(*PresetConfig(preset), {}, dir_.path(), nullptr).ok());
  }
  // Sets elements [begin, end) of an F32 tensor.
  void Fill(const std::string& name, int64_t begin, int64_t end, float value) {
    std::string bytes = *ReadFileBytes(dir_.file("model.safetensors"), size_t{1} << 30);
    const auto header = ParseSafetensors(std::as_bytes(std::span(bytes.data(), bytes.size())));
    for (const StoredTensor& t : header->tensors) {
      if (t.name != name) continue;
      const size_t at = reinterpret_cast<const char*>(t.bytes.data()) - bytes.data();
      for (int64_t i = begin; i < end; ++i) std::memcpy(bytes.data() + at + i * 4, &value, 4);
    }
    dir_.Write("model.safetensors", bytes);
  }
  std::vector<float> Logits() {
    const auto model = Model::Load(dir_.path(), {});
    BATON_CHECK(model.ok());
    const std::vector<TokenId> tokens = {5, 9, 200, 31, 7};
    std::vector<float> logits(tokens.size() * (*model)->vocab_size());
    SequenceMemory memory((*model)->layout(), 16);
    Workspace workspace;
    const BatchItem item = memory.Extend(tokens, LogitsMode::kAll, logits.data());
    BATON_CHECK((*model)->Forward(std::span(&item, 1), &workspace, nullptr).ok());
    return logits;
  }

 private:
  TempDir dir_;
};

// A matrix and its bias with values that f32 sums exactly enough to compare in double.
Linear RandomLinear(SplitMix64* rng, int64_t rows, int64_t cols, bool bias) {
  std::vector<float> w(rows * cols);
  for (float& v : w) v = static_cast<float>(rng->Uniform() - 0.5);
  Linear l;
  l.w = *kernel::PackedMatrix::Pack(w.data(), kernel::DType::kF32, rows, cols, cols, nullptr);
  if (bias) l.bias.resize(rows, 0.25f);
  return l;
}

std::vector<double> Times(const Linear& l, const std::vector<double>& x) {
  std::vector<double> y(l.w.rows());
  const auto* d = static_cast<const float*>(l.w.data());
  for (int64_t r = 0; r < l.w.rows(); ++r) {
    y[r] = l.bias.empty() ? 0 : l.bias[r];
    for (int64_t k = 0; k < l.w.cols(); ++k)
      y[r] += x[k] * d[(r / kernel::kLanes * l.w.cols() + k) * kernel::kLanes + r % kernel::kLanes];
  }
  return y;
}

double ActOf(Activation act, double v) {
  const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
  switch (act) {
    case Activation::kSilu:
      return v / (1 + std::exp(-v));
    case Activation::kGelu:
      return v * 0.5 * std::erfc(-v * M_SQRT1_2);
    case Activation::kGeluTanh:
      return 0.5 * v * (1 + std::tanh(u));
    case Activation::kRelu2:
      return v > 0 ? v * v : 0;
  }
  return 0;
}

TEST(Mlp, EveryFormIsItsFormula) {
  constexpr int64_t kHidden = 24, kWidth = 37, kRows = 3;
  SplitMix64 rng(7);
  std::vector<float> x(kRows * kHidden), y(x.size());
  for (float& v : x) v = static_cast<float>(4 * rng.Uniform() - 2);
  for (const Activation act :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2}) {
    for (const bool gated : {true, false}) {
      for (const bool plain : {true, false}) {  // without biases and multipliers
        const MlpForm form{act, gated, plain ? 1.0f : 1.5f, plain ? 1.0f : 0.7f};
        MlpWeights w;
        if (gated) w.gate = RandomLinear(&rng, kWidth, kHidden, !plain);
        w.up = RandomLinear(&rng, kWidth, kHidden, !plain);
        w.down = RandomLinear(&rng, kHidden, kWidth, !plain);
        Workspace::Impl work;
        ASSERT_TRUE(work.arena.Reserve(MlpScratch(MlpConfig{kWidth}, kRows)).ok());
        const Step step(kernel::SimdKernels(), nullptr, &work);
        RunMlp(step, w, Rows{x.data(), kHidden}, Rows{y.data(), kHidden}, kRows, form);
        for (int64_t r = 0; r < kRows; ++r) {
          const std::vector<double> in(x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden);
          std::vector<double> mid = Times(w.up, in);
          const std::vector<double> gate = gated ? Times(w.gate, in) : mid;
          for (int64_t i = 0; i < kWidth; ++i)
            mid[i] =
                gated ? ActOf(act, form.gate_multiplier * gate[i]) * mid[i] : ActOf(act, mid[i]);
          const std::vector<double> want = Times(w.down, mid);
          for (int64_t i = 0; i < kHidden; ++i)
            EXPECT_NEAR(y[r * kHidden + i], form.down_multiplier * want[i], 2e-5)
                << static_cast<int>(act) << " gated " << gated << " plain " << plain;
        }
      }
    }
  }
}

TEST(Moe, TiesGoToTheLowerExpert) {
  EditedModel model("tiny-granitemoehybrid");  // 6 experts, 3 chosen, hidden 128, width 72
  const std::string block = "model.layers.1.block_sparse_moe.";
  model.Fill(block + "router.layer.weight", 0, 6 * 128, 0.0f);
  const std::vector<float> tied = model.Logits();
  const int64_t one = 128 * 72;
  model.Fill(block + "output_linear.weight", 3 * one, 6 * one, 1e3f);
  EXPECT_EQ(model.Logits(), tied) << "an expert above 2 was used";
  model.Fill(block + "output_linear.weight", 2 * one, 3 * one, 1e3f);
  EXPECT_NE(model.Logits(), tied) << "expert 2 was not used";
}

TEST(Moe, RouterDecides) {
  EditedModel model("tiny-jamba");  // layer 1: 4 experts, 2 chosen, hidden 128, width 144
  const std::string block = "model.layers.1.feed_forward.";
  const std::vector<float> before = model.Logits();
  // An expert that the router never chooses may hold anything; here each is chosen by some token.
  for (const char* expert : {"0", "1", "2", "3"}) {
    EditedModel changed("tiny-jamba");
    changed.Fill(block + "experts." + expert + ".down_proj.weight", 0, 128 * 144, 0.0f);
    EXPECT_NE(changed.Logits(), before) << expert;
  }
}

#if BATON_COUNTS_ALLOCATIONS
TEST(Forward, AllocatesNothingOnceWarm) {
  for (const char* preset :
       {"tiny-granitemoehybrid", "tiny-jamba", "tiny-llama", "tiny-falcon_h1", "tiny-mamba",
        "tiny-nemotron_h", "tiny-zamba", "tiny-zamba2", "tiny-qwen3_next", "tiny-qwen3_5",
        "tiny-qwen3_5_moe", "tiny-olmo_hybrid"}) {
    TempDir dir;
    ASSERT_TRUE(GenerateCheckpoint(*PresetConfig(preset), {}, dir.path(), nullptr).ok());
    const auto model = Model::Load(dir.path(), {});
    ASSERT_TRUE(model.ok());
    const std::vector<TokenId> tokens(40, 3);
    std::vector<float> logits((*model)->vocab_size());
    SequenceMemory memory((*model)->layout(), 200), other((*model)->layout(), 200);
    Workspace workspace;
    for (int step = 0; step < 3; ++step) {
      const std::vector<BatchItem> batch = {
          memory.Extend(std::span(tokens).first(step == 0 ? 40 : 1), LogitsMode::kLast,
                        logits.data()),
          other.Extend(std::span(tokens).first(20 - step), LogitsMode::kNone, nullptr)};
      const int64_t before = g_allocations.load();
      const Status status = (*model)->Forward(batch, &workspace, nullptr);
      const int64_t made = g_allocations.load() - before;
      ASSERT_TRUE(status.ok()) << status;
      if (step == 0) {
        EXPECT_GT(made, 0) << "the count does not count";
      } else {
        EXPECT_EQ(made, 0) << preset;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace baton::model
