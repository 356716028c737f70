// What qwen3_next, qwen3_5, qwen3_5_moe and olmo_hybrid read from a config.json, the memory they
// ask for, the names they find tensors under, and what they refuse.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/check.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/model.h"
#include "model/model_layout.h"
#include "model/safetensors.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

std::string Text(const StatusOr<ModelConfig>& config) {
  return config.ok() ? CanonicalText(*config) : std::string(config.status().message());
}

// Layers and bytes of the published shapes are check_test's.
TEST(PublishedQwen, RotatesAQuarterOfAHead) {
  for (const char* name : {"qwen3-next-80b-a3b", "qwen3.5-27b", "qwen3.5-35b-a3b",
                           "qwen3.5-122b-a10b", "qwen3.5-397b-a17b"}) {
    const std::string path = BATON_SOURCE_DIR "/test/configs/" + std::string(name) + ".json";
    const auto text = ReadFileBytes(path, 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    Json json = *ParseJsonLenient(*text);
    json.emplace("vocab_size", 151936);  // some of the files hold the geometry only
    const auto config = ParseConfig(json);
    ASSERT_TRUE(config.ok()) << name << ": " << config.status();
    EXPECT_EQ(config->attention->rope->dims, 64) << name;
    EXPECT_EQ(config->attention->rope->theta, 1e7) << name;
  }
}

TEST(Qwen, DefaultsAreTheLibrarysOwn) {
  const auto next = ParseConfig(
      *ParseJsonLenient(R"({"model_type":"qwen3_next","vocab_size":10,"hidden_size":2048})"));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->layers.size(), 48u);
  EXPECT_EQ(next->layers[3].mixer, Mixer::kAttention);
  EXPECT_EQ(next->CountMixers(Mixer::kAttention), 12);
  EXPECT_EQ(next->moe->experts, 512);
  EXPECT_EQ(next->moe->top_k, 10);
  EXPECT_TRUE(next->moe->renormalise);
  EXPECT_TRUE(next->moe->shared_gate);
  EXPECT_EQ(next->attention->head_dim, 256);
  EXPECT_EQ(next->gated_delta->value_heads, 32);
  EXPECT_FALSE(next->mlp.has_value());

  const auto olmo = ParseConfig(
      *ParseJsonLenient(R"({"model_type":"olmo_hybrid","vocab_size":10,"hidden_size":3840})"));
  ASSERT_TRUE(olmo.ok()) << olmo.status();
  EXPECT_EQ(olmo->CountMixers(Mixer::kAttention), 8);
  EXPECT_EQ(olmo->attention->heads, 30);
  EXPECT_EQ(olmo->gated_delta->key_dim, 96);
  EXPECT_EQ(olmo->gated_delta->value_dim, 192);
  EXPECT_EQ(olmo->gated_delta->beta_scale, 2);
  EXPECT_EQ(olmo->gated_delta->norm_eps, 1e-5f);
  EXPECT_FALSE(olmo->attention->rope.has_value());
}

TEST(Qwen, OldAndNewSpellingsMeanTheSame) {
  const std::string next = Text(With("tiny-qwen3_next", "{}"));
  for (const char* same :
       {R"({"full_attention_interval":null,"layer_types":["linear_attention","full_attention",
            "linear_attention","full_attention"]})",
        R"({"rope_theta":null,"partial_rotary_factor":null,"rope_parameters":{"rope_type":"default",
            "rope_theta":10000000,"partial_rotary_factor":0.25}})",
        R"({"rope_scaling":null,"decoder_sparse_step":1})", R"({"norm_topk_prob":true})"})
    EXPECT_EQ(Text(With("tiny-qwen3_next", same)), next) << same;
  for (const char* other :
       {R"({"norm_topk_prob":false})", R"({"decoder_sparse_step":2})", R"({"mlp_only_layers":[]})",
        R"({"partial_rotary_factor":0.5})", R"({"full_attention_interval":4})",
        R"({"rms_norm_eps":1e-5})", R"({"linear_num_value_heads":2})", R"({"num_experts":0})"})
    EXPECT_NE(Text(With("tiny-qwen3_next", other)), next) << other;
  const std::string olmo = Text(With("tiny-olmo_hybrid", "{}"));
  EXPECT_EQ(Text(With("tiny-olmo_hybrid", R"({"rope_parameters":null})")), olmo);
  EXPECT_NE(Text(With("tiny-olmo_hybrid", R"({"linear_allow_neg_eigval":false})")), olmo);
  EXPECT_EQ(
      With("tiny-olmo_hybrid", R"({"rope_parameters":{"rope_theta":5e5}})")->attention->rope->dims,
      32);
}

