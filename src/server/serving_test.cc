// Many clients, leaving clients, draining and the worker endpoint, over real sockets.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generation_json.h"
#include "server/test_server.h"

namespace baton::server {
namespace {

Json Streamed(int64_t max_tokens, uint64_t seed = 1) {
  return Json{{"prompt", "x"}, {"stream", true}, {"max_tokens", max_tokens}, {"seed", seed}};
}

std::string TextOfStream(const std::string& body) {
  std::string text;
  for (const Json& event : SsePayloads(body)) {
    if (event.is_object() && event.contains("choices") && !event["choices"].empty()) {
      text += event["choices"][0]["text"].get<std::string>();
    }
  }
  return text;
}

TEST(Disconnect, CancelsTheGenerationStreamedOrNot) {
  for (const bool stream : {true, false}) {
    TestServer::Setup setup;
    setup.generator.hold_after = 2;
    TestServer server(setup);
    Json body = Streamed(100);
    body["stream"] = stream;
    body["n"] = 2;
    TestClient client(server.port());
    ASSERT_TRUE(client.Send("POST", "/v1/completions", DumpJson(body)));
    ASSERT_TRUE(Eventually([&] { return server.generator->running() == 2; }));
    if (stream) {
      ASSERT_TRUE(client.ReadHead().has_value());
    }
    client.Close();
    EXPECT_TRUE(Eventually([&] { return server.generator->cancelled() == 2; }));
    EXPECT_TRUE(Eventually([&] { return server.Get("/load").json()["server_load"] == 0; }));
  }
}

TEST(Concurrency, TwoHundredFiftySixStreams) {
  TestServer server;
  constexpr int kStreams = 256;
  constexpr int64_t kTokens = 40;
  // All are sent before the first is read, so that all are under way together.
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    ASSERT_TRUE(clients.back()->Send("POST", "/v1/completions",
                                     DumpJson(Streamed(kTokens, static_cast<uint64_t>(i)))));
  }
  for (int i = 0; i < kStreams; ++i) {
    const TestResponse response = clients[static_cast<size_t>(i)]->Read();
    ASSERT_EQ(response.status, 200);
    ASSERT_EQ(TextOfStream(response.body),
              FakeAnswer({256, 'x'}, static_cast<uint64_t>(i), kTokens));
    ASSERT_EQ(SsePayloads(response.body).back(), "[DONE]");
  }
}

TEST(Drain, RunningRequestsEndAndNewOnesAreRefused) {
  TestServer::Setup setup;
  setup.generator.hold_after = 3;
  TestServer server(setup);
  TestClient client(server.port());
  ASSERT_TRUE(client.Send("POST", "/v1/completions", DumpJson(Streamed(10))));
  ASSERT_TRUE(client.ReadHead().has_value());
  bool clean = false;
  std::thread drain([&] { clean = server.server->Drain(std::chrono::seconds(20)); });
  ASSERT_TRUE(Eventually([&] { return server.Get("/health").status == 503; }));
  EXPECT_EQ(server.Get("/health").json()["status"], "draining");
  const TestResponse refused = server.Complete({{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Retry-After"), "5");
  server.generator->Release();
  EXPECT_EQ(TextOfStream(client.ReadBody()), FakeAnswer({256, 'x'}, 1, 10));
  EXPECT_TRUE(client.complete());
  drain.join();
  EXPECT_TRUE(clean);
}

TEST(Drain, RemainingRequestsAreEndedWithAnErrorAfterTheTimeout) {
  TestServer::Setup setup;
  setup.generator.hold_after = 3;
  TestServer server(setup);
  TestClient streamed(server.port());
  TestClient whole(server.port());
  ASSERT_TRUE(streamed.Send("POST", "/v1/completions", DumpJson(Streamed(10))));
  ASSERT_TRUE(streamed.ReadHead().has_value());
  ASSERT_TRUE(whole.Send("POST", "/v1/completions", DumpJson(Json{{"prompt", "x"}})));
  ASSERT_TRUE(Eventually([&] { return server.generator->running() == 2; }));
  EXPECT_FALSE(server.server->Drain(std::chrono::milliseconds(20)));
  const std::vector<Json> events = SsePayloads(streamed.ReadBody());
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], 503);
  const TestResponse response = whole.Read();
  EXPECT_EQ(response.status, 503);
  EXPECT_FALSE(response.header("Retry-After").empty());
}

TestServer::Setup WorkerSetup() {
  TestServer::Setup setup;
  setup.options.api.internal_endpoint = true;
  setup.with_text = false;
  return setup;
}

engine::GenerateRequest Request(std::vector<TokenId> prompt, int64_t max_tokens) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = 9;
  return request;
}

TEST(WorkerEndpoint, LinesOfEventsThenTheResult) {
  TestServer server(WorkerSetup());
  const TestResponse response =
      Fetch(server.port(), "POST", "/internal/generate", EncodeRequest(Request({1, 2}, 5)));
  ASSERT_EQ(response.status, 200);
  std::string text;
  std::optional<engine::GenerateResult> result;
  for (size_t at = 0, end; (end = response.body.find('\n', at)) != std::string::npos;
       at = end + 1) {
    auto line = DecodeLine(response.body.substr(at, end - at));
    ASSERT_TRUE(line.ok()) << line.status();
    if (auto* events = std::get_if<std::vector<engine::TokenEvent>>(&*line)) {
      for (const auto& event : *events) text.push_back(static_cast<char>(event.token));
    } else {
      result = std::get<engine::GenerateResult>(*line);
    }
  }
  EXPECT_EQ(text, FakeAnswer({1, 2}, 9, 5));
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->reason, engine::FinishReason::kLength);
}

TEST(WorkerEndpoint, RefusalsCarryTheStatus) {
  TestServer::Setup setup = WorkerSetup();
  setup.generator.start_error = absl::ResourceExhaustedError("queue full");
  TestServer server(setup);
  const TestResponse full =
      Fetch(server.port(), "POST", "/internal/generate", EncodeRequest(Request({1}, 5)));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.json()["error"]["code"], "RESOURCE_EXHAUSTED");
  const TestResponse garbage = Fetch(server.port(), "POST", "/internal/generate", "{\"prompt\":[");
  EXPECT_EQ(garbage.status, 400);
  EXPECT_EQ(garbage.json()["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(server.Complete({{"prompt", "x"}}).status, 501);  // no tokenizer here
}

TEST(WorkerEndpoint, ClosingCancels) {
  TestServer::Setup setup = WorkerSetup();
  setup.generator.hold_after = 1;
  TestServer server(setup);
  TestClient client(server.port());
  ASSERT_TRUE(client.Send("POST", "/internal/generate", EncodeRequest(Request({1}, 5))));
  ASSERT_TRUE(client.ReadHead().has_value());
  ASSERT_TRUE(client.NextChunk().has_value());
  client.Reset();
  EXPECT_TRUE(Eventually([&] { return server.generator->cancelled() == 1; }));
}

}  // namespace
}  // namespace baton::server
