// Everything a client can do wrong, over real sockets: each gives a clear, OpenAI-shaped error.
#include "server/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "server/test_server.h"

namespace baton::server {
namespace {

using ::testing::HasSubstr;

void ExpectError(const TestResponse& response,
                 int status,
                 const Json& param,
                 const std::vector<std::string>& parts) {
  EXPECT_EQ(response.status, status) << response.body;
  const Json error = response.json().value("error", Json::object());
  ASSERT_TRUE(error.contains("message") && error.contains("type") && error.contains("code"))
      << response.body;
  EXPECT_EQ(error["param"], param) << response.body;
  for (const std::string& part : parts) {
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  }
}

struct Bad {
  Json field;  // one pair, merged into a good request
  std::string param;
  std::vector<std::string> parts;
};

TEST(BadParameters, CompletionsNameFieldValueAndRange) {
  TestServer server;
  const Bad cases[] = {
      {{{"temperature", -1}}, "temperature", {"[0, 100]", "-1"}},
      {{{"temperature", "hot"}}, "temperature", {"number", "\"hot\""}},
      {{{"top_p", 0}}, "top_p", {"(0, 1]", "got 0"}},
      {{{"top_p", 1.5}}, "top_p", {"(0, 1]", "1.5"}},
      {{{"top_k", -2}}, "top_k", {"[-1,", "-2"}},
      {{{"top_k", 1.5}}, "top_k", {"integer", "1.5"}},
      {{{"min_p", 2}}, "min_p", {"[0, 1]", "2"}},
      {{{"repetition_penalty", 0}}, "repetition_penalty", {"(0, 100]"}},
      {{{"n", 1000}}, "n", {"[1, 128]", "1000"}},
      {{{"n", 0}}, "n", {"[1, 128]"}},
      {{{"n", nullptr}, {"stream", "yes"}}, "stream", {"true or false", "\"yes\""}},
      {{{"max_tokens", 0}}, "max_tokens", {"[1, 4096]", "got 0"}},
      {{{"max_tokens", -5}}, "max_tokens", {"-5"}},
      {{{"max_tokens", 4096}}, "max_tokens", {"[1, 4090]", "4096", "context"}},
      {{{"max_tokens", 1e300}}, "max_tokens", {"integer"}},
      {{{"max_tokens", 5}, {"min_tokens", 6}}, "min_tokens", {"max_tokens = 5", "6"}},
      {{{"min_tokens", 17}}, "min_tokens", {"max_tokens = 16"}},
      {{{"logprobs", 21}}, "logprobs", {"[0, 20]", "21"}},
      {{{"logprobs", true}}, "logprobs", {"integer", "true"}},
      {{{"seed", "x"}}, "seed", {"integer"}},
      {{{"seed", 18446744073709551615ull}}, "seed", {"integer"}},
      {{{"stop", 5}}, "stop", {"string", "5"}},
      {{{"stop", {"a", ""}}}, "stop", {"non-empty"}},
      {{{"stop", Json(std::vector<std::string>(17, "a"))}}, "stop", {"at most 16"}},
      {{{"stop_token_ids", {260}}}, "stop_token_ids", {"[0, 259]", "260"}},
      {{{"stop_token_ids", {-1}}}, "stop_token_ids", {"[0, 259]", "-1"}},
      {{{"prompt", nullptr}}, "prompt", {"nothing"}},
      {{{"prompt", 5}}, "prompt", {"got 5"}},
      {{{"prompt", Json::array()}}, "prompt", {"got []"}},
      {{{"prompt", {1, "a"}}}, "prompt", {"prompt[1]", "token id"}},
      {{{"prompt", {"a", 1}}}, "prompt", {"element 1"}},
      {{{"prompt", {1, 260}}}, "prompt", {"[0, 259]", "260"}},
      {{{"prompt", {Json::array({1}), Json::array()}}}, "prompt", {"no token"}},
      {{{"prompt", std::string(5000, 'a')}}, "prompt", {"4096", "5001", "shorten"}},
      {{{"prompt", Json(std::vector<std::string>(129, "a"))}}, "prompt", {"at most 128", "129"}},
      {{{"prompt", Json(std::vector<std::string>(100, "a"))}, {"n", 2}}, "n", {"at most 128"}},
      {{{"stream_options", {{"include_usage", true}}}}, "stream_options", {"stream: true"}},
      {{{"echo", true}, {"logprobs", 1}, {"stream", true}}, "echo", {"logprobs", "stream: false"}},
      {{{"cache_salt", 5}}, "cache_salt", {"string"}},
      {{{"tools", {{{"type", "function"}}}}}, "tools", {"not supported", "chat/completions"}},
      {{{"documents", {{{"text", "x"}}}}}, "documents", {"not supported", "chat/completions"}},
      {{{"response_format", {{"type", "json_schema"}}}}, "response_format", {"not constrained"}},
      {{{"response_format", {{"type", "json_object"}}}}, "response_format", {"\"text\""}},
      {{{"logit_bias", {{"260", 1}}}}, "logit_bias", {"[0, 259]", "260"}},
      {{{"logit_bias", {{"5x", 1}}}}, "logit_bias", {"[0, 259]", "5x"}},
      {{{"logit_bias", {{"5", 101}}}}, "logit_bias", {"[-100, 100]", "101"}},
      {{{"logit_bias", {{"5", "x"}}}}, "logit_bias", {"token 5", "\"x\""}},
      {{{"logit_bias", {{"5", 1}, {"05", 1}}}}, "logit_bias", {"twice"}},
      {{{"logit_bias", {5}}}, "logit_bias", {"object"}},
      {{{"presence_penalty", 2.5}}, "presence_penalty", {"[-2, 2]", "2.5"}},
      {{{"frequency_penalty", -3}}, "frequency_penalty", {"[-2, 2]", "-3"}},
      {{{"best_of", 3}}, "best_of", {"use n"}},
      {{{"suffix", "x"}}, "suffix", {"not supported"}},
      {{{"prompt_logprobs", 21}}, "prompt_logprobs", {"[0, 20]", "21"}},
      {{{"prompt_logprobs", 1}, {"stream", true}}, "prompt_logprobs", {"stream: false"}},
      {{{"messages", Json::array()}}, "messages", {"/v1/chat/completions"}},
      {{{"max_token", 5}}, "max_token", {"unknown parameter", "did you mean 'max_tokens'"}},
      {{{"frobnicate", 5}}, "frobnicate", {"unknown parameter", "remove it"}},
  };
  for (const Bad& bad : cases) {
    Json request{{"model", "fake"}, {"prompt", "hello"}};
    request.update(bad.field);
    SCOPED_TRACE(request.dump().substr(0, 200));
    ExpectError(server.Complete(request), 400, bad.param, bad.parts);
  }
  EXPECT_TRUE(server.generator->requests().empty());
}

TEST(BadParameters, NeutralValuesOfUnsupportedFieldsAreAccepted) {
  TestServer server;
  const TestResponse response = server.Complete({{"prompt", "x"},
                                                 {"presence_penalty", 0},
                                                 {"frequency_penalty", 0.0},
                                                 {"logit_bias", Json::object()},
                                                 {"best_of", 1},
                                                 {"suffix", nullptr},
                                                 {"user", "me"},
                                                 {"tools", Json::array()},
                                                 {"response_format", {{"type", "text"}}},
                                                 {"temperature", nullptr}});
  EXPECT_EQ(response.status, 200) << response.body;
}

TEST(BadParameters, ChatNamesFieldAndValue) {
  TestServer server;
  const Json user = {{{"role", "user"}, {"content", "hi"}}};
  const Bad cases[] = {
      {{{"messages", nullptr}}, "messages", {"missing"}},
      {{{"messages", Json::array()}}, "messages", {"list of 1"}},
      {{{"messages", "hi"}}, "messages", {"\"hi\""}},
      {{{"messages", {5}}}, "messages", {"messages[0]"}},
      {{{"messages", {{{"content", "x"}}}}}, "messages", {"role"}},
      {{{"messages", {{{"role", "user"}}}}}, "messages", {"messages[0].content"}},
      {{{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages", {"got 5"}},
      {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}},
       "messages",
       {"image_url", "only parts"}},
      {{{"messages", {{{"role", "wizard"}, {"content", "x"}}}}}, "messages", {"wizard"}},
      {{{"top_logprobs", 3}}, "top_logprobs", {"logprobs: true"}},
      {{{"logprobs", 3}}, "logprobs", {"true or false"}},
      {{{"chat_template_kwargs", 3}}, "chat_template_kwargs", {"object"}},
      {{{"continue_final_message", true}, {"add_generation_prompt", true}},
       "continue_final_message",
       {"add_generation_prompt: false"}},
      {{{"prompt", "x"}}, "prompt", {"chat takes messages"}},
      {{{"tools", 5}}, "tools", {"list", "5"}},
      {{{"tools", {5}}}, "tools", {"objects"}},
      {{{"tool_choice", "required"}}, "tool_choice", {"cannot be enforced", "required"}},
      {{{"documents", "x"}}, "documents", {"list"}},
      {{{"messages", {{{"role", "assistant"}, {"tool_calls", {5}}}}}},
       "messages",
       {"tool_calls[0]", "got 5"}},
      {{{"messages",
         {{{"role", "assistant"},
           {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "{x"}}}}}}}}}},
       "messages",
       {"arguments is not JSON"}},
      {{{"messages", {{{"role", "user"}, {"content", std::string(5000, 'a')}}}}},
       "messages",
       {"4096", "shorten"}},
      {{{"max_completion_tokens", 5000}}, "max_completion_tokens", {"[1, 4096]"}},
  };
  for (const Bad& bad : cases) {
    Json request{{"messages", user}};
    request.update(bad.field);
    SCOPED_TRACE(request.dump().substr(0, 200));
    ExpectError(server.Chat(request), 400, bad.param, bad.parts);
  }
}

