// What a request may ask of sampling and scoring, through the real API: one process, and router,
// prefill and decode apart, must answer alike to the byte. The demo model serves both.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster.h"
#include "cli/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

std::string DemoDir() { return std::string(BATON_SOURCE_DIR) + "/models/demo"; }

constexpr char kTemplate[] =
    R"({%- for tool in tools or [] %}[tool {{ tool | tojson }}]{% endfor -%}
{%- for d in documents or [] %}[doc {{ d.text }}]{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'wizard' %}{{ raise_exception('no wizards') }}{% endif -%}
<|im_start|>{{ m.role }}
{% if thinking is defined %}({{ thinking }}){% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}[call {{ c.function.name }} {{ c.function.arguments.city }}]{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%})";

// One process with both roles, and three with one each.
class TextApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string chat = ::testing::TempDir() + "/text_api_template.jinja";
    std::ofstream(chat) << kTemplate;
    const auto port = cli::FreePort();
    ASSERT_TRUE(port.ok()) << port.status();
    auto one = cli::ChildProcess::Start(BATON_BINARY,
                                        {"serve", DemoDir(), "--host", "127.0.0.1", "--port",
                                         std::to_string(*port), "--chat-template", chat},
                                        ::testing::TempDir() + "/text_api_one.log");
    ASSERT_TRUE(one.ok()) << one.status();
    one_ = std::move(*one).release();
    one_url_ = "http://127.0.0.1:" + std::to_string(*port);
    cli::ClusterOptions options;
    options.binary = BATON_BINARY;
    options.model_dir = DemoDir();
    options.port = 0;
    options.log_dir = ::testing::TempDir();
    options.router_flags = {"--chat-template", chat};
    cli::BlockingHttp http;
    auto apart = cli::Cluster::Start(options, &http);
    ASSERT_TRUE(apart.ok()) << apart.status();
    apart_ = std::move(*apart).release();
    for (int i = 0; i < 3000; ++i) {
      const auto health = http.Get(one_url_ + "/health");
      if (health.ok() && health->status == 200) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "the single process did not become ready";
  }
  static void TearDownTestSuite() {
    delete apart_;
    delete one_;
  }

  static StatusOr<cli::HttpAnswer> Post(const std::string& url, const Json& body) {
    cli::BlockingHttp http;
    return http.Post(url, body.dump());
  }

  // The answer that both gave, without what names the request.
  static Json Both(const std::string& path, const Json& body, int status = 200) {
    Json answers[2];
    const std::string urls[2] = {one_url_, apart_->url()};
    for (int i = 0; i < 2; ++i) {
      const auto answer = Post(urls[i] + path, body);
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (!answer.ok()) return Json();
      EXPECT_EQ(answer->status, status) << answer->body;
      answers[i] = Json::parse(answer->body);
      for (const char* key : {"id", "created", "model"}) answers[i].erase(key);
      if (answers[i].contains("usage")) answers[i]["usage"].erase("prompt_tokens_details");
    }
    EXPECT_EQ(answers[0], answers[1]);
    return answers[0];
  }
  static Json Complete(Json body) {
    body.emplace("prompt", kPrompt);
    body.emplace("temperature", 0);
    body.emplace("max_tokens", 12);
    return Both("/v1/completions", body);
  }
  static std::vector<TokenId> Ids(const Json& answer) {
    return answer["choices"][0]["token_ids"].get<std::vector<TokenId>>();
  }

  static constexpr char kPrompt[] =
      "In the beginning God created the heaven and the earth. And the earth was without form, and";
  static inline cli::ChildProcess* one_ = nullptr;
  static inline cli::Cluster* apart_ = nullptr;
  static inline std::string one_url_;
};

TEST_F(TextApi, LogitBiasForcesAndForbids) {
  const auto plain = Ids(Complete({{"return_token_ids", true}}));
  ASSERT_FALSE(plain.empty());
  const std::string first = std::to_string(plain[0]);
  const auto without = Ids(Complete({{"return_token_ids", true}, {"logit_bias", {{first, -100}}}}));
  EXPECT_EQ(std::count(without.begin(), without.end(), plain[0]), 0);
  const auto only = Ids(Complete({{"return_token_ids", true}, {"logit_bias", {{"77", 100}}}}));
  EXPECT_EQ(only, std::vector<TokenId>(12, 77));
}

