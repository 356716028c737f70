// HTTP/1.1 client for the router: one call, its answer delivered piece by piece, connections kept
// alive and reused. Cancelling closes the connection, which is how a worker learns of it. No TLS,
// no redirects, no proxies.
//
// Thread rule: Start and Cancel are thread-safe. A handler is called from one pool thread; it must
// not block. The IoPool must be stopped before the client is destroyed.
#ifndef BATON_SERVER_HTTP_CLIENT_H_
#define BATON_SERVER_HTTP_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http.h"
#include "server/io_pool.h"

namespace baton::server {

// Where a worker listens.
struct HttpAddress {
  std::string host;
  uint16_t port = 0;

  // "host:port", which also names the worker in messages and headers.
  std::string Name() const {
    const bool v6 = host.find(':') != std::string::npos;
    return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  }
  friend bool operator==(const HttpAddress&, const HttpAddress&) = default;
};

// Of "http://host:port", "http://host" (port 80), "host:port" or "[::1]:port". The error shows what
// is expected.
StatusOr<HttpAddress> ParseHttpAddress(std::string_view url);

struct ClientRequest {
  HttpAddress address;
  std::string method = "GET";
  std::string target = "/";
  HttpHeaders headers;  // besides Host, Content-Length
  std::string body;
  int64_t connect_ms = 2'000;
  int64_t head_ms = 30'000;  // from sending to the head of the answer
  int64_t body_ms = 0;       // between two pieces of the body; 0: for ever
};

class ClientHandler {
 public:
  virtual ~ClientHandler() = default;
  virtual void OnHead(int status, const HttpHeaders& headers) = 0;
  virtual void OnData(std::string_view data) = 0;
  // Exactly once, last. Ok: the whole answer arrived. kUnavailable: no connection, connection lost
  // or a timeout. kCancelled: Cancel. kInternal: the peer does not speak HTTP.
  virtual void OnDone(const Status& status) = 0;
};

class ClientCall {
 public:
  virtual ~ClientCall() = default;
  virtual void Cancel() = 0;  // idempotent; OnDone follows unless it was called already
};

struct HttpClientShared;  // defined with the implementation

class HttpClient {
 public:
  struct Options {
    size_t idle_connections_max = 64;  // kept alive per address and loop
  };
  HttpClient(IoPool* pool, Options options);
  ~HttpClient();

  std::shared_ptr<ClientCall> Start(ClientRequest request, std::shared_ptr<ClientHandler> handler);

 private:
  std::shared_ptr<HttpClientShared> shared_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_HTTP_CLIENT_H_