TEST(BadBodies, InvalidJsonNamesTheByte) {
  TestServer server;
  ExpectError(server.Complete("{\"prompt\": \"x\""), 400, nullptr, {"not valid JSON", "byte"});
  ExpectError(server.Complete(""), 400, nullptr, {"not valid JSON"});
  ExpectError(server.Complete("[1]"), 400, nullptr, {"must be a JSON object"});
  ExpectError(server.Complete("{\"prompt\": \"\xFF\"}"), 400, nullptr, {"not valid JSON"});
  ExpectError(server.Complete(std::string(100000, '[')), 400, nullptr, {"nested"});
  ExpectError(server.Complete("{\"prompt\": \"x\", \"temperature\": NaN}"), 400, "temperature",
              {"finite", "NaN"});
  ExpectError(server.Complete("{\"prompt\": \"x\", \"top_p\": -Infinity}"), 400, "top_p",
              {"finite"});
  ExpectError(server.Complete("{\"prompt\": \"x\", \"temperature\": 1e999}"), 400, nullptr,
              {"not valid JSON"});
}

TEST(BadRequests, UnknownModelPathAndMethod) {
  TestServer server;
  ExpectError(server.Complete({{"model", "gpt-9"}, {"prompt", "x"}}), 404, "model",
              {"\"gpt-9\"", "served: fake"});
  ExpectError(server.Get("/v1/nonsense"), 404, nullptr, {"/v1/nonsense"});
  const TestResponse method = server.Get("/v1/completions");
  ExpectError(method, 405, nullptr, {"POST", "GET"});
  EXPECT_EQ(method.header("Allow"), "POST");
  // Workers only.
  ExpectError(server.Post("/internal/generate", Json::object()), 404, nullptr, {});
}

