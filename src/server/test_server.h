// For tests: a server on a free loopback port with a fake model behind it.
// Thread rule: one thread; the servers inside have their own.
#ifndef BATON_SERVER_TEST_SERVER_H_
#define BATON_SERVER_TEST_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/fake_generator.h"
#include "server/fake_text.h"
#include "server/server.h"
#include "server/test_client.h"

namespace baton::server {

// Waits, for at most ten seconds, for a condition that another thread makes true.
template <class Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class TestServer {
 public:
  struct Setup {
    ServerOptions options;
    FakeGenerator::Options generator;
    engine::Generator* other_generator = nullptr;  // instead of the fake one
    NodeInfo info;
    int io_threads = 2;
    bool with_text = true;
    std::function<void(ApiDeps*)> adjust;
  };

  TestServer() : TestServer(Setup{}) {}
  explicit TestServer(Setup setup) : io(setup.io_threads) {
    metrics = std::make_shared<Metrics>(Metrics::Options{"fake", true});
    generator = std::make_unique<FakeGenerator>(setup.generator);
    if (setup.options.http.port == 8000) setup.options.http.port = 0;
    if (setup.options.api.served_model_names.empty()) {
      setup.options.api.served_model_names = {"fake"};
    }
    engine::Generator* used =
        setup.other_generator != nullptr ? setup.other_generator : generator.get();
    if (setup.info.role.empty()) setup.info.role = "all";
    setup.info.model = "fake";
    setup.info.max_model_len = used->max_model_len();
    setup.info.vocab_size = used->vocab_size();
    ApiDeps deps;
    deps.generator = used;
    if (setup.with_text) deps.text = &text;
    deps.metrics = metrics;
    deps.node_info = [info = setup.info] { return info; };
    if (setup.adjust) setup.adjust(&deps);
    server = std::make_unique<Server>(&io, setup.options, std::move(deps));
    status = server->Start();
  }
  ~TestServer() {
    if (generator) generator->Release();
    server->Stop();
    io.Stop();
  }
  // Closes all connections without a word, as SIGKILL would.
  void Kill() {
    io.Stop();
    generator.reset();
  }
  uint16_t port() const { return server->port(); }

  TestResponse Get(std::string_view path, const HttpHeaders& headers = {}) const {
    return Fetch(port(), "GET", path, "", headers);
  }
  TestResponse Post(std::string_view path,
                    const Json& body,
                    const HttpHeaders& headers = {}) const {
    return Fetch(port(), "POST", path, body.is_string() ? body.get<std::string>() : DumpJson(body),
                 headers);
  }
  TestResponse Complete(const Json& body) const { return Post("/v1/completions", body); }
  TestResponse Chat(const Json& body) const { return Post("/v1/chat/completions", body); }

  FakeText text;
  IoPool io;
  std::shared_ptr<Metrics> metrics;
  std::unique_ptr<FakeGenerator> generator;
  std::unique_ptr<Server> server;
  Status status;
};

// What the fake generator answers to a history, as text.
inline std::string FakeAnswer(std::vector<TokenId> history, uint64_t seed, int64_t tokens) {
  std::string text;
  for (int64_t i = 0; i < tokens; ++i) {
    history.push_back(FakeGenerator::NextToken(history, seed));
    text.push_back(static_cast<char>(history.back()));
  }
  return text;
}

inline std::vector<TokenId> ScriptOf(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  ids.push_back(FakeText::kEos);
  return ids;
}

}  // namespace baton::server

#endif  // BATON_SERVER_TEST_SERVER_H_
