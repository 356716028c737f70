// What lfm2 reads from a config.json, and the memory it asks for.
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/model_layout.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// The keys that say which layers there are and what they keep, as published.
constexpr char kPublished[] = R"({
  "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 2048, "num_hidden_layers": 16,
  "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3, "layer_types": [
  "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv",
  "full_attention", "conv", "full_attention", "conv", "full_attention", "conv",
  "full_attention", "conv"]})";

TEST(Lfm2, PublishedModelKeepsOnlyConvWindows) {
  const auto config = ParseConfig(*ParseJsonLenient(kPublished));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->attention->rope->theta, 1e6);
  const auto layout = BuildLayout(*config, Sha256());
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->StatePartCount(), 10u);
  for (const StatePart& part : layout->parts()) EXPECT_EQ(part.component, kConvComponent);
  // f32 here: twice the bytes of bf16.
  EXPECT_EQ(layout->state_payload_bytes(), 2u * 81920);
  EXPECT_EQ(layout->kv_bytes_per_token(), 2u * 12288);
}

TEST(Lfm2, MlpWidthIsAdjusted) {
  const auto width = [](const char* changes) {
    const auto config = With("tiny-lfm2", changes);
    EXPECT_TRUE(config.ok()) << config.status();
    return config->mlp->width;
  };
  EXPECT_EQ(width("{}"), 208);  // 2/3 of 300 is 200, rounded up to a multiple of 16
  EXPECT_EQ(width(R"({"block_ffn_dim_multiplier":1.5})"), 304);
  EXPECT_EQ(width(R"({"block_auto_adjust_ff_dim":false})"), 300);
  EXPECT_EQ(width(R"({"intermediate_size":null,"block_ff_dim":60})"), 48);
  EXPECT_THAT(Error(With("tiny-lfm2", R"({"block_ffn_dim_multiplier":1e9})")),
              HasSubstr("block_ffn_dim_multiplier"));
}

TEST(Lfm2, OldSpellingsMeanTheSame) {
  const std::string base = CanonicalText(*With("tiny-lfm2", "{}"));
  EXPECT_EQ(CanonicalText(*With("tiny-lfm2", R"({"layer_types":null,"full_attn_idxs":[1,3]})")),
            base);
  EXPECT_EQ(CanonicalText(*With("tiny-lfm2", R"({"tie_word_embeddings":null,
                                                 "tie_embedding":true})")),
            base);
  EXPECT_EQ(CanonicalText(*With("tiny-lfm2", R"({"norm_eps":null,"block_norm_eps":1e-5})")), base);
  for (const char* change : {R"({"conv_L_cache":4})", R"({"conv_bias":true})",
                             R"({"rope_theta":1e4})", R"({"tie_embedding":false,
                                 "tie_word_embeddings":null})"}) {
    EXPECT_NE(CanonicalText(*With("tiny-lfm2", change)), base) << change;
  }
}

TEST(Lfm2Moe, ExpertsBeginAfterTheDenseLayers) {
  const auto c = With("tiny-lfm2_moe", "{}");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE(c->layers[0].mlp && !c->layers[0].moe && c->layers[1].moe && !c->layers[1].mlp);
  EXPECT_EQ(c->mlp->width, 200);  // not adjusted
  EXPECT_TRUE(c->moe->router == Router::kSigmoid && c->moe->correction && c->moe->renormalise);
  EXPECT_FALSE(With("tiny-lfm2_moe", R"({"num_dense_layers":0})")->mlp.has_value());
  EXPECT_FALSE(With("tiny-lfm2_moe", R"({"num_dense_layers":9})")->moe.has_value());
}

TEST(Lfm2, BadLayersAreNamed) {
  EXPECT_THAT(Error(With("tiny-lfm2", R"({"layer_types":["conv"]})")), HasSubstr("lists 1"));
  EXPECT_THAT(Error(With("tiny-lfm2", R"({"layer_types":["conv","x","conv","conv"]})")),
              HasSubstr("layer 1 has type \"x\""));
  EXPECT_THAT(Error(With("tiny-lfm2", R"({"layer_types":null,"full_attn_idxs":[4]})")),
              HasSubstr("full_attn_idxs"));
}

}  // namespace
}  // namespace baton::model
