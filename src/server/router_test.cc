// The router in front of fake workers: one unbroken stream whatever happens to them.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/remote_generator.h"
#include "server/test_server.h"

namespace baton::server {
namespace {

using ::testing::HasSubstr;

TestServer::Setup WorkerSetup(const std::string& role, const std::string& epoch = "e") {
  TestServer::Setup setup;
  setup.options.api.internal_endpoint = true;
  setup.with_text = false;
  setup.info.role = role;
  setup.info.fingerprint = "model";
  setup.info.epoch = epoch;
  if (role == "prefill") setup.info.handoff = {{"tcp", "tcp:127.0.0.1:7001"}};
  return setup;
}

// Router, and the HTTP server in front of it.
class Router {
 public:
  explicit Router(RouterOptions options) : io(1) {
    options.health_interval_ms = 20;
    generator = std::make_unique<RemoteGenerator>(&io, std::move(options));
    generator->StartHealthChecks();
    TestServer::Setup setup;
    setup.other_generator = generator.get();
    setup.info.role = "router";
    setup.options.api.accept_prefiller_header = true;
    setup.adjust = [this](ApiDeps* deps) {
      deps->health_extra = [this] { return generator->HealthExtra(); };
      deps->status_rows = [this] { return generator->Rows(); };
    };
    front = std::make_unique<TestServer>(setup);
  }
  ~Router() {
    front.reset();
    generator->Stop();
    io.Stop();
  }
  bool AwaitReady() {
    return Eventually([&] { return generator->Ready(); });
  }

  IoPool io;
  std::unique_ptr<RemoteGenerator> generator;
  std::unique_ptr<TestServer> front;
};

RouterOptions To(const std::vector<TestServer*>& decode,
                 const std::vector<TestServer*>& prefill = {}) {
  RouterOptions options;
  for (const TestServer* worker : decode) options.decode.push_back({"127.0.0.1", worker->port()});
  for (const TestServer* worker : prefill) options.prefill.push_back({"127.0.0.1", worker->port()});
  options.max_model_len = 4096;
  options.vocab_size = 260;
  return options;
}

std::string Prompt(int letters) { return std::string(static_cast<size_t>(letters), 'p'); }

Json Request(const std::string& prompt, int64_t tokens, uint64_t seed = 1) {
  return Json{{"prompt", prompt},
              {"max_tokens", tokens},
              {"seed", seed},
              {"stream", true},
              {"baton_debug", true},
              {"return_token_ids", true},
              {"stream_options", {{"include_usage", true}}}};
}

struct Seen {
  std::string text;
  Json baton;
  Json usage;
  bool done = false;
  bool operator==(const Seen&) const = default;
};

Seen See(const std::string& body) {
  Seen seen;
  for (const Json& event : SsePayloads(body)) {
    if (event == "[DONE]") seen.done = true;
    if (!event.is_object()) continue;
    if (event.contains("error")) seen.text += "<<" + DumpJson(event) + ">>";
    if (event.contains("usage")) seen.usage = event["usage"];
    if (event.contains("baton")) seen.baton = event["baton"];
    if (event.contains("choices") && !event["choices"].empty()) {
      seen.text += event["choices"][0]["text"].get<std::string>();
    }
  }
  return seen;
}

TEST(Router, SameAnswerAsOneProcess) {
  TestServer alone;
  TestServer worker(WorkerSetup("decode"));
  Router router(To({&worker}));
  const TestResponse a = alone.Complete(Request(Prompt(50), 20));
  const TestResponse b = router.front->Complete(Request(Prompt(50), 20));
  ASSERT_EQ(b.status, 200) << b.body;
  EXPECT_EQ(See(a.body), See(b.body));
  EXPECT_TRUE(See(b.body).done);
  const TestResponse chat = router.front->Chat(
      {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 3}, {"n", 2}});
  EXPECT_EQ(chat.json()["choices"].size(), 2u) << chat.body;
}

TEST(Router, NamesAPrefillWorkerToPullFrom) {
  TestServer decode(WorkerSetup("decode"));
  TestServer prefill(WorkerSetup("prefill"));
  Router router(To({&decode}, {&prefill}));
  ASSERT_TRUE(router.AwaitReady());
  EXPECT_EQ(router.front->Complete(Request(Prompt(40), 2)).status, 200);
  EXPECT_EQ(router.front->Complete(Request(Prompt(3), 2)).status, 200);
  const auto requests = decode.generator->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prefill_endpoint, "tcp:127.0.0.1:7001");
  EXPECT_EQ(requests[1].prefill_endpoint, "");  // nothing below the last block to hand over
  EXPECT_EQ(requests[0].prompt_len, 41);
  EXPECT_TRUE(prefill.generator->requests().empty());
}

