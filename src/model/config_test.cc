#include "model/config.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/generate.h"
#include "model/model_layout.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StatusOr<ModelConfig> Parse(const std::string& text) {
  const auto json = ParseJsonLenient(text);
  if (!json.ok()) return json.status();
  return ParseConfig(*json);
}

TEST(Config, DefaultsAreTheLibrarysOwn) {
  const auto llama = Parse(R"({"model_type":"llama","vocab_size":10,"hidden_size":64,
                               "num_attention_heads":4})");
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->layers.size(), 32u);
  EXPECT_EQ(llama->attention->kv_heads, 4);
  EXPECT_EQ(llama->attention->head_dim, 16);
  EXPECT_EQ(llama->attention->scale, 0.25f);
  EXPECT_EQ(llama->rms_norm_eps, 1e-6f);
  EXPECT_EQ(llama->attention->rope->theta, 10000.0);
  EXPECT_FALSE(llama->tie_word_embeddings);

  const auto bamba = Parse(R"({"model_type":"bamba","vocab_size":10,"hidden_size":4096})");
  ASSERT_TRUE(bamba.ok()) << bamba.status();
  EXPECT_EQ(bamba->rms_norm_eps, 1e-5f);
  EXPECT_EQ(bamba->mamba2->heads, 128);
  EXPECT_EQ(bamba->mamba2->head_dim, 64);
  EXPECT_EQ(bamba->mamba2->state, 256);
  EXPECT_EQ(bamba->mamba2->dt_max, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(bamba->attention.has_value());  // no attn_layer_indices: recurrent throughout

  const auto jamba = Parse(R"({"model_type":"jamba","vocab_size":10,"hidden_size":4096})");
  ASSERT_TRUE(jamba.ok()) << jamba.status();
  EXPECT_EQ(jamba->CountMixers(Mixer::kAttention), 4);
  EXPECT_EQ(jamba->layers[4].mixer, Mixer::kAttention);
  EXPECT_EQ(jamba->mamba1->dt_rank, 256);
  EXPECT_EQ(jamba->rms_norm_eps, 1e-6f);
  EXPECT_TRUE(jamba->layers[1].moe);
  EXPECT_FALSE(jamba->layers[1].mlp);
  EXPECT_TRUE(jamba->layers[2].mlp);
  EXPECT_FALSE(jamba->attention->rope.has_value());

  const auto granite = Parse(R"({"model_type":"granitemoehybrid","vocab_size":10,
                                 "hidden_size":4096})");
  ASSERT_TRUE(granite.ok()) << granite.status();
  EXPECT_EQ(granite->rms_norm_eps, 1e-6f);
  EXPECT_EQ(granite->moe->experts, 8);
  EXPECT_EQ(granite->moe->width, 11008);
  EXPECT_EQ(granite->mlp->width, 1024);
  EXPECT_EQ(granite->CountMixers(Mixer::kMamba2), 32);
  EXPECT_EQ(granite->logits_divisor, 1.0f);
}

TEST(Config, OldAndNewSpellingsAgree) {
  const auto old_rope = With("tiny-llama", R"({"rope_parameters":null,"rope_theta":5e5})");
  const auto new_rope = With("tiny-llama", R"({"rope_parameters":null})");
  ASSERT_TRUE(old_rope.ok() && new_rope.ok());
  EXPECT_EQ(old_rope->attention->rope->theta, 5e5);
  EXPECT_EQ(With("tiny-llama", R"({"rope_parameters":null,"rope_theta":1e4,"rope_scaling":
      {"type":"linear","factor":4}})")
                ->attention->rope->factor,
            4.0);
  EXPECT_EQ(With("tiny-llama", R"({"rope_parameters":null,"rope_theta":1e4,"rope_scaling":null})")
                ->attention->rope->scaling,
            RopeScaling::kNone);

  const char* v5 = R"({"layer_types":
      ["linear_attention","full_attention","linear_attention","full_attention"]})";
  EXPECT_EQ(CanonicalText(*With("tiny-granitemoehybrid", v5)),
            CanonicalText(*With("tiny-granitemoehybrid", "{}")));
  const char* alias = R"({"layer_types":null,"layers_block_type":
      ["mamba","attention","mamba","attention"]})";
  EXPECT_EQ(CanonicalText(*With("tiny-granitemoehybrid", alias)),
            CanonicalText(*With("tiny-granitemoehybrid", "{}")));
  EXPECT_EQ(With("tiny-llama", R"({"torch_dtype":"bfloat16"})")->stated_dtype, "bfloat16");
  EXPECT_EQ(With("tiny-llama", R"({"dtype":"float16"})")->stated_dtype, "float16");
  EXPECT_EQ(With("tiny-llama", R"({"head_dim":64})")->attention->head_dim, 64);
  EXPECT_EQ(With("tiny-bamba", R"({"mamba_d_head":"auto"})")->mamba2->head_dim, 32);
}