TEST(BadRequests, ApiKeysGuardEverythingButHealthAndMetrics) {
  TestServer::Setup setup;
  setup.options.api.api_keys = {"one", "two"};
  TestServer server(setup);
  for (const char* path : {"/v1/models", "/", "/ping", "/version", "/load", "/nonsense",
                           "/v1/completions", "/tokenize", "/internal/generate"}) {
    ExpectError(server.Get(path), 401, nullptr, {"API key"});
    EXPECT_EQ(server.Get(path, {{"Authorization", "Bearer three"}}).status, 401) << path;
    EXPECT_EQ(server.Get(path, {{"Authorization", "one"}}).status, 401) << path;
    EXPECT_NE(server.Get(path, {{"Authorization", "Bearer two"}}).status, 401) << path;
  }
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_EQ(server.Get("/metrics").status, 200);
  EXPECT_EQ(server.Get("/v1/models", {{"authorization", "bearer one"}}).status, 200);
}

TEST(Refusals, FullQueueIs429) {
  TestServer::Setup setup;
  setup.generator.running_max = 2;
  setup.generator.hold_after = 0;
  TestServer server(setup);
  // The third choice does not fit: those that started are cancelled.
  const TestResponse response = server.Complete({{"prompt", "x"}, {"n", 3}});
  ExpectError(response, 429, nullptr, {"queue full"});
  EXPECT_EQ(response.header("Retry-After"), "1");
  EXPECT_TRUE(Eventually([&] { return server.generator->cancelled() == 2; }));
}