TEST(Qwen, TextPartMayStandAlone) {
  Json whole = *PresetConfig("tiny-qwen3_5_moe");
  const auto beside = ParseConfig(whole);
  Json alone = whole["text_config"];
  const auto text = ParseConfig(alone);
  ASSERT_TRUE(beside.ok() && text.ok()) << beside.status() << text.status();
  EXPECT_EQ(beside->moe->experts, text->moe->experts);
  EXPECT_EQ(beside->layers.size(), text->layers.size());
  // What is said of the model as a whole is not lost.
  whole["tie_word_embeddings"] = true;
  whole["quantization_config"] = {{"quant_method", "awq"}};
  EXPECT_THAT(std::string(ParseConfig(whole).status().message()), HasSubstr("\"awq\""));
  whole.erase("quantization_config");
  EXPECT_TRUE(ParseConfig(whole)->tie_word_embeddings);
  whole["text_config"] = 3;
  EXPECT_FALSE(ParseConfig(whole).ok());
}

TEST(Qwen, RefusesByName) {
  const auto next = [](const char* changes) { return Text(With("tiny-qwen3_next", changes)); };
  EXPECT_THAT(next(R"({"attn_output_gate":false})"), HasSubstr("attn_output_gate"));
  EXPECT_THAT(next(R"({"attention_bias":true})"), HasSubstr("attention_bias"));
  EXPECT_THAT(next(R"({"use_sliding_window":true})"), HasSubstr("use_sliding_window"));
  EXPECT_THAT(next(R"({"hidden_act":"gelu"})"), HasSubstr("gelu"));
  EXPECT_THAT(next(R"({"linear_num_value_heads":3})"), HasSubstr("linear_num_value_heads"));
  EXPECT_THAT(next(R"({"partial_rotary_factor":1.5})"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(next(R"({"rope_scaling":{"type":"yarn","factor":4}})"), HasSubstr("yarn"));
  EXPECT_THAT(next(R"({"mlp_only_layers":[9]})"), HasSubstr("layer 9"));
  EXPECT_THAT(next(R"({"num_experts_per_tok":11})"), HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(next(R"({"layer_types":["kda","full_attention","kda","kda"]})"), HasSubstr("kda"));
  EXPECT_THAT(next(R"({"layer_types":["full_attention"]})"), HasSubstr("lists 1 layers"));
  EXPECT_THAT(next(R"({"linear_num_key_heads":4096,"linear_num_value_heads":4096,
                       "linear_key_head_dim":4096})"),
              HasSubstr("wide"));
  // A head of narrow state may be 256 wide.
  const auto wide = [](const char* changes) {
    return BuildLayout(*With("tiny-qwen3_5", changes), Sha256(), kernel::StateDType::kBF16);
  };
  EXPECT_TRUE(wide(R"({"linear_value_head_dim":256})").ok());
  const auto narrow = wide(R"({"linear_value_head_dim":272})");
  EXPECT_THAT(std::string(narrow.status().message()),
              HasSubstr("recurrent heads are 272 wide, at most 256 are supported; use "
                        "--state-dtype f32"));
}

// ---- names ----

std::vector<float> Logits(const std::string& dir) {
  const auto model = Model::Load(dir, {});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const std::vector<TokenId> tokens = {5, 9, 80, 31, 7, 7, 2};
  std::vector<float> logits(tokens.size() * (*model)->vocab_size());
  SequenceMemory memory((*model)->layout(), 16);
  Workspace workspace;
  const BatchItem item = memory.Extend(tokens, LogitsMode::kAll, logits.data());
  EXPECT_TRUE((*model)->Forward(std::span(&item, 1), &workspace, nullptr).ok());
  return logits;
}

// The recorded checkpoint of a type, changed, gives the logits of the unchanged one.
void ExpectSameModel(const char* type,
                     const std::function<void(Tensors*)>& change,
                     const std::function<void(Json*)>& change_config = nullptr) {
  const std::string from = BATON_SOURCE_DIR "/test/golden/short/" + std::string(type);
  TempDir dir;
  Json config = *ReadJsonFile(from + "/config.json");
  if (change_config != nullptr) change_config(&config);
  dir.Write("config.json", config.dump());
  Tensors tensors = ReadAll(from + "/model.safetensors");
  change(&tensors);
  WriteAll(dir.file("model.safetensors"), tensors);
  const CheckReport report = CheckModel(dir.path());
  EXPECT_TRUE(report.servable()) << FormatCheck(report);
  EXPECT_EQ(Logits(dir.path()), Logits(from)) << type;
}

void Rename(Tensors* tensors, const std::string& part, const std::string& other) {
  Tensors renamed;
  for (auto& [name, t] : *tensors) {
    std::string to = name;
    if (const size_t at = to.find(part); at != std::string::npos)
      to.replace(at, part.size(), other);
    renamed[to] = std::move(t);
  }
  *tensors = std::move(renamed);
}

TEST(Qwen, FoundBesideAVisionModel) {
  for (const char* type : {"qwen3_5", "qwen3_5_moe"}) {
    ExpectSameModel(
        type,
        [](Tensors* tensors) {
          Rename(tensors, "model.", "model.language_model.");
          const Stored any = tensors->begin()->second;
          for (const char* name : {"mtp.fc.weight", "model.visual.patch_embed.proj.weight"})
            (*tensors)[name] = any;
        },
        [type](Json* config) {
          Json whole = {{"model_type", type}, {"vision_config", {{"depth", 2}}}};
          whole["text_config"] = *config;
          *config = whole;
        });
  }
}

// One tensor per expert and matrix.
void SplitExperts(Tensors* tensors) {
  Tensors apart;
  for (auto& [name, t] : *tensors) {
    const bool in = absl::EndsWith(name, "experts.gate_up_proj");
    if (!in && !absl::EndsWith(name, "experts.down_proj")) {
      apart[name] = std::move(t);
      continue;
    }
    const std::string prefix = name.substr(0, name.rfind('.') + 1);
    const int64_t rows = t.shape[1] / (in ? 2 : 1), cols = t.shape[2];
    const size_t bytes = static_cast<size_t>(rows * cols) * 4;
    size_t at = 0;
    for (int64_t e = 0; e < t.shape[0]; ++e)
      for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
        if (in == (matrix == std::string("down_proj"))) continue;
        apart[absl::StrCat(prefix, e, ".", matrix, ".weight")] = {
            t.dtype, {rows, cols}, {t.bytes.begin() + at, t.bytes.begin() + at + bytes}};
        at += bytes;
      }
  }
  *tensors = std::move(apart);
}

void FuseExperts(Tensors* tensors, int64_t experts) {
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".mlp.experts.");
    Stored in, out;
    for (int64_t e = 0; e < experts; ++e)
      for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name = absl::StrCat(prefix, e, ".", matrix, ".weight");
        const Stored& t = tensors->at(name);
        const bool down = matrix == std::string("down_proj");
        Stored& to = down ? out : in;
        to.dtype = t.dtype;
        to.shape = {experts, t.shape[0] * (down ? 1 : 2), t.shape[1]};
        to.bytes.insert(to.bytes.end(), t.bytes.begin(), t.bytes.end());
        tensors->erase(name);
      }
    (*tensors)[prefix + "gate_up_proj"] = in;
    (*tensors)[prefix + "down_proj"] = out;
  }
}

