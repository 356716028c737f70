// Recurrent state in fewer bits. That splits, batch mates, threads and kernels change no bit is
// forward_test's; here: what a bundle at the grid holds, what the layout says, who is refused.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/generate.h"
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

TEST_P(NarrowStateTest, IsNearF32) {
  const std::vector<TokenId> tokens = Tokens(150);
  SequenceMemory memory = NewMemory();
  const std::vector<float> narrow = Run(&memory, tokens);
  model_ = LoadWith(Path(), StateDType::kF32);
  SequenceMemory exact = NewMemory();
  const std::vector<float> wide = Run(&exact, tokens);
  double worst = 0, squares = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(narrow[i]) - wide[i]));
    squares += static_cast<double>(wide[i]) * wide[i];
  }
  const double rms = std::sqrt(squares / static_cast<double>(wide.size()));
  const double bound = DType() == StateDType::kF8E4M3 ? 0.3
                       : DType() == StateDType::kBF16 ? 0.05
                                                      : 0.01;
  EXPECT_LT(worst / rms, bound);
  EXPECT_GT(worst, 0);
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
}

TEST(NarrowStateErrors, ModelsThatCannotAreRefused) {
  for (const auto& [preset, why] : std::vector<std::pair<std::string, std::string>>{
           {"tiny-jamba", "Mamba-1 layers, for which it saves nothing"},
           {"tiny-llama", "no recurrent state"},
           {"tiny-falcon_mamba", "Mamba-1 layers, for which it saves nothing"},
           {"tiny-zamba", "Mamba-1 layers, for which it saves nothing"}}) {
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