TEST(Router, ObeysThePrefillerHeaderForItsOwnWorkersOnly) {
  TestServer decode(WorkerSetup("decode"));
  TestServer first(WorkerSetup("prefill"));
  TestServer::Setup setup = WorkerSetup("prefill");
  setup.info.handoff = {{"tcp", "tcp:the-second"}};
  TestServer second(setup);
  Router router(To({&decode}, {&first, &second}));
  ASSERT_TRUE(Eventually([&] {
    const Json health = router.front->Get("/health").json();
    for (const Json& w : health["workers"])
      if (!w["healthy"].get<bool>()) return false;
    return true;
  }));
  const std::string name = "127.0.0.1:" + std::to_string(second.port());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(
        router.front
            ->Post("/v1/completions", Request(Prompt(40), 2), {{"x-prefiller-host-port", name}})
            .status,
        200);
  }
  for (const auto& request : decode.generator->requests()) {
    EXPECT_EQ(request.prefill_endpoint, "tcp:the-second");
  }
  const TestResponse foreign = router.front->Post("/v1/completions", Request(Prompt(40), 2),
                                                  {{"x-prefiller-host-port", "10.0.0.1:80"}});
  EXPECT_EQ(foreign.status, 400);
  EXPECT_THAT(foreign.body, HasSubstr("10.0.0.1:80"));
}

TEST(Router, WorkerKilledInMidStreamIsInvisible) {
  TestServer alone;
  const Seen expected = See(alone.Complete(Request(Prompt(50), 30)).body);
  for (const int held : {0, 1, 7, 29, 30}) {
    TestServer::Setup setup = WorkerSetup("decode", "e1");
    setup.generator.hold_after = held;
    auto first = std::make_unique<TestServer>(setup);
    TestServer second(WorkerSetup("decode", "e2"));
    Router router(To({first.get(), &second}));
    ASSERT_TRUE(Eventually(
        [&] { return router.front->Get("/health").json()["workers"][0]["healthy"] == true; }));
    // Sent until one lands on the worker that will be killed.
    std::vector<std::unique_ptr<TestClient>> clients;
    while (first->generator->running() == 0) {
      ASSERT_LT(clients.size(), 20u);
      clients.push_back(std::make_unique<TestClient>(router.front->port()));
      Json request = Request(Prompt(50), 30);
      request["cache_salt"] =
          std::to_string(clients.size());  // or affinity would keep them together
      ASSERT_TRUE(clients.back()->Send("POST", "/v1/completions", DumpJson(request)));
      Eventually([&] {
        return first->generator->requests().size() + second.generator->requests().size() >=
               clients.size();
      });
    }
    if (held > 0) {
      ASSERT_TRUE(clients.back()->ReadHead().has_value());
    }
    first->Kill();
    if (held == 0) {
      ASSERT_TRUE(clients.back()->ReadHead().has_value());
    }
    EXPECT_EQ(See(clients.back()->ReadBody()), expected) << "held after " << held;
    EXPECT_GE(router.generator->failovers(), 1);
    for (const auto& request : second.generator->requests()) {
      EXPECT_EQ(request.prompt_len, 51);
      EXPECT_EQ(request.sampling.max_tokens, 30);
    }
  }
}

