#include "server/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http_server.h"

namespace baton::server {
namespace {

using ::testing::HasSubstr;

// Collects an answer and lets the test wait for its end.
class Collector final : public ClientHandler {
 public:
  void OnHead(int status, const HttpHeaders&) override {
    MutexLock lock(&mu_);
    http_status_ = status;
  }
  void OnData(std::string_view data) override {
    MutexLock lock(&mu_);
    body_ += data;
    changed_.NotifyAll();
  }
  void OnDone(const Status& status) override {
    MutexLock lock(&mu_);
    ++done_;
    status_ = status;
    changed_.NotifyAll();
  }
  Status Wait() {
    MutexLock lock(&mu_);
    while (done_ == 0) changed_.Wait(&mu_);
    EXPECT_EQ(done_, 1);
    return status_;
  }
  void WaitForBody(const std::string& body) {
    MutexLock lock(&mu_);
    while (body_ != body) changed_.Wait(&mu_);
  }
  int http_status() {
    MutexLock lock(&mu_);
    return http_status_;
  }
  std::string body() {
    MutexLock lock(&mu_);
    return body_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int http_status_ = 0;
  std::string body_;
  int done_ = 0;
  Status status_;
};

class HttpClientTest : public ::testing::Test {
 protected:
  void TearDown() override { io_.Stop(); }

  void Serve(HttpHandler handler) {
    server_ = std::make_unique<HttpServer>(&io_, HttpServerOptions{"127.0.0.1", 0, {}},
                                           std::move(handler));
    ASSERT_TRUE(server_->Start().ok());
  }
  ClientRequest To(uint16_t port, std::string body = {}) {
    ClientRequest request;
    request.address = {"127.0.0.1", port};
    request.method = "POST";
    request.body = std::move(body);
    return request;
  }

  IoPool io_{1};
  HttpClient client_{&io_, {}};
  std::unique_ptr<HttpServer> server_;
};

// Accepts one connection, reads a little, sends `answer` and closes.
class RawPeer {
 public:
  explicit RawPeer(std::string answer, int connections = 1) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    socklen_t size = sizeof(address);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), connections] {
      for (int i = 0; i < connections; ++i) {
        const int peer = ::accept(fd_, nullptr, nullptr);
        char buffer[4096];
        (void)!::recv(peer, buffer, sizeof(buffer), 0);
        (void)!::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
        ::close(peer);
      }
    });
  }
  ~RawPeer() {
    thread_.join();
    ::close(fd_);
  }
  uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(ParseHttpAddress, Forms) {
  EXPECT_EQ(*ParseHttpAddress("http://127.0.0.1:8001"), (HttpAddress{"127.0.0.1", 8001}));
  EXPECT_EQ(*ParseHttpAddress("worker-1:99/"), (HttpAddress{"worker-1", 99}));
  EXPECT_EQ(*ParseHttpAddress("http://worker"), (HttpAddress{"worker", 80}));
  EXPECT_EQ(*ParseHttpAddress("http://[::1]:8001"), (HttpAddress{"::1", 8001}));
  EXPECT_EQ(*ParseHttpAddress("http://[::1]"), (HttpAddress{"::1", 80}));
  EXPECT_EQ((HttpAddress{"::1", 5}.Name()), "[::1]:5");
  for (const char* bad : {"", "http://", "host:0", "host:70000", "host:x", ":5", "https://h:1/x"}) {
    const auto address = ParseHttpAddress(bad);
    EXPECT_FALSE(address.ok()) << bad;
  }
}

TEST_F(HttpClientTest, AnswersArriveAndTheConnectionIsReused) {
  Serve([](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    HttpResponse response;
    response.status = 404;
    response.body = request.method + request.body;
    exchange->Send(std::move(response));
  });
  for (int i = 0; i < 5; ++i) {
    auto collector = std::make_shared<Collector>();
    client_.Start(To(server_->port(), std::string(100'000, 'x')), collector);
    EXPECT_TRUE(collector->Wait().ok());
    EXPECT_EQ(collector->http_status(), 404);
    EXPECT_EQ(collector->body().size(), 100'004u);
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpClientTest, PiecesArriveAsTheyAreSentAndCancelCloses) {
  std::atomic<bool> closed{false};
  Serve([&](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->OnClosed([&, exchange] { closed = true; });
    exchange->BeginStream({});
    exchange->Write("first");
  });
  auto collector = std::make_shared<Collector>();
  auto call = client_.Start(To(server_->port()), collector);
  collector->WaitForBody("first");
  call->Cancel();
  call->Cancel();
  EXPECT_EQ(collector->Wait().code(), absl::StatusCode::kCancelled);
  while (!closed.load()) std::this_thread::yield();
}

TEST_F(HttpClientTest, RefusedConnectionIsUnavailable) {
  auto collector = std::make_shared<Collector>();
  client_.Start(To(1), collector);
  const Status status = collector->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("connecting to 127.0.0.1:1"));
}

TEST_F(HttpClientTest, SilentServerTimesOut) {
  std::shared_ptr<Exchange> held;
  Serve(
      [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) { held = std::move(exchange); });
  ClientRequest request = To(server_->port());
  request.head_ms = 30;
  auto collector = std::make_shared<Collector>();
  client_.Start(std::move(request), collector);
  const Status status = collector->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("timed out"));
  held.reset();
}

TEST_F(HttpClientTest, CutAnswerIsUnavailableNotShort) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "HTTP/1.1 2", ""}) {
    RawPeer peer(answer);
    auto collector = std::make_shared<Collector>();
    client_.Start(To(peer.port()), collector);
    EXPECT_EQ(collector->Wait().code(), absl::StatusCode::kUnavailable) << answer;
  }
}

TEST_F(HttpClientTest, PeerThatIsNoHttpServerIsInternal) {
  RawPeer peer("SSH-2.0-OpenSSH_9.2\r\n\r\n");
  auto collector = std::make_shared<Collector>();
  client_.Start(To(peer.port()), collector);
  EXPECT_EQ(collector->Wait().code(), absl::StatusCode::kInternal);
}

TEST_F(HttpClientTest, StaleKeptConnectionIsReplaced) {
  // The peer says keep-alive and closes all the same.
  RawPeer peer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 3);
  for (int i = 0; i < 3; ++i) {
    auto collector = std::make_shared<Collector>();
    client_.Start(To(peer.port()), collector);
    EXPECT_TRUE(collector->Wait().ok());
    EXPECT_EQ(collector->body(), "ok");
  }
}

}  // namespace
}  // namespace baton::server
