// Completions and chat over real sockets, against a fake model whose answers are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/test_server.h"

namespace baton::server {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const TestResponse& response, size_t choice = 0) {
  const Json json = response.json();
  if (!json.contains("choices")) return "<<" + response.body + ">>";
  const Json& c = json["choices"][choice];
  return c.contains("text") ? c["text"].get<std::string>()
                            : c["message"]["content"].get<std::string>();
}

TestServer::Setup Scripted(std::string_view text) {
  TestServer::Setup setup;
  setup.generator.script = ScriptOf(text);
  return setup;
}

std::string StreamText(const std::string& body, int64_t index = 0) {
  std::string text;
  for (const Json& event : SsePayloads(body)) {
    if (!event.is_object() || !event.contains("choices")) continue;
    for (const Json& choice : event["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) {
        text += choice["text"].get<std::string>();
      } else if (choice["delta"].contains("content")) {
        text += choice["delta"]["content"].get<std::string>();
      }
    }
  }
  return text;
}

TEST(Completions, TextPromptWholeAnswer) {
  TestServer server;
  ASSERT_TRUE(server.status.ok()) << server.status;
  const TestResponse response =
      server.Complete({{"model", "fake"}, {"prompt", "hello"}, {"max_tokens", 5}, {"seed", 7}});
  ASSERT_EQ(response.status, 200) << response.body;
  const auto prompt = *server.text.Encode("hello", true);
  EXPECT_EQ(TextOf(response), FakeAnswer(prompt, 7, 5));
  const Json json = response.json();
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], 11);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_FALSE(json.contains("baton"));
  EXPECT_EQ(server.generator->requests()[0].sampling.stop_token_ids,
            std::vector<TokenId>{FakeText::kEos});
}

TEST(Completions, TextThatCannotBeSplitIsRefused) {
  TestServer server;
  for (const TestResponse& response :
       {server.Complete({{"prompt", "unsplittable"}}),
        server.Chat({{"messages", {{{"role", "user"}, {"content", "unsplittable"}}}}})}) {
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_NE(response.body.find("gave up"), std::string::npos) << response.body;
  }
  EXPECT_TRUE(server.generator->requests().empty());
}

TEST(Completions, SixteenTokensByDefault) {
  TestServer server;
  EXPECT_EQ(TextOf(server.Complete({{"prompt", "a"}})).size(), 16u);
}