TEST(Router, WaitsForARestartedWorkerAndGoesOn) {
  TestServer alone;
  const Seen expected = See(alone.Complete(Request(Prompt(50), 30)).body);
  TestServer::Setup setup = WorkerSetup("decode", "first life");
  setup.generator.hold_after = 5;
  auto worker = std::make_unique<TestServer>(setup);
  const uint16_t port = worker->port();
  Router router(To({worker.get()}));
  TestClient client(router.front->port());
  ASSERT_TRUE(client.Send("POST", "/v1/completions", DumpJson(Request(Prompt(50), 30))));
  ASSERT_TRUE(client.ReadHead().has_value());
  worker->Kill();
  worker.reset();
  ASSERT_TRUE(Eventually([&] { return !router.generator->Ready(); }));
  TestServer::Setup again = WorkerSetup("decode", "second life");
  again.options.http.port = port;
  TestServer restarted(again);
  ASSERT_TRUE(restarted.status.ok()) << restarted.status;
  EXPECT_EQ(See(client.ReadBody()), expected);
  EXPECT_EQ(router.front->Get("/health").json()["workers"][0]["epoch"], "second life");
}

TEST(Router, DrainingWorkerHandsItsStreamsOn) {
  TestServer alone;
  const Seen expected = See(alone.Complete(Request(Prompt(50), 30)).body);
  TestServer::Setup setup = WorkerSetup("decode", "e1");
  setup.generator.hold_after = 5;
  TestServer first(setup);
  TestServer second(WorkerSetup("decode", "e2"));
  Router router(To({&first}));
  TestClient client(router.front->port());
  ASSERT_TRUE(client.Send("POST", "/v1/completions", DumpJson(Request(Prompt(50), 30))));
  ASSERT_TRUE(client.ReadHead().has_value());
  std::thread drain([&] { first.server->Drain(std::chrono::milliseconds(10)); });
  drain.join();
  // The only worker is gone for good; the answer says so instead of hanging.
  first.Kill();
  client.Close();
  Router both(To({&first, &second}));
  EXPECT_EQ(See(both.front->Complete(Request(Prompt(50), 30)).body), expected);
}

TEST(Router, NoWorkerWithinTheTimeIs503) {
  RouterOptions options;
  options.decode = {{"127.0.0.1", 1}};
  options.worker_wait_ms = 60;
  options.max_model_len = 100;
  options.vocab_size = 260;
  Router router(options);
  const TestResponse response = router.front->Complete({{"prompt", "x"}});
  EXPECT_EQ(response.status, 503) << response.body;
  EXPECT_THAT(response.body, HasSubstr("127.0.0.1:1 (decode)"));
  EXPECT_FALSE(response.header("Retry-After").empty());
  EXPECT_EQ(router.front->Get("/health").json()["ready"], false);
}

TEST(Router, FullWorkersAre429) {
  TestServer::Setup setup = WorkerSetup("decode");
  setup.generator.hold_after = 0;
  setup.generator.running_max = 1;
  TestServer worker(setup);
  Router router(To({&worker}));
  TestClient held(router.front->port());
  ASSERT_TRUE(held.Send("POST", "/v1/completions", DumpJson(Request("x", 5))));
  ASSERT_TRUE(Eventually([&] { return worker.generator->running() == 1; }));
  const TestResponse full = router.front->Complete(Request("y", 5));
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.body, HasSubstr("full"));
  worker.generator->Release();
  EXPECT_EQ(See(held.Read().body).text, FakeAnswer({256, 'x'}, 1, 5));
}

TEST(Router, ItsOwnBoundIs429) {
  TestServer::Setup setup = WorkerSetup("decode");
  setup.generator.hold_after = 0;
  TestServer worker(setup);
  RouterOptions options = To({&worker});
  options.in_flight_max = 1;
  Router router(options);
  TestClient held(router.front->port());
  ASSERT_TRUE(held.Send("POST", "/v1/completions", DumpJson(Request("x", 5))));
  ASSERT_TRUE(Eventually([&] { return worker.generator->running() == 1; }));
  const TestResponse refused = router.front->Complete(Request("y", 5));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("at most 1"));
  worker.generator->Release();
  EXPECT_EQ(See(held.Read().body).text, FakeAnswer({256, 'x'}, 1, 5));
}