TEST(Config, StepLimitSurvivesInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const char* limit : {"[0.0, Infinity]", "[0.0, 1e308]", "null"}) {
    const auto c = With("tiny-bamba", std::string("{\"time_step_limit\":") + limit + "}");
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(c->mamba2->dt_max, inf) << limit;
  }
  const auto c = With("tiny-bamba", R"({"time_step_limit":[0.01,0.5],"time_step_min":0.3})");
  EXPECT_EQ(c->mamba2->dt_min, 0.01f);
  EXPECT_EQ(c->mamba2->dt_max, 0.5f);
  EXPECT_THAT(Error(With("tiny-bamba", R"({"time_step_limit":[1,0]})")),
              HasSubstr("time_step_limit"));
}

TEST(Config, EosIdsAreAListInsideTheVocabulary) {
  EXPECT_EQ(With("tiny-llama", R"({"eos_token_id":7})")->eos_token_ids, std::vector<TokenId>{7});
  EXPECT_EQ(With("tiny-llama", R"({"eos_token_id":[2,299,300,-1]})")->eos_token_ids,
            (std::vector<TokenId>{2, 299}));
  EXPECT_TRUE(With("tiny-llama", R"({"eos_token_id":null})")->eos_token_ids.empty());
  EXPECT_THAT(Error(With("tiny-llama", R"({"eos_token_id":"2"})")), HasSubstr("eos_token_id"));
}

TEST(Config, UnsupportedThingsAreNamed) {
  EXPECT_THAT(Error(Parse("[]")), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error(Parse("{}")),
              AllOf(HasSubstr("model_type \"\" is not supported; supported are bamba, "),
                    HasSubstr(", llama")));
  EXPECT_THAT(Error(With("tiny-llama", R"({"model_type":"kimi_linear"})")),
              HasSubstr("\"kimi_linear\""));
  EXPECT_THAT(Error(With("tiny-llama", R"({"quantization_config":{"quant_method":"awq"}})")),
              HasSubstr("\"awq\""));
  EXPECT_THAT(Error(With("tiny-llama", R"({"hidden_act":"gelu"})")), HasSubstr("gelu"));
  EXPECT_THAT(Error(With("tiny-llama", R"({"rope_parameters":{"rope_type":"yarn"}})")),
              HasSubstr("\"yarn\""));
  EXPECT_THAT(Error(With("tiny-granitemoehybrid", R"({"position_embedding_type":"alibi"})")),
              HasSubstr("alibi"));
  EXPECT_THAT(
      Error(With("tiny-granitemoehybrid", R"({"layer_types":["mamba","conv","mamba","mamba"]})")),
      HasSubstr("layer 1 has type \"conv\""));
  EXPECT_THAT(Error(With("tiny-granitemoehybrid", R"({"layer_types":["mamba"]})")),
              HasSubstr("lists 1 layers"));
  EXPECT_THAT(Error(With("tiny-jamba", R"({"sliding_window":4096})")), HasSubstr("sliding_window"));
  EXPECT_THAT(Error(With("tiny-bamba", R"({"attn_layer_indices":[4]})")), HasSubstr("layer 4"));
  EXPECT_THAT(Error(ReadConfig("/x/model.gguf")), HasSubstr("GGUF"));
}

