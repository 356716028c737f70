// What is read from a model directory besides weights: generation defaults and the chat template.
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "text/chat_template.h"
#include "text/generation_config.h"

namespace baton {
namespace {

class ModelDir : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/baton_model_dir_test";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
  }
  std::unique_ptr<Tokenizer> TestTokenizer() {
    return *Tokenizer::FromFile(std::string(BATON_SOURCE_DIR) +
                                "/src/text/testdata/byte_level.json");
  }
  std::string dir_;
};

TEST_F(ModelDir, EosIsTheUnionOfAllSources) {
  Write("generation_config.json", R"({"eos_token_id": [9, 5], "bos_token_id": 4,
      "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
      "repetition_penalty": 1.1, "max_new_tokens": 77})");
  Write("config.json", R"({"time_step_limit": [0.0, Infinity], "eos_token_id": 7,
      "bos_token_id": 1, "text_config": {"eos_token_id": 5, "pad_token_id": 3}})");
  Write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}})");
  const auto tokenizer = TestTokenizer();
  const auto got = ReadGenerationDefaults(dir_, tokenizer.get());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->eos_token_ids, (std::vector<TokenId>{2, 5, 7, 9}));
  EXPECT_EQ(got->bos_token_id, 4u);
  EXPECT_EQ(got->pad_token_id, 3u);
  EXPECT_EQ(got->temperature, 0.6);
  EXPECT_EQ(got->top_k, 20);
  EXPECT_EQ(got->top_p, 0.95);
  EXPECT_EQ(got->min_p, 0.05);
  EXPECT_EQ(got->repetition_penalty, 1.1);
  EXPECT_EQ(got->max_new_tokens, 77);
  EXPECT_EQ(ReadGenerationDefaults(dir_, nullptr)->eos_token_ids, (std::vector<TokenId>{5, 7, 9}));
}

TEST_F(ModelDir, AbsentFilesAndNullsGiveNothing) {
  EXPECT_TRUE(ReadGenerationDefaults(dir_, nullptr)->eos_token_ids.empty());
  Write("generation_config.json", R"({"eos_token_id": null, "temperature": null})");
  const auto got = ReadGenerationDefaults(dir_, nullptr);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(got->temperature.has_value());
}

TEST_F(ModelDir, WrongValuesAreRefusedByFileAndKey) {
  for (const char* bad :
       {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, -2]})", R"({"eos_token_id": 1.5})",
        R"({"temperature": "hot"})", R"({"top_p": 1.5})", R"({"top_k": 2.5})",
        R"({"repetition_penalty": 0})", R"({"max_new_tokens": 0})", "[]"}) {
    Write("generation_config.json", bad);
    const auto got = ReadGenerationDefaults(dir_, nullptr);
    ASSERT_FALSE(got.ok()) << bad;
    EXPECT_NE(got.status().message().find("generation_config.json"), std::string::npos);
  }
  Write("generation_config.json", "{}");
  Write("tokenizer_config.json", R"({"eos_token": "not a token"})");
  const auto tokenizer = TestTokenizer();
  EXPECT_FALSE(ReadGenerationDefaults(dir_, tokenizer.get()).ok());
}

TEST_F(ModelDir, ChatTemplateFileWinsOverTheConfig) {
  EXPECT_TRUE(absl::IsNotFound(ChatTemplate::FromModelDir(dir_).status()));
  Write("tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}{{ eos_token }}",
      "bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null})");
  const auto render = [&] {
    const auto chat = ChatTemplate::FromModelDir(dir_);
    return chat.ok() ? *chat->Render(OrderedJson::array(), {})
                     : std::string(chat.status().message());
  };
  EXPECT_EQ(render(), "config <s></s>");
  Write("chat_template.jinja", "file {{ bos_token }}{{ pad_token is defined }}");
  EXPECT_EQ(render(), "file <s>False");
  Write("chat_template.jinja", "{% if %}");
  EXPECT_NE(render().find("template line 1"), std::string::npos) << render();
}

TEST_F(ModelDir, OfNamedTemplatesTheDefaultIsUsedAndThatForToolsWithTools) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}]})");
  const auto chat = ChatTemplate::FromModelDir(dir_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  RenderOptions options;
  EXPECT_EQ(*chat->Render(OrderedJson::array(), options), "plain");
  options.tools = OrderedJson::array();
  EXPECT_EQ(*chat->Render(OrderedJson::array(), options), "plain");
  options.tools.push_back({{"type", "function"}});
  EXPECT_EQ(*chat->Render(OrderedJson::array(), options), "tools");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{% if %}"}]})");
  const Status bad_tools = ChatTemplate::FromModelDir(dir_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(bad_tools)) << bad_tools;
  EXPECT_NE(bad_tools.message().find("tool_use"), std::string::npos) << bad_tools;
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_TRUE(absl::IsNotFound(ChatTemplate::FromModelDir(dir_).status()));
  for (const char* bad : {R"({"chat_template": 5})", R"({"chat_template": [5]})",
                          R"({"chat_template": "x", "bos_token": 5})", "[]", "{"}) {
    Write("tokenizer_config.json", bad);
    EXPECT_TRUE(absl::IsInvalidArgument(ChatTemplate::FromModelDir(dir_).status())) << bad;
  }
}

}  // namespace
}  // namespace baton