TEST(Router, ErrorsOfTheEngineReachTheClient) {
  TestServer::Setup setup = WorkerSetup("decode");
  setup.generator.hold_after = 0;
  setup.generator.finish_error = Reject(Reason::kDigestMismatch, "part l1.conv");
  TestServer worker(setup);
  Router router(To({&worker}));
  const TestResponse response = router.front->Complete({{"prompt", "x"}});
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.json()["error"]["code"], "digest_mismatch");
  EXPECT_EQ(router.generator->failovers(), 0);
}

TEST(Router, LeavingClientCancelsOnTheWorker) {
  TestServer::Setup setup = WorkerSetup("decode");
  setup.generator.hold_after = 2;
  TestServer worker(setup);
  Router router(To({&worker}));
  TestClient client(router.front->port());
  ASSERT_TRUE(client.Send("POST", "/v1/completions", DumpJson(Request("x", 50))));
  ASSERT_TRUE(client.ReadHead().has_value());
  client.Close();
  EXPECT_TRUE(Eventually([&] { return worker.generator->cancelled() == 1; }));
  EXPECT_TRUE(Eventually([&] { return router.front->Get("/load").json()["server_load"] == 0; }));
}

TEST(Router, NextTurnGoesWhereTheStateIs) {
  TestServer first(WorkerSetup("decode", "e1"));
  TestServer second(WorkerSetup("decode", "e2"));
  Router router(To({&first, &second}));
  ASSERT_TRUE(Eventually([&] {
    const Json workers = router.front->Get("/health").json()["workers"];
    return workers[0]["healthy"] == true && workers[1]["healthy"] == true;
  }));
  Json messages = {{{"role", "user"}, {"content", Prompt(40)}}};
  for (int turn = 0; turn < 6; ++turn) {
    const TestResponse response = router.front->Chat({{"messages", messages}, {"max_tokens", 8}});
    ASSERT_EQ(response.status, 200) << response.body;
    messages.push_back(response.json()["choices"][0]["message"]);
    messages.push_back({{"role", "user"}, {"content", "go on"}});
  }
  const size_t a = first.generator->requests().size();
  const size_t b = second.generator->requests().size();
  EXPECT_EQ(a + b, 6u);
  EXPECT_TRUE(a == 0 || b == 0) << a << " and " << b;
}

TEST(Router, ManyStreamsSurviveRepeatedKills) {
  constexpr int kStreams = 48;
  constexpr int64_t kTokens = 60;
  constexpr int kRounds = 5;
  // Each incarnation holds its streams a little later than the one before, so that none can end
  // before the last kill, however fast or slow the machine is.
  const auto setup = [](int round, uint16_t port) {
    TestServer::Setup s = WorkerSetup("decode", "life " + std::to_string(round));
    s.generator.hold_after = round < kRounds ? 10 * (round + 1) : INT64_MAX;
    if (port != 0) s.options.http.port = port;
    return s;
  };
  std::unique_ptr<TestServer> workers[2] = {std::make_unique<TestServer>(setup(0, 0)),
                                            std::make_unique<TestServer>(setup(0, 0))};
  RouterOptions options = To({workers[0].get(), workers[1].get()});
  options.attempts_max = 50;
  Router router(options);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<TestClient>(router.front->port()));
    ASSERT_TRUE(
        clients.back()->Send("POST", "/v1/completions",
                             DumpJson(Request(Prompt(20), kTokens, static_cast<uint64_t>(i)))));
  }
  ASSERT_TRUE(Eventually([&] {
    return workers[0]->generator->running() + workers[1]->generator->running() == kStreams;
  }));
  for (int round = 1; round <= kRounds; ++round) {
    for (auto& victim : workers) {
      const uint16_t port = victim->port();
      victim->Kill();
      victim = std::make_unique<TestServer>(setup(round, port));
      ASSERT_TRUE(victim->status.ok()) << victim->status;
    }
  }
  std::vector<TokenId> prompt(21, 'p');
  prompt[0] = 256;
  for (int i = 0; i < kStreams; ++i) {
    const TestResponse response = clients[static_cast<size_t>(i)]->Read();
    EXPECT_EQ(See(response.body).text, FakeAnswer(prompt, static_cast<uint64_t>(i), kTokens));
  }
  EXPECT_GE(router.generator->failovers(), kStreams);
}

}  // namespace
}  // namespace baton::server