TEST(Refusals, ServerLimitIs429) {
  TestServer::Setup setup;
  setup.options.api.choices_in_flight_max = 3;
  TestServer server(setup);
  ExpectError(server.Complete({{"prompt", "x"}, {"n", 4}}), 429, nullptr, {"at most 3"});
  EXPECT_EQ(server.Complete({{"prompt", "x"}, {"n", 3}}).status, 200);
}

TEST(Refusals, StatusOfTheGeneratorDecides) {
  const std::pair<Status, int> cases[] = {
      {absl::InvalidArgumentError("token out of range"), 400},
      {absl::UnavailableError("no worker"), 503},
      {absl::InternalError("broken"), 500},
      {Reject(Reason::kNoCapacity, "no slot free"), 429},
  };
  for (const auto& [status, code] : cases) {
    TestServer::Setup setup;
    setup.generator.start_error = status;
    TestServer server(setup);
    const TestResponse response = server.Complete({{"prompt", "x"}});
    EXPECT_EQ(response.status, code) << response.body;
    EXPECT_EQ(response.header("Retry-After").empty(), code != 503 && code != 429);
  }
}

TEST(Failures, BeforeTheFirstTokenIs500WithTheReason) {
  for (const bool stream : {false, true}) {
    TestServer::Setup setup;
    setup.generator.hold_after = 0;
    setup.generator.finish_error = Reject(Reason::kDigestMismatch, "part l3.recurrent: ...");
    TestServer server(setup);
    const TestResponse response = server.Complete({{"prompt", "x"}, {"stream", stream}});
    ExpectError(response, 500, nullptr, {"l3.recurrent"});
    EXPECT_EQ(response.json()["error"]["code"], "digest_mismatch");
  }
}

TEST(Failures, InMidStreamIsAnErrorEvent) {
  TestServer::Setup setup;
  setup.generator.hold_after = 3;
  setup.generator.finish_error = Reject(Reason::kNonFinite, "NaN in part");
  TestServer server(setup);
  const TestResponse response =
      server.Complete({{"prompt", "x"}, {"stream", true}, {"max_tokens", 9}});
  EXPECT_EQ(response.status, 200);
  const std::vector<Json> events = SsePayloads(response.body);
  ASSERT_GE(events.size(), 3u) << response.body;
  EXPECT_TRUE(events.front().contains("choices"));
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "non_finite");
  EXPECT_EQ(events.back(), "[DONE]");
}

}  // namespace
}  // namespace baton::server
