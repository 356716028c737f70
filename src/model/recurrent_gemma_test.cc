// What recurrent_gemma reads from a config.json, the memory it asks for, and blocks out of its
// window's sight: they need not be there.
#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/model_layout.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

TEST(RecurrentGemma, DefaultsAreTheLibrarysOwn) {
  const auto c = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"recurrent_gemma","vocab_size":10,"hidden_size":2560,
          "num_attention_heads":10,"num_key_value_heads":1,"torch_dtype":"bfloat16",
          "logits_soft_cap":30.0})"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->layers.size(), 26u);
  EXPECT_EQ(c->CountMixers(Mixer::kAttention), 8);
  EXPECT_EQ(c->layers[2].mixer, Mixer::kAttention);
  EXPECT_EQ(c->attention->window, 2048);
  EXPECT_EQ(c->attention->head_dim, 256);
  EXPECT_EQ(c->attention->rope->dims, 128);  // the first half
  EXPECT_EQ(c->rg_lru->width, 2560);
  EXPECT_EQ(c->mlp->width, 3840);
  EXPECT_EQ(c->logits_soft_cap, 30.0f);
  EXPECT_EQ(c->embedding_multiplier, 50.5f);  // sqrt(2560) is 50.596
  EXPECT_TRUE(c->tie_word_embeddings);
}

TEST(RecurrentGemma, EveryKeyThatChangesABitCounts) {
  const std::string base = CanonicalText(*With("tiny-recurrent_gemma", "{}"));
  for (const char* change :
       {R"({"attention_window_size":41})", R"({"logits_soft_cap":30})", R"({"conv1d_width":3})",
        R"({"lru_width":128})", R"({"block_types":["attention","recurrent"]})",
        R"({"partial_rotary_factor":1.0})", R"({"num_attention_heads":2})"}) {
    EXPECT_NE(CanonicalText(*With("tiny-recurrent_gemma", change)), base) << change;
  }
  EXPECT_THAT(Error(With("tiny-recurrent_gemma", R"({"hidden_activation":"silu"})")),
              HasSubstr("hidden_activation"));
  EXPECT_THAT(Error(With("tiny-recurrent_gemma", R"({"block_types":["mamba"]})")),
              HasSubstr("mamba"));
  EXPECT_THAT(Error(With("tiny-recurrent_gemma", R"({"lru_width":161})")), HasSubstr("lru_width"));
}

TEST(RecurrentGemma, LayoutHasAWindowAndVectors) {
  const auto layout = BuildLayout(*With("tiny-recurrent_gemma", "{}"), Sha256());
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->StatePartCount(), 6u);
  EXPECT_EQ(layout->PartName(1), "l0.ssm");
  EXPECT_EQ(layout->parts()[0].shape, (std::vector<int64_t>{3, 160}));
  EXPECT_EQ(layout->parts()[1].shape, (std::vector<int64_t>{160}));
  ASSERT_EQ(layout->groups().size(), 1u);
  EXPECT_EQ(layout->groups()[0].window, 40u);
  EXPECT_EQ(layout->FirstBlock(0, 96), 3u);  // position 96 sees 57 to 96
  EXPECT_EQ(layout->BlockCount(0, 96), 3u);
}

// A table without the blocks before the window gives the same bits.
TEST(RecurrentGemma, BlocksOutOfSightAreNotRead) {
  TempDir dir;
  ASSERT_TRUE(
      GenerateCheckpoint(*PresetConfig("tiny-recurrent_gemma"), {}, dir.path(), nullptr).ok());
  const auto model = Model::Load(dir.path(), {});
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<TokenId> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 7 % 300);
  std::vector<float> logits[2] = {std::vector<float>(300), std::vector<float>(300)};
  for (const bool forget : {false, true}) {
    SequenceMemory memory((*model)->layout(), 200);
    Workspace workspace;
    for (int64_t at = 0; at < 200; at += 8) {
      BatchItem item =
          memory.Extend(std::span(tokens).subspan(at, 8), LogitsMode::kLast, logits[forget].data());
      std::vector<std::byte*> table(item.blocks[0].begin(), item.blocks[0].end());
      if (forget) {
        for (uint64_t b = 0; b < (*model)->layout().FirstBlock(0, at); ++b) table[b] = nullptr;
        item.blocks[0] = table;
      }
      ASSERT_TRUE((*model)->Forward(std::span(&item, 1), &workspace, nullptr).ok());
    }
  }
  EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), 300 * sizeof(float)), 0);
}

}  // namespace
}  // namespace baton::model
