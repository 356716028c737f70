// Recurrent state in fewer bits. That splits, batch mates, threads and kernels change no bit is
// forward_test's; here: what a bundle at the grid holds, what the layout says, who is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/generate.h"
#include "model/inspect.h"
#include "model/model.h"
#include "model/model_layout.h"
#include "model/sequence_memory.h"
#include "model/state_form.h"
#include "model/temp_dir.h"

namespace baton::model {
namespace {

using kernel::StateDType;
using testing::HasSubstr;

constexpr StateDType kNarrow[] = {StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3};

std::string MakeModel(const std::string& preset, const TempDir& dir) {
  const auto report = GenerateCheckpoint(*PresetConfig(preset), {}, dir.path(), nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
  return dir.path();
}

std::unique_ptr<Model> LoadWith(const std::string& path, StateDType dtype) {
  LoadOptions options;
  options.state_dtype = dtype;
  auto model = Model::Load(path, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(model).value();
}

struct NarrowModel {
  const char* preset;
  // By hand: 15 tokens of dt * x [H * P], B [G * N], decay [H] per layer, in whole lines.
  uint64_t tail_bytes;
};
constexpr NarrowModel kModels[] = {
    {"tiny-granitemoehybrid", 2u * (15 * (256 + 32 + 4) * 4 + 16)},
    {"tiny-nemotron_h", 4u * (15 * (192 + 128 + 8) * 4 + 32)},  // four groups of B and C
    // u [Hv * V], k [Hk * K], decay [Hv].
    {"tiny-qwen3_5", 2u * (15 * (240 + 64 + 6) * 4 + 24)},
    {"tiny-qwen3_next", 2u * (15 * (256 + 64 + 4) * 4 + 16)},
    {"tiny-olmo_hybrid", 2u * (15 * (192 + 96 + 4) * 4 + 16)},  // beta up to 2
    // v and k [H * D], decay [H].
    {"tiny-minimax", 2u * (15 * (160 + 160 + 4) * 4 + 16)},
};

class NarrowStateTest : public testing::TestWithParam<std::tuple<NarrowModel, StateDType>> {
 protected:
  static StateDType DType() { return std::get<1>(GetParam()); }
  static std::string Path() {
    const std::string preset = std::get<0>(GetParam()).preset;
    static auto& dirs = *new std::map<std::string, std::unique_ptr<TempDir>>;
    std::unique_ptr<TempDir>& dir = dirs[preset];
    if (dir == nullptr) {
      dir = std::make_unique<TempDir>();
      MakeModel(preset, *dir);
    }
    return dir->path();
  }
  void SetUp() override { model_ = LoadWith(Path(), DType()); }

  SequenceMemory NewMemory(uint8_t fill = 0xff) {
    return SequenceMemory(model_->layout(), 200, fill, model_->slot_tail_bytes());
  }
  // Logits of every new token.
  std::vector<float> Run(SequenceMemory* memory, std::span<const TokenId> tokens) {
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model_->vocab_size()));
    const BatchItem item = memory->Extend(tokens, LogitsMode::kAll, logits.data());
    const Status status = model_->Forward(std::span(&item, 1), &workspace_, nullptr);
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }
  std::vector<TokenId> Tokens(int64_t n) {
    SplitMix64 rng(3);
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& t : tokens)
      t = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(model_->vocab_size())));
    return tokens;
  }

  std::unique_ptr<Model> model_;
  Workspace workspace_;
};

INSTANTIATE_TEST_SUITE_P(DTypes,
                         NarrowStateTest,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kNarrow)),
                         [](const auto& info) {
                           const std::string preset = std::get<0>(info.param).preset;
                           return preset.substr(preset.find('-') + 1) + "_" +
                                  std::string(kernel::StateDTypeName(std::get<1>(info.param)));
                         });

