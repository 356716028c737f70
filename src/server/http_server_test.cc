#include "server/http_server.h"

#include <atomic>
#include <memory>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/test_client.h"

namespace baton::server {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpHandler handler, HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>(&io_, HttpServerOptions{"127.0.0.1", 0, limits},
                                           std::move(handler));
    const Status status = server_->Start();
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override { io_.Stop(); }
  uint16_t port() const { return server_->port(); }

  static void Echo(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    HttpResponse response;
    response.body = request.method + " " + request.path + " " + request.query + " " + request.body;
    exchange->Send(std::move(response));
  }

  // Waits for a condition that another thread makes true.
  template <class Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  // Writes `left` pieces, far more than the kernel's socket buffers hold, and returns to the loop
  // between them so that the connection can send.
  static void Pump(const std::shared_ptr<Exchange>& exchange,
                   std::atomic<bool>* refused,
                   int left) {
    if (left == 0) return;
    if (!exchange->Write(std::string(256 << 10, 'x'))) {
      *refused = true;
      return;
    }
    exchange->Post([exchange, refused, left] { Pump(exchange, refused, left - 1); });
  }

  IoPool io_{2};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start(Echo);
  TestClient client(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send("POST", "/a/b?c=d", "body" + std::to_string(i)));
    const TestResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /a/b c=d body" + std::to_string(i));
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start(Echo);
  TestClient client(port());
  ASSERT_TRUE(
      client.SendRaw("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"
                     "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(client.Read().body, "GET /1  ");
  EXPECT_EQ(client.Read().body, "GET /2  ");
  EXPECT_EQ(client.Read().body, "GET /3  ");
}

TEST_F(HttpServerTest, RequestThatArrivesByteByByte) {
  Start(Echo);
  TestClient client(port());
  for (const char c : std::string("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")) {
    ASSERT_TRUE(client.SendRaw(std::string(1, c)));
  }
  EXPECT_EQ(client.Read().body, "POST /x  hi");
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start(Echo);
  TestClient client(port());
  ASSERT_TRUE(client.Send("HEAD", "/x"));
  const auto head = client.ReadHead();
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->status, 200);
  ASSERT_TRUE(client.Send("GET", "/y"));
  EXPECT_EQ(client.Read().body, "GET /y  ");
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  Start(Echo);
  TestClient client(port());
  ASSERT_TRUE(client.SendRaw(
      "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  const auto interim = client.ReadHead();
  ASSERT_TRUE(interim.has_value());
  EXPECT_EQ(interim->status, 100);
  ASSERT_TRUE(client.SendRaw("ok"));
  EXPECT_EQ(client.Read().body, "POST /x  ok");
}

TEST_F(HttpServerTest, ConnectionCloseIsObeyed) {
  Start(Echo);
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET", "/x", "", {{"Connection", "close"}}));
  const TestResponse response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("Connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, TooLargeBodyIs413WhetherAnnouncedOrChunked) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  Start(Echo, limits);
  EXPECT_EQ(Fetch(port(), "POST", "/x", std::string(1000, 'a')).status, 200);
  const TestResponse announced = Fetch(port(), "POST", "/x", std::string(1001, 'a'));
  EXPECT_EQ(announced.status, 413);
  EXPECT_THAT(announced.body, ::testing::HasSubstr("1000 bytes"));
  TestClient client(port());
  ASSERT_TRUE(
      client.SendRaw("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                     std::string(2000, 'b') + "\r\n0\r\n\r\n"));
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(HttpServerTest, TooLargeHeaderIs431) {
  HttpLimits limits;
  limits.header_bytes = 4096;
  Start(Echo, limits);
  EXPECT_EQ(Fetch(port(), "GET", "/x", "", {{"X-Long", std::string(10000, 'a')}}).status, 431);
}

TEST_F(HttpServerTest, GarbageIs400AndHarmsNobodyElse) {
  Start(Echo);
  TestClient other(port());
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello\r\n\r\n"),
        std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    TestClient client(port());
    ASSERT_TRUE(client.SendRaw(garbage));
    EXPECT_EQ(client.Read().status, 400) << garbage;
  }
  ASSERT_TRUE(other.Send("GET", "/x"));
  EXPECT_EQ(other.Read().status, 200);
}

TEST_F(HttpServerTest, HalfARequestTimesOut) {
  HttpLimits limits;
  limits.read_ms = 50;
  Start(Echo, limits);
  TestClient client(port());
  ASSERT_TRUE(client.SendRaw("GET / HTTP/1.1\r\nHost:"));
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, IdleConnectionTimesOut) {
  HttpLimits limits;
  limits.idle_ms = 50;
  Start(Echo, limits);
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET", "/x"));
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, TooManyConnectionsAre503) {
  HttpLimits limits;
  limits.connections_max = 1;
  Start(Echo, limits);
  TestClient first(port());
  ASSERT_TRUE(first.Send("GET", "/x"));
  EXPECT_EQ(first.Read().status, 200);
  TestClient second(port());
  const TestResponse response = second.Read();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.header("Retry-After"), "1");
}

TEST_F(HttpServerTest, StreamsChunksAsTheyCome) {
  std::shared_ptr<Exchange> held;
  std::atomic<bool> ready{false};
  Start([&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->BeginStream({});
    held = std::move(exchange);
    ready = true;
  });
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET", "/x"));
  ASSERT_TRUE(client.ReadHead().has_value());
  ASSERT_TRUE(Eventually([&] { return ready.load(); }));
  for (int i = 0; i < 5; ++i) {
    held->Post([exchange = held.get(), i] { exchange->Write("piece" + std::to_string(i)); });
    EXPECT_EQ(client.NextChunk(), "piece" + std::to_string(i));
  }
  held->Post([exchange = held.get()] { exchange->End(); });
  EXPECT_EQ(client.NextChunk(), std::nullopt);
  EXPECT_TRUE(client.complete());
  held.reset();
  EXPECT_TRUE(Eventually([&] { return server_->unanswered() == 0; }));
}

TEST_F(HttpServerTest, LeavingClientIsNoticedWhileNothingIsDue) {
  std::shared_ptr<Exchange> held;
  std::atomic<int> closed{0};
  std::atomic<bool> ready{false};
  Start([&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->OnClosed([&] { closed.fetch_add(1); });
    exchange->BeginStream({});
    held = std::move(exchange);
    ready = true;
  });
  for (const bool hard : {false, true}) {
    TestClient client(port());
    ASSERT_TRUE(client.Send("GET", "/x"));
    ASSERT_TRUE(client.ReadHead().has_value());
    ASSERT_TRUE(Eventually([&] { return ready.load(); }));
    closed = 0;
    if (hard) {
      client.Reset();
    } else {
      client.Close();
    }
    EXPECT_TRUE(Eventually([&] { return closed.load() == 1; }));
    ready = false;
  }
  held.reset();
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ClientThatDoesNotReadIsCutOffAtTheBound) {
  HttpLimits limits;
  limits.stream_buffer_bytes = 1 << 20;
  std::atomic<bool> refused{false};
  std::atomic<bool> closed{false};
  Start(
      [&](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
        exchange->OnClosed([&] { closed = true; });
        exchange->BeginStream({});
        Pump(exchange, &refused, 200);
      },
      limits);
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET", "/x"));
  EXPECT_TRUE(Eventually([&] { return refused.load() && closed.load(); }));
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, DroppedExchangeIsAnsweredWith500) {
  Start([](const HttpRequest&, const std::shared_ptr<Exchange>&) {});
  EXPECT_EQ(Fetch(port(), "GET", "/x").status, 500);
}

TEST_F(HttpServerTest, PortInUseIsAClearError) {
  Start(Echo);
  HttpServer second(&io_, HttpServerOptions{"127.0.0.1", port(), {}}, Echo);
  const Status status = second.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("choose another --port"));
}

TEST_F(HttpServerTest, ExchangeMayOutliveThePool) {
  std::shared_ptr<Exchange> held;
  std::atomic<bool> ready{false};
  Start([&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    held = std::move(exchange);
    ready = true;
  });
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET", "/x"));
  ASSERT_TRUE(Eventually([&] { return ready.load(); }));
  io_.Stop();
  held->Post([] { FAIL() << "ran after Stop"; });
  held.reset();
}

}  // namespace
}  // namespace baton::server
