// What minimax reads from a config.json, and how fast its states fade.
#include <cmath>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/lightning.h"
#include "model/model_layout.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

TEST(MiniMax, DefaultsAreTheLibrarysOwn) {
  const auto c = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"minimax","vocab_size":10,"hidden_size":4096,"num_hidden_layers":4})"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->layers[0].mixer, Mixer::kAttention);
  EXPECT_EQ(c->layers[1].mixer, Mixer::kLightning);
  EXPECT_EQ(c->attention->kv_heads, 8);
  EXPECT_EQ(c->attention->rope->theta, 1e6);
  EXPECT_EQ(c->attention->rope->dims, 128);
  EXPECT_EQ(c->lightning->heads, 32);
  EXPECT_EQ(c->normed_residual->linear.residual, 1.0f);
  EXPECT_EQ(c->moe->experts, 8);
  EXPECT_TRUE(c->moe->renormalise);
}

TEST(MiniMax, OriginalSpellingsMeanTheSame) {
  const std::string base = CanonicalText(*With("tiny-minimax", "{}"));
  EXPECT_EQ(
      CanonicalText(*With("tiny-minimax", R"({"layer_types":null,"attn_type_list":[0,1,0,1]})")),
      base);
  EXPECT_EQ(CanonicalText(*With("tiny-minimax", R"({"linear_attn_alpha_factor":null,
      "layernorm_linear_attention_alpha":2.0,"postnorm":true,"shared_intermediate_size":0})")),
            base);
  for (const char* change :
       {R"({"linear_attn_beta_factor":0.5})", R"({"mlp_alpha_factor":3})", R"({"rotary_dim":20})",
        R"({"full_attn_alpha_factor":3})", R"({"layer_types":null})"}) {
    EXPECT_NE(CanonicalText(*With("tiny-minimax", change)), base) << change;
  }
  EXPECT_THAT(Error(With("tiny-minimax", R"({"layer_types":null,"attn_type_list":[0,2,0,1]})")),
              HasSubstr("layer 1"));
  EXPECT_THAT(Error(With("tiny-minimax", R"({"postnorm":false})")), HasSubstr("postnorm"));
  EXPECT_THAT(Error(With("tiny-minimax", R"({"shared_intermediate_size":8})")),
              HasSubstr("shared expert"));
}

// A config.json as the original release writes it, against the library's spelling of the same.
TEST(MiniMax, OriginalReleaseParsesAsTheLibrarys) {
  const std::string common = R"("vocab_size": 200064, "hidden_size": 6144, "head_dim": 128,
      "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 9216, "num_local_experts": 32, "num_experts_per_tok": 2,
      "rms_norm_eps": 1e-5, "rope_theta": 1e7, "rotary_dim": 64, "hidden_act": "silu",
      "max_position_embeddings": 10240000, "tie_word_embeddings": false)";
  const auto library = ParseConfig(*ParseJsonLenient("{" + common + R"(, "model_type": "minimax",
      "layer_types": ["linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "full_attention"],
      "full_attn_alpha_factor": 3.5565588200778455, "full_attn_beta_factor": 1.0,
      "linear_attn_alpha_factor": 3.5565588200778455, "linear_attn_beta_factor": 1.0,
      "mlp_alpha_factor": 3.5565588200778455, "mlp_beta_factor": 1.0})"));
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->max_position, int64_t{1} << 22);  // of 10,240,000: exact angles end there
  EXPECT_EQ(library->attention->rope->dims, 64);
  EXPECT_EQ(library->normed_residual->linear.residual, 3.5565588200778455f);
  for (const char* type : {"minimax_text_01", "MiniMaxText01"}) {
    const std::string type_key = std::string(R"(, "model_type": ")") + type + '"';
    auto original = ParseConfig(*ParseJsonLenient("{" + common + type_key + R"(,
        "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1], "postnorm": true,
        "layernorm_full_attention_alpha": 3.5565588200778455,
        "layernorm_full_attention_beta": 1.0,
        "layernorm_linear_attention_alpha": 3.5565588200778455,
        "layernorm_linear_attention_beta": 1.0,
        "layernorm_mlp_alpha": 3.5565588200778455, "layernorm_mlp_beta": 1.0,
        "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid"})"));
    ASSERT_TRUE(original.ok()) << original.status();
    EXPECT_EQ(original->model_type, type);
    original->model_type = "minimax";
    EXPECT_EQ(CanonicalText(*original), CanonicalText(*library));
  }
}

TEST(MiniMax, LinearLayersKeepOneTensor) {
  const auto layout = BuildLayout(*With("tiny-minimax", "{}"), Sha256());
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->StatePartCount(), 2u);
  EXPECT_EQ(layout->PartName(0), "l0.ssm");
  EXPECT_EQ(layout->parts()[0].shape, (std::vector<int64_t>{4, 40, 40}));
  EXPECT_EQ(layout->groups()[0].layers, (std::vector<uint32_t>{1, 3}));
}

TEST(MiniMax, DecayIsTheFormulas) {
  const LightningConfig c{.heads = 64, .head_dim = 128};
  for (const int64_t layer : {0, 40, 79}) {
    for (const int64_t head : {0, 31, 63}) {
      const double slope = std::pow(2.0, -8.0 * (head + 1) / 64) * (1 - layer / (79 + 1e-5) + 1e-5);
      EXPECT_NEAR(LightningDecay(c, head, layer, 80), std::exp(-slope), 1e-7);
    }
  }
  EXPECT_EQ(LightningDecay(c, 0, 0, 1), LightningDecay(c, 0, 0, 1));  // one layer: no 0 / 0
  EXPECT_TRUE(std::isfinite(LightningDecay(c, 0, 0, 1)));
}

}  // namespace
}  // namespace baton::model