TEST_F(TextApi, PenaltiesCountTheOutputAlone) {
  // Two tokens share all the weight; each time one is said the other gains by two.
  const Json forced = {{"return_token_ids", true}, {"logit_bias", {{"77", 100}, {"78", 100}}}};
  const auto plain = Ids(Complete(forced));
  Json frequency = forced;
  frequency["frequency_penalty"] = 2;
  frequency["max_tokens"] = 40;
  const auto each = Ids(Complete(frequency));
  EXPECT_GT(std::count(each.begin(), each.end(), 77u), 0);
  EXPECT_GT(std::count(each.begin(), each.end(), 78u), 0);
  EXPECT_FALSE(std::equal(plain.begin(), plain.end(), each.begin()));
  Json presence = forced;
  presence["presence_penalty"] = 2;
  presence["repetition_penalty"] = 1.3;
  EXPECT_EQ(Ids(Complete(presence)).size(), 12u);
}

TEST_F(TextApi, StopStringsMinTokensAndIgnoreEos) {
  const Json free = Complete({{"ignore_eos", true}, {"max_tokens", 24}});
  const std::string text = free["choices"][0]["text"];
  ASSERT_GT(text.size(), 8u);
  const std::string stop = text.substr(3, 4);  // lies across token borders
  const Json stopped = Complete({{"ignore_eos", true}, {"max_tokens", 24}, {"stop", stop}});
  EXPECT_EQ(stopped["choices"][0]["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], stop);
  const Json with = Complete({{"ignore_eos", true},
                              {"max_tokens", 24},
                              {"stop", stop},
                              {"include_stop_str_in_output", true}});
  EXPECT_EQ(with["choices"][0]["text"], text.substr(0, text.find(stop) + stop.size()));
  // The end of text comes at once if it is all that counts, and not before min_tokens.
  const Json ended = Complete({{"logit_bias", {{"2", 100}}}, {"return_token_ids", true}});
  EXPECT_EQ(ended["choices"][0]["text"], "");
  EXPECT_EQ(ended["usage"]["completion_tokens"], 0);
  const Json later =
      Complete({{"logit_bias", {{"2", 100}}}, {"return_token_ids", true}, {"min_tokens", 5}});
  EXPECT_EQ(Ids(later).size(), 5u);
  const Json never =
      Complete({{"logit_bias", {{"2", 100}}}, {"return_token_ids", true}, {"ignore_eos", true}});
  EXPECT_EQ(Ids(never), std::vector<TokenId>(12, 2));
}

// The prompt's scores, checked against the same tokens forced one by one through decoding.
TEST_F(TextApi, PromptLogprobsEqualThoseOfDecoding) {
  const Json answer = Complete(
      {{"prompt_logprobs", 3}, {"logprobs", 2}, {"echo", true}, {"return_token_ids", true}});
  const auto prompt = answer["choices"][0]["prompt_token_ids"].get<std::vector<TokenId>>();
  ASSERT_GT(prompt.size(), 17u);  // more than a chunk, and a bundle to hand over
  const Json& scores = answer["choices"][0]["prompt_logprobs"];
  const Json& lists = answer["choices"][0]["logprobs"];
  ASSERT_EQ(scores.size(), prompt.size());
  EXPECT_TRUE(scores[0].is_null());
  ASSERT_EQ(lists["tokens"].size(), prompt.size() + Ids(answer).size());
  EXPECT_TRUE(lists["token_logprobs"][0].is_null());
  EXPECT_EQ(answer["choices"][0]["text"].get<std::string>().find(kPrompt), 0u);

  auto model = LoadModel(DemoDir());
  Deployment d(model, {});
  engine::GenerateRequest request;
  request.prompt = {prompt[0]};
  request.sampling.temperature = 0;
  request.sampling.logprobs = 3;
  request.sampling.forced_tokens.assign(prompt.begin() + 1, prompt.end());
  request.sampling.max_tokens = static_cast<int64_t>(prompt.size()) - 1;
  auto sink = d.Start(request);
  sink->Wait();
  const auto events = sink->events();
  ASSERT_EQ(events.size(), prompt.size() - 1);
  for (size_t i = 1; i < prompt.size(); ++i) {
    const engine::TokenEvent& event = events[i - 1];
    const Json& own = scores[i][std::to_string(prompt[i])];
    EXPECT_EQ(own["logprob"].get<float>(), event.logprob) << i;
    EXPECT_EQ(lists["token_logprobs"][i].get<float>(), event.logprob) << i;
    for (size_t j = 0; j < event.top.size(); ++j) {
      const Json& top = scores[i][std::to_string(event.top[j].first)];
      EXPECT_EQ(top["logprob"].get<float>(), event.top[j].second);
      EXPECT_EQ(top["rank"], static_cast<int>(j) + 1);
    }
  }
  // Neither what a cache holds nor the number of choices changes an answer.
  const Json again = Complete(
      {{"prompt_logprobs", 3}, {"logprobs", 2}, {"echo", true}, {"return_token_ids", true}});
  EXPECT_EQ(again, answer);
  const Json two = Complete({{"prompt_logprobs", 3}, {"n", 2}, {"seed", 1}});
  EXPECT_EQ(two["choices"][1]["prompt_logprobs"], two["choices"][0]["prompt_logprobs"]);
  EXPECT_EQ(two["choices"][0]["prompt_logprobs"], scores);
}

Json Chat(Json messages) {
  return {{"messages", std::move(messages)}, {"temperature", 0}, {"max_tokens", 4},
          {"return_token_ids", true},        {"logprobs", true}, {"top_logprobs", 2}};
}

TEST_F(TextApi, ToolsDocumentsAndKwargsReachTheTemplate) {
  Json body = Chat({{{"role", "user"}, {"content", "weather?"}},
                    {{"role", "assistant"},
                     {"tool_calls",
                      {{{"type", "function"},
                        {"function", {{"name", "f"}, {"arguments", "{\"city\": \"Bonn\"}"}}}}}}},
                    {{"role", "tool"}, {"content", "rain"}}});
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  body["documents"] = {{{"text", "a page"}}};
  body["chat_template_kwargs"] = {{"thinking", 7}};
  body["prompt_logprobs"] = 0;
  const Json answer = Both("/v1/chat/completions", body);
  const Json told = Both("/detokenize", {{"tokens", answer["prompt_token_ids"]}});
  EXPECT_EQ(told["prompt"],
            "[tool {\"function\": {\"name\": \"f\"}, \"type\": \"function\"}][doc a page]"
            "<|im_start|>user\n(7)weather?<|im_end|>\n"
            "<|im_start|>assistant\n(7)[call f Bonn]<|im_end|>\n"
            "<|im_start|>tool\n(7)rain<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(answer["prompt_logprobs"].size(), answer["prompt_token_ids"].size());
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
}

TEST_F(TextApi, ATemplatesObjectionIs400WithLineAndReason) {
  const Json answer =
      Both("/v1/chat/completions", Chat({{{"role", "wizard"}, {"content", "x"}}}), 400);
  const std::string message = answer["error"]["message"];
  EXPECT_THAT(message, HasSubstr("line 4"));
  EXPECT_THAT(message, HasSubstr("no wizards"));
  const Json format = Both("/v1/chat/completions",
                           {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                            {"response_format", {{"type", "json_object"}}}},
                           400);
  EXPECT_EQ(format["error"]["param"], "response_format");
}

// generation_config.json of the demo model: temperature 0.3, top_p 0.95, ends at 2 and 0.
TEST_F(TextApi, DefaultsAreTheModels) {
  const Json body = {{"prompt", kPrompt}, {"seed", 11}, {"max_tokens", 12}, {"logprobs", 0}};
  Json spelled = body;
  spelled["temperature"] = 0.3;
  spelled["top_p"] = 0.95;
  EXPECT_EQ(Both("/v1/completions", body), Both("/v1/completions", spelled));
}

}  // namespace
}  // namespace baton::testing