TEST(Qwen, ExpertsBindFusedAndApart) {
  ExpectSameModel("qwen3_5_moe", SplitExperts);
  ExpectSameModel("qwen3_next", [](Tensors* tensors) { FuseExperts(tensors, 8); });
}

TEST(OlmoHybrid, FoundUnderItsPublishedNames) {
  ExpectSameModel("olmo_hybrid", [](Tensors* tensors) {
    for (int layer = 0; layer < 3; ++layer) {
      const std::string prefix = absl::StrCat("layers.", layer, ".");
      Rename(tensors, prefix + "input_layernorm", prefix + "attention_layer_norm");
      Rename(tensors, prefix + "post_attention_layernorm", prefix + "feedforward_layer_norm");
    }
  });
}

TEST(Qwen, ShardsAndWholeFilesAreOneModel) {
  for (const char* preset :
       {"tiny-qwen3_next", "tiny-qwen3_5", "tiny-qwen3_5_moe", "tiny-olmo_hybrid"}) {
    TempDir whole, shards;
    ASSERT_TRUE(GenerateCheckpoint(*PresetConfig(preset), {}, whole.path(), nullptr).ok());
    GenerateOptions options;
    options.shard_bytes_max = 200000;
    const auto report = GenerateCheckpoint(*PresetConfig(preset), options, shards.path(), nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->files, 3) << preset;
    EXPECT_EQ(Logits(whole.path()), Logits(shards.path())) << preset;
  }
}

}  // namespace
}  // namespace baton::model