// At a grid boundary the slot's parts and the KV blocks are everything: hand-off, checkpoint and
// restore need no tail. One token later that is no longer so, and it shows.
TEST_P(NarrowStateTest, SlotAndBlocksAtTheGridAreAll) {
  const std::vector<TokenId> tokens = Tokens(120);
  for (const int64_t cut : {16, 48, 64, 65}) {
    SequenceMemory whole = NewMemory();
    const std::vector<float> expected = Run(&whole, tokens);
    SequenceMemory first = NewMemory();
    Run(&first, std::span(tokens).first(static_cast<size_t>(cut)));
    SequenceMemory second = NewMemory();
    // A bundle: parts only, the tail of the new slot being another sequence's leavings.
    Run(&second, std::span(tokens).subspan(50, static_cast<size_t>(cut)));
    for (const StatePart& part : model_->layout().parts())
      std::memcpy(second.slot() + part.offset, first.slot() + part.offset, part.bytes);
    for (size_t g = 0; g < model_->layout().groups().size(); ++g)
      for (int64_t b = 0; b < BlocksFor(cut); ++b)
        std::memcpy(second.block(g, b), first.block(g, b),
                    model_->layout().groups()[g].block_bytes);
    std::vector<float> logits;
    for (int64_t at = cut; at < 120;) {
      const int64_t n = std::min<int64_t>(120 - at, 1 + at % 5);
      const std::vector<float> piece =
          Run(&second, std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
      logits.insert(logits.end(), piece.begin(), piece.end());
      at += n;
    }
    const std::vector<float> rest(expected.begin() + cut * model_->vocab_size(), expected.end());
    EXPECT_EQ(logits == rest, cut % kBlockTokens == 0) << cut;
  }
}

// Of two runs' logits, as a share of the root of the mean square of the second: the farthest value,
// and the median over tokens of the root of the mean square. Where a router is near a tie a token
// may go to another expert, so of models with experts only the median says something of the state.
struct Distance {
  double worst, median;
};
Distance DistanceOf(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  double worst = 0, squares = 0;
  std::vector<double> tokens;
  for (size_t i = 0; i < b.size(); ++i) {
    if (i % vocab == 0) tokens.push_back(0);
    const double d = static_cast<double>(a[i]) - b[i];
    worst = std::max(worst, std::abs(d));
    tokens.back() += d * d;
    squares += static_cast<double>(b[i]) * b[i];
  }
  const double rms = std::sqrt(squares / static_cast<double>(b.size()));
  std::nth_element(tokens.begin(), tokens.begin() + tokens.size() / 2, tokens.end());
  return {worst / rms, std::sqrt(tokens[tokens.size() / 2] / static_cast<double>(vocab)) / rms};
}

// Rounds every head of an f32 slot as narrow state is rounded.
void RoundSlot(const Layout& layout, StateDType dtype, int64_t boundary, std::byte* slot) {
  for (const StatePart& part : layout.parts()) {
    if (part.component != kSsmComponent) continue;
    const int64_t rows = part.shape[1], width = part.shape[2];
    std::vector<std::byte> narrow(static_cast<size_t>(rows * width) *
                                  kernel::StateElementBytes(dtype));
    std::vector<uint16_t> scales(static_cast<size_t>(rows));
    for (int64_t head = 0; head < part.shape[0]; ++head) {
      kernel::NarrowArgs args = {
          .dtype = dtype,
          .rounding = RoundingOf(dtype),
          .key = kernel::RoundingKey(part.layer, static_cast<uint32_t>(head),
                                     static_cast<uint64_t>(boundary)),
          .rows = rows,
          .width = width,
          .wide = reinterpret_cast<float*>(slot + part.offset) + head * rows * width,
          .narrow = narrow.data(),
          .scales = dtype == StateDType::kF8E4M3 ? scales.data() : nullptr};
      kernel::ReferenceKernels().narrow(args);
      kernel::ReferenceKernels().widen(args);
    }
  }
}

// And nearer than state that is rounded after every token, which is what the second form is for.
// f32 state that is rounded once per 16 tokens is the same function but for the order of sums.
TEST_P(NarrowStateTest, IsNearF32) {
  const std::vector<TokenId> tokens = Tokens(150);
  SequenceMemory memory = NewMemory();
  const std::vector<float> narrow = Run(&memory, tokens);
  model_ = LoadWith(Path(), StateDType::kF32);
  SequenceMemory exact = NewMemory();
  const std::vector<float> wide = Run(&exact, tokens);
  const auto rounded_every = [&](int64_t n) {
    SequenceMemory rounded = NewMemory();
    std::vector<float> logits;
    for (size_t at = 0; at < tokens.size(); ++at) {
      const std::vector<float> piece = Run(&rounded, std::span(tokens).subspan(at, 1));
      logits.insert(logits.end(), piece.begin(), piece.end());
      const int64_t boundary = static_cast<int64_t>(at) + 1;
      if (boundary % n == 0) RoundSlot(model_->layout(), DType(), boundary, rounded.slot());
    }
    return logits;
  };
  const size_t vocab = static_cast<size_t>(model_->vocab_size());
  const Distance near = DistanceOf(narrow, wide, vocab);
  const Distance often = DistanceOf(rounded_every(1), wide, vocab);
  const Distance same = DistanceOf(narrow, rounded_every(kBlockTokens), vocab);
  RecordProperty("distance", absl::StrCat("worst ", near.worst, " median ", near.median,
                                          ", rounded every token ", often.median,
                                          ", from f32 rounded every 16 tokens ", same.median));
  const double unit = DType() == StateDType::kF8E4M3 ? 1.0 / 16
                      : DType() == StateDType::kBF16 ? 1.0 / 256
                                                     : 1.0 / 2048;
  EXPECT_GT(near.median, 0);
  EXPECT_LT(near.median, 2 * unit);
  const bool experts = model_->config().moe.has_value();
  if (!experts) {
    EXPECT_LT(near.worst, 10 * unit);
  }
  // One rounding in 16: a quarter, if errors add as at random.
  EXPECT_LT(near.median, (experts ? 1 : 0.4) * often.median);
  // What the order of sums costs; now and then it tips a rounding.
  EXPECT_LT(same.median, 0.25 * near.median);
}

TEST_P(NarrowStateTest, LayoutIsItsOwnAndSmaller) {
  const auto f32 = LoadWith(Path(), StateDType::kF32);
  EXPECT_NE(model_->layout().fingerprint(), f32->layout().fingerprint());
  EXPECT_NE(model_->layout().numerics_tag(), f32->layout().numerics_tag());
  EXPECT_EQ(model_->fingerprint(), f32->fingerprint());
  EXPECT_EQ(f32->slot_tail_bytes(), 0u);
  for (const StateDType other : kNarrow) {
    if (other == DType()) continue;
    EXPECT_NE(LoadWith(Path(), other)->layout().fingerprint(), model_->layout().fingerprint());
  }
  const Layout& layout = model_->layout();
  const StatePart& ssm = layout.parts()[*layout.FindPart(0, kSsmComponent)];
  EXPECT_EQ(ElementName(ssm.dtype), kernel::StateDTypeName(DType()));
  EXPECT_EQ(layout.FindPart(0, kScaleComponent).has_value(), DType() == StateDType::kF8E4M3);
  EXPECT_LT(layout.state_payload_bytes(), f32->layout().state_payload_bytes());
  EXPECT_EQ(model_->slot_tail_bytes(), std::get<0>(GetParam()).tail_bytes);
  const auto report = InspectModel(Path(), {.state_dtype = DType()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->layout.fingerprint(), layout.fingerprint());
  EXPECT_EQ(report->tail_bytes, model_->slot_tail_bytes());
  // Hybrid no larger than attention alone from there on, and not one block earlier.
  if (const auto even = static_cast<uint64_t>(report->break_even_tokens); even > 0) {
    const uint64_t slot = layout.slot_bytes() + report->tail_bytes;
    const uint64_t saved = report->attention_kv_bytes_per_token - layout.kv_bytes_per_token();
    EXPECT_GE(even * saved, slot);
    EXPECT_LT((even - 16) * saved, slot);
  }
  EXPECT_EQ(report->published.state_bytes(), PublishedShapeOf(f32->layout()).state_bytes());
}

TEST(NarrowStateErrors, ModelsThatCannotAreRefused) {
  for (const auto& [preset, why] : std::vector<std::pair<std::string, std::string>>{
           {"tiny-jamba", "Mamba-1 layers, for which it saves nothing"},
           {"tiny-llama", "no recurrent state"},
           {"tiny-falcon_mamba", "Mamba-1 layers, for which it saves nothing"},
           {"tiny-zamba", "Mamba-1 layers, for which it saves nothing"},
           {"tiny-recurrent_gemma", "RG-LRU layers, for which it saves nothing"},
           {"tiny-lfm2", "short convolutions, for which it saves nothing"}}) {
    const TempDir dir;
    LoadOptions options;
    options.state_dtype = StateDType::kBF16;
    const auto model = Model::Load(MakeModel(preset, dir), options);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(why));
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("use --state-dtype f32"));
  }
}

}  // namespace
}  // namespace baton::model