TEST(Completions, AllFormsOfPrompt) {
  TestServer server;
  const auto ask = [&](const Json& prompt) {
    return server.Complete({{"prompt", prompt}, {"max_tokens", 4}, {"seed", 1}});
  };
  EXPECT_EQ(TextOf(ask(Json::array({1, 2, 3}))), FakeAnswer({1, 2, 3}, 1, 4));
  const TestResponse strings = ask(Json::array({"x", "y"}));
  EXPECT_EQ(TextOf(strings, 0), FakeAnswer({256, 'x'}, 1, 4));
  EXPECT_EQ(TextOf(strings, 1), FakeAnswer({256, 'y'}, 1, 4));
  EXPECT_EQ(strings.json()["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(strings.json()["usage"]["completion_tokens"], 8);
  const TestResponse lists = ask(Json::array({Json::array({5}), Json::array({6, 7})}));
  EXPECT_EQ(TextOf(lists, 1), FakeAnswer({6, 7}, 1, 4));
}

TEST(Completions, SeveralChoicesHaveSeedsOfTheirOwn) {
  TestServer server;
  const TestResponse response =
      server.Complete({{"prompt", Json::array({9})}, {"n", 3}, {"max_tokens", 6}, {"seed", 40}});
  ASSERT_EQ(response.json()["choices"].size(), 3u) << response.body;
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(TextOf(response, i), FakeAnswer({9}, 40 + i, 6));
  EXPECT_EQ(response.json()["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(response.json()["usage"]["completion_tokens"], 18);
}

TEST(Completions, StreamEqualsWholeAnswer) {
  TestServer server;
  const Json whole{{"prompt", "hello"}, {"max_tokens", 20}, {"seed", 3}, {"n", 2}};
  Json streamed = whole;
  streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  const TestResponse a = server.Complete(whole);
  const TestResponse b = server.Complete(streamed);
  EXPECT_EQ(b.header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(StreamText(b.body, 0), TextOf(a, 0));
  EXPECT_EQ(StreamText(b.body, 1), TextOf(a, 1));
  const std::vector<Json> events = SsePayloads(b.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json& usage = events[events.size() - 2];
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"], a.json()["usage"]);
}

TEST(Completions, LongPromptIsPlannedOffTheIoThread) {
  TestServer::Setup setup;
  setup.generator.max_model_len = 200'000;
  TestServer server(setup);
  const std::string prompt(100'000, 'z');
  const TestResponse response =
      server.Complete({{"prompt", prompt}, {"max_tokens", 3}, {"seed", 2}});
  EXPECT_EQ(TextOf(response), FakeAnswer(*server.text.Encode(prompt, true), 2, 3));
  const TestResponse wrong = server.Complete({{"prompt", prompt}, {"n", 0}});
  EXPECT_EQ(wrong.status, 400);
}

TEST(Completions, EosEndsUnlessIgnored) {
  TestServer server(Scripted("abc"));
  const TestResponse stop = server.Complete({{"prompt", "x"}, {"max_tokens", 10}});
  EXPECT_EQ(TextOf(stop), "abc");
  EXPECT_EQ(stop.json()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stop.json()["choices"][0]["stop_reason"], nullptr);
  const TestResponse on =
      server.Complete({{"prompt", "x"}, {"max_tokens", 10}, {"ignore_eos", true}});
  EXPECT_EQ(TextOf(on), "abcabcab");  // eos twice, shown as nothing
}

TEST(Completions, StopTokenIdIsNamed) {
  TestServer server(Scripted("abcdef"));
  const TestResponse response =
      server.Complete({{"prompt", "x"}, {"max_tokens", 10}, {"stop_token_ids", {int{'d'}}}});
  EXPECT_EQ(TextOf(response), "abc");
  EXPECT_EQ(response.json()["choices"][0]["stop_reason"], int{'d'});
}

TEST(Completions, StopStringAcrossTokens) {
  TestServer server(Scripted("one two END three"));
  for (const bool stream : {false, true}) {
    for (const bool include : {false, true}) {
      const TestResponse response = server.Complete({{"prompt", "x"},
                                                     {"max_tokens", 17},
                                                     {"stop", {"ENX", "END"}},
                                                     {"stream", stream},
                                                     {"include_stop_str_in_output", include}});
      const std::string text = stream ? StreamText(response.body) : TextOf(response);
      EXPECT_EQ(text, include ? "one two END" : "one two ");
      const Json last = stream ? *(SsePayloads(response.body).end() - 2) : response.json();
      EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
      EXPECT_EQ(last["choices"][0]["stop_reason"], "END");
    }
  }
  EXPECT_TRUE(Eventually([&] { return server.generator->running() == 0; }));
}

TEST(Completions, StopStringPrefixAtTheEndIsNotLost) {
  TestServer server(Scripted("text EN"));
  for (const bool stream : {false, true}) {
    const TestResponse response =
        server.Complete({{"prompt", "x"}, {"max_tokens", 50}, {"stop", "END"}, {"stream", stream}});
    EXPECT_EQ(stream ? StreamText(response.body) : TextOf(response), "text EN");
  }
}

TEST(Completions, UsageCountsTokensUpToTheStopString) {
  TestServer server(Scripted("abcdefgh"));
  const TestResponse response = server.Complete({{"prompt", "x"}, {"stop", "de"}});
  EXPECT_EQ(TextOf(response), "abc");
  EXPECT_EQ(response.json()["usage"]["completion_tokens"], 5);
}

TEST(Completions, StopStringsWaitForMinTokens) {
  TestServer server(Scripted("ab--cd--ef"));
  const TestResponse response =
      server.Complete({{"prompt", "x"}, {"stop", "--"}, {"min_tokens", 5}, {"max_tokens", 10}});
  EXPECT_EQ(TextOf(response), "ab--cd");
}

TEST(Completions, Utf8SplitAcrossTokensIsNeverCut) {
  TestServer server(Scripted("gr\xC3\xBC\xC3\x9F dich \xF0\x9F\x8C\xBB!"));
  const TestResponse response =
      server.Complete({{"prompt", "x"}, {"max_tokens", 40}, {"stream", true}});
  EXPECT_EQ(StreamText(response.body), "gr\xC3\xBC\xC3\x9F dich \xF0\x9F\x8C\xBB!");
  for (const Json& event : SsePayloads(response.body)) {
    if (!event.is_object()) continue;
    EXPECT_THAT(event["choices"][0]["text"].get<std::string>(),
                ::testing::Not(HasSubstr("\xEF\xBF\xBD")));
  }
  const TestResponse cut = server.Complete({{"prompt", "x"}, {"max_tokens", 3}});
  EXPECT_EQ(TextOf(cut), "gr\xEF\xBF\xBD");
}

TEST(Completions, LogprobsLegacyForm) {
  TestServer server(Scripted("h\xC3\xA9"));
  const TestResponse response =
      server.Complete({{"prompt", "x"}, {"max_tokens", 3}, {"logprobs", 2}});
  const Json logprobs = response.json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"h", "bytes:\\xc3", "bytes:\\xa9"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({-0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2}));
  EXPECT_EQ(logprobs["top_logprobs"][0], Json({{"h", -0.5}, {"i", -1.5}}));
}

TEST(Completions, SamplingFieldsReachTheGenerator) {
  TestServer server;
  const TestResponse response = server.Complete({{"prompt", "x"},
                                                 {"presence_penalty", 0.5},
                                                 {"frequency_penalty", -1},
                                                 {"logit_bias", {{"9", -100}, {"10", 2.5}}},
                                                 {"prompt_logprobs", 3}});
  ASSERT_EQ(response.status, 200) << response.body;
  const engine::SamplingParams sampling = server.generator->requests()[0].sampling;
  EXPECT_EQ(sampling.presence_penalty, 0.5);
  EXPECT_EQ(sampling.frequency_penalty, -1);
  EXPECT_EQ(sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{9, -100.0F}, {10, 2.5F}}));
  EXPECT_EQ(sampling.prompt_logprobs, 3);
}

TEST(Completions, TheModelsOwnLimitHoldsForEveryRequest) {
  TestServer server;
  server.text.mutable_defaults()->max_new_tokens = 5;
  EXPECT_EQ(TextOf(server.Complete({{"prompt", "a"}})).size(), 5u);
  EXPECT_EQ(TextOf(server.Complete({{"prompt", "a"}, {"max_tokens", 9}})).size(), 5u);
  EXPECT_EQ(TextOf(server.Complete({{"prompt", "a"}, {"max_tokens", 3}})).size(), 3u);
}

TEST(Completions, EosBeyondTheVocabularyIsLeftOut) {
  TestServer server;
  server.text.mutable_defaults()->eos_token_ids = {FakeText::kEos, 999999};
  ASSERT_EQ(server.Complete({{"prompt", "a"}}).status, 200);
  EXPECT_EQ(server.generator->requests()[0].sampling.stop_token_ids,
            std::vector<TokenId>{FakeText::kEos});
}

TEST(Completions, EchoTokenIdsAndDebug) {
  TestServer::Setup setup;
  setup.generator.usage.local_prefill_tokens = 3;
  setup.generator.usage.rejects = 1;
  setup.generator.usage.cached_tokens = 2;
  engine::HandoffRecord handoff;
  handoff.state_id = "abc";
  handoff.connector = "shm";
  handoff.reason = "digest_mismatch";
  setup.generator.handoffs = {handoff};
  TestServer server(setup);
  for (const bool stream : {false, true}) {
    const TestResponse response = server.Complete({{"prompt", {1, 2}},
                                                   {"echo", true},
                                                   {"max_tokens", 2},
                                                   {"seed", 5},
                                                   {"stream", stream},
                                                   {"return_token_ids", true},
                                                   {"baton_debug", true}});
    const std::string expected = FakeAnswer({1, 2}, 5, 2);
    const Json json = stream ? *(SsePayloads(response.body).end() - 2) : response.json();
    EXPECT_EQ(stream ? StreamText(response.body) : TextOf(response), "\x01\x02" + expected);
    const Json first = stream ? SsePayloads(response.body)[0] : json;
    EXPECT_EQ(first["choices"][0]["prompt_token_ids"], Json({1, 2}));
    const Json& baton = json["baton"];
    EXPECT_EQ(baton["token_ids"], Json({int{expected[0]}, int{expected[1]}}));
    Sha256 hash = FakeGenerator::NextHash(Sha256{}, static_cast<TokenId>(expected[0]));
    hash = FakeGenerator::NextHash(hash, static_cast<TokenId>(expected[1]));
    EXPECT_EQ(baton["logits_hash"], hash.Hex());
    EXPECT_EQ(baton["local_prefill_tokens"], 3);
    EXPECT_EQ(baton["rejects"], 1);
    EXPECT_EQ(baton["handoffs"][0]["connector"], "shm");
    EXPECT_EQ(baton["handoffs"][0]["reason"], "digest_mismatch");
    EXPECT_EQ(json["choices"][0]["baton"], baton);
  }
}

// How evaluation tools score a text.
TEST(Completions, EchoOfThePromptAlone) {
  TestServer server;
  for (const bool stream : {false, true}) {
    const TestResponse response = server.Complete(
        {{"prompt", {1, 2}}, {"echo", true}, {"max_tokens", 0}, {"stream", stream}});
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(stream ? StreamText(response.body) : TextOf(response), "\x01\x02");
    if (stream) continue;
    EXPECT_EQ(response.json()["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(response.json()["usage"]["completion_tokens"], 0);
    EXPECT_EQ(response.json()["usage"]["prompt_tokens"], 2);
  }
  EXPECT_EQ(server.generator->requests()[0].sampling.max_tokens, 1);
}

TEST(Completions, DefaultsComeFromTheModel) {
  TestServer server;
  server.text.mutable_defaults()->temperature = 0.25;
  server.text.mutable_defaults()->top_k = 17;
  EXPECT_EQ(server.Complete({{"prompt", "x"}}).status, 200);
  EXPECT_EQ(server.Complete({{"prompt", "x"}, {"temperature", 0.5}, {"top_k", -1}}).status, 200);
  EXPECT_EQ(server.generator->requests()[0].sampling.temperature, 0.25);
  EXPECT_EQ(server.generator->requests()[0].sampling.top_k, 17);
  EXPECT_EQ(server.generator->requests()[1].sampling.temperature, 0.5);
  EXPECT_EQ(server.generator->requests()[1].sampling.top_k, 0);
}

TEST(Chat, WholeAnswerAndConversationBoundary) {
  TestServer server(Scripted("fine"));
  const TestResponse response = server.Chat(
      {{"messages", {{{"role", "user"}, {"content", "how are you"}}}}, {"cache_salt", "tenant"}});
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"], Json({{"role", "assistant"}, {"content", "fine"}}));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  const engine::GenerateRequest request = server.generator->requests()[0];
  // <bos> <user> 11 letters <eos> <assistant>
  EXPECT_EQ(request.prompt.size(), 15u);
  EXPECT_EQ(request.conversation_len, 14);
  EXPECT_EQ(request.cache_salt, "tenant");
  EXPECT_EQ(request.sampling.max_tokens, 4096 - 15);
}

TEST(Chat, StreamBeginsWithTheRole) {
  TestServer server(Scripted("fine"));
  const TestResponse response =
      server.Chat({{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"stream", true}});
  const std::vector<Json> events = SsePayloads(response.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_FALSE(events[1]["choices"][0]["delta"].contains("role"));
  EXPECT_EQ(StreamText(response.body), "fine");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Chat, LogprobsForm) {
  TestServer server(Scripted("ab"));
  const TestResponse response = server.Chat({{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                                             {"logprobs", true},
                                             {"top_logprobs", 2}});
  const Json content = response.json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u) << response.body;
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["bytes"], Json({97}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "b");
}

TEST(Chat, ContentPartsKwargsAndContinuation) {
  TestServer server(Scripted("ok"));
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  EXPECT_EQ(server
                .Chat({{"messages", {{{"role", "user"}, {"content", parts}}}},
                       {"chat_template_kwargs", {{"shout", true}}}})
                .status,
            200);
  EXPECT_EQ(server
                .Chat({{"messages",
                        {{{"role", "user"}, {"content", "x"}},
                         {{"role", "assistant"}, {"content", "so"}}}},
                       {"continue_final_message", true}})
                .status,
            200);
  EXPECT_EQ(server.text.Decode(server.generator->requests()[0].prompt, false),
            "<bos><user>!a\nb<eos><assistant>");
  EXPECT_EQ(server.text.Decode(server.generator->requests()[1].prompt, false),
            "<bos><user>x<eos><assistant>so");
}

TEST(Endpoints, ModelsHealthVersionLoadAndPage) {
  TestServer::Setup setup;
  setup.options.api.served_model_names = {"fake", "alias"};
  setup.info.role = "decode";
  setup.info.handoff = {{"tcp", "127.0.0.1:7001"}};
  TestServer server(setup);
  const Json models = server.Get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(models["data"][1]["id"], "alias");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(server.Get("/v1/models/alias").json()["id"], "alias");
  EXPECT_EQ(server.Get("/v1/models/other").status, 404);
  const Json health = server.Get("/health").json();
  EXPECT_EQ(health["status"], "ok");
  EXPECT_EQ(health["role"], "decode");
  EXPECT_EQ(health["handoff"]["tcp"], "127.0.0.1:7001");
  EXPECT_EQ(server.Get("/ping").status, 200);
  EXPECT_EQ(server.Get("/version").json()["version"], "0.1.0");
  EXPECT_EQ(server.Get("/load").json()["server_load"], 0);
  const TestResponse page = server.Get("/");
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("Baton · decode"));
  EXPECT_THAT(page.body, ::testing::Not(HasSubstr("http://")));
}

TEST(Endpoints, TokenizeAndDetokenize) {
  TestServer server;
  const Json text =
      server.Post("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(text["tokens"], Json({256, 97, 98}));
  EXPECT_EQ(text["count"], 3);
  EXPECT_EQ(text["token_strs"], Json({"<bos>", "a", "b"}));
  const Json chat =
      server.Post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "a"}}}}}).json();
  EXPECT_EQ(chat["tokens"], Json({256, 258, 97, 257, 259}));
  EXPECT_EQ(server.Post("/detokenize", {{"tokens", {97, 98, 257}}}).json()["prompt"], "ab<eos>");
  EXPECT_EQ(server.Post("/detokenize", Json::object()).status, 400);
  EXPECT_EQ(server.Post("/tokenize", Json::object()).status, 400);
}

TEST(Endpoints, MetricsCountWhatHappened) {
  TestServer::Setup setup;
  engine::HandoffRecord good;
  good.connector = "tcp";
  good.verified = true;
  good.kv_bytes = 100;
  good.state_bytes = 50;
  engine::HandoffRecord bad;
  bad.reason = "digest_mismatch";
  setup.generator.handoffs = {good, bad};
  setup.generator.usage.recomputed_tokens = 32;
  TestServer server(setup);
  server.metrics->AddCollector([] {
    return std::vector<MetricSample>{
        {"state_slots_used", "Slots in use", MetricSample::Type::kGauge, {}, 3},
        {"kv_cache_usage_perc", "Blocks in use", MetricSample::Type::kGauge, {}, 0.5}};
  });
  EXPECT_EQ(server.Complete({{"prompt", "x"}, {"max_tokens", 4}}).status, 200);
  EXPECT_EQ(server.Complete({{"prompt", 1.5}}).status, 400);
  const std::string text = server.Get("/metrics").body;
  for (const char* line :
       {"baton:generation_tokens_total{model_name=\"fake\"} 4",
        "vllm:generation_tokens_total{model_name=\"fake\"} 4",
        "vllm:request_success_total{model_name=\"fake\",finished_reason=\"length\"} 1",
        "baton:handoff_bytes_total{model_name=\"fake\",connector=\"tcp\",kind=\"state\"} 50",
        "baton:reject_total{model_name=\"fake\",reason=\"digest_mismatch\"} 1",
        "baton:recompute_tokens_total{model_name=\"fake\",reason=\"digest_mismatch\"} 32",
        "baton:state_slots_used{model_name=\"fake\"} 3",
        "vllm:kv_cache_usage_perc{model_name=\"fake\"} 0.5",
        "vllm:num_requests_running{model_name=\"fake\"} 0",
        "vllm:time_to_first_token_seconds_count{model_name=\"fake\"} 1",
        "baton:http_responses_total{model_name=\"fake\",code=\"400\"} 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(text.find("vllm:state_slots_used"), std::string::npos);
}

}  // namespace
}  // namespace baton::server
