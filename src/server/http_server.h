// HTTP/1.1 server: keep-alive, bounded sizes, timeouts, chunked answers with a bounded buffer, and
// a parallel wait for the client's leaving while an answer is under way. A client that shuts down
// its sending side counts as gone. No TLS, no HTTP/2, no routes.
//
// Thread rule: Start, StopAccepting and Stop from one thread; the handler runs on the pool's
// threads. Connections end with the IoPool, which must be stopped before the server is destroyed.
#ifndef BATON_SERVER_HTTP_SERVER_H_
#define BATON_SERVER_HTTP_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"
#include "server/io_pool.h"

namespace baton::server {

struct HttpServerShared;  // defined with the implementation

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // address or name to bind
  uint16_t port = 8000;            // 0: any free port
  HttpLimits limits;
};

class HttpServer {
 public:
  HttpServer(IoPool* pool, HttpServerOptions options, HttpHandler handler);
  ~HttpServer();

  // Binds and listens. The error names the address and what to do.
  Status Start();
  uint16_t port() const;  // the bound port, after Start
  // Closes the listening socket; open connections go on.
  void StopAccepting();
  int64_t connections() const;
  // Requests whose answer has not been written to the end.
  int64_t unanswered() const;

 private:
  std::shared_ptr<HttpServerShared> shared_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_HTTP_SERVER_H_