TEST(Config, CountsAreBounded) {
  for (const char* bad :
       {R"({"vocab_size":0})", R"({"vocab_size":1e9})", R"({"vocab_size":null})",
        R"({"hidden_size":-1})", R"({"hidden_size":1e300})", R"({"num_hidden_layers":1000000})",
        R"({"num_attention_heads":3})", R"({"num_key_value_heads":3})", R"({"head_dim":520})",
        R"({"head_dim":7})", R"({"max_position_embeddings":99999999999})",
        R"({"intermediate_size":"big"})", R"({"rms_norm_eps":0})", R"({"rms_norm_eps":null,
        "tie_word_embeddings":"yes"})",
        R"({"vocab_size":18446744073709551615})"}) {
    EXPECT_FALSE(With("tiny-llama", bad).ok()) << bad;
  }
  for (const char* bad : {R"({"mamba_n_heads":7})", R"({"mamba_n_groups":3})",
                          R"({"mamba_d_conv":1})", R"({"mamba_d_conv":9})", R"({"mamba_expand":0})",
                          R"({"mamba_d_head":31})", R"({"mamba_d_state":100000})",
                          R"({"num_experts_per_tok":7})", R"({"num_local_experts":5000})",
                          R"({"residual_multiplier":-1})", R"({"logits_scaling":0})"}) {
    EXPECT_FALSE(With("tiny-granitemoehybrid", bad).ok()) << bad;
  }
  EXPECT_THAT(Error(With("tiny-granitemoehybrid", R"({"num_local_experts":4096,
      "num_hidden_layers":1024,"layer_types":null})")),
              HasSubstr("experts"));
  EXPECT_FALSE(With("tiny-jamba", R"({"attn_layer_offset":4})").ok());
  EXPECT_FALSE(With("tiny-jamba", R"({"expert_layer_period":0})").ok());
}

TEST(Config, CanonicalTextSeesWhatComputes) {
  const std::string base = CanonicalText(*With("tiny-granitemoehybrid", "{}"));
  for (const char* change :
       {R"({"rms_norm_eps":1e-5})", R"({"residual_multiplier":0.41})",
        R"({"attention_multiplier":0.21})", R"({"logits_scaling":3})",
        R"({"embedding_multiplier":11})", R"({"num_experts_per_tok":2})",
        R"({"position_embedding_type":"rope"})", R"({"time_step_limit":[0,1]})",
        R"({"layer_types":["attention","mamba","mamba","attention"]})"}) {
    EXPECT_NE(CanonicalText(*With("tiny-granitemoehybrid", change)), base) << change;
  }
  // The context bound and the ids that end a text change no computed bit.
  EXPECT_EQ(CanonicalText(*With("tiny-granitemoehybrid", R"({"eos_token_id":5})")), base);
}

TEST(ModelLayoutTest, PartsFollowTheConfig) {
  const auto granite = With("tiny-granitemoehybrid", "{}");
  const auto layout = BuildLayout(*granite, Sha256());
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->StatePartCount(), 4u);
  EXPECT_EQ(layout->PartName(3), "l2.ssm");
  EXPECT_EQ(layout->parts()[0].shape, (std::vector<int64_t>{3, 256 + 2 * 32}));
  EXPECT_EQ(layout->parts()[1].shape, (std::vector<int64_t>{4, 32, 64}));
  ASSERT_EQ(layout->groups().size(), 1u);
  EXPECT_EQ(layout->groups()[0].layers, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(layout->kv_bytes_per_token(), 2u * 2 * 1 * 32 * 4);

  const auto jamba = BuildLayout(*With("tiny-jamba", "{}"), Sha256());
  EXPECT_EQ(jamba->parts()[1].shape, (std::vector<int64_t>{16, 256}));
  EXPECT_EQ(jamba->parts()[1].axes, "N,I");
  const auto llama = BuildLayout(*With("tiny-llama", "{}"), Sha256());
  EXPECT_FALSE(llama->has_state());
  EXPECT_EQ(llama->slot_bytes(), 0u);
}

// The published geometries give the published sizes (conv in f32 here: twice the bf16 bytes).
TEST(ModelLayoutTest, PublishedSizes) {
  const auto tiny = BuildLayout(*With("granite-1b", "{}"), Sha256());
  EXPECT_EQ(tiny->state_payload_bytes(), 2u * 718848 + 56623104);
  EXPECT_EQ(tiny->kv_bytes_per_token(), 2u * 8192);
}

}  // namespace
}  // namespace baton::model
