// The HTTP face of a process: an ApiService behind an HttpServer, with an orderly end. main() does:
//
//   IoPool io(1);
//   Server server(&io, options, deps);
//   server.Start();  ...  on SIGTERM: server.Drain(timeout);
//   server.Stop(); io.Stop();              // then generator, text and engine may go
//
// Not here: signals, flags, model loading. Thread rule: methods from one thread, except that
// port() and service() may be read from any after Start.
#ifndef BATON_SERVER_SERVER_H_
#define BATON_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/api_service.h"
#include "server/http_server.h"
#include "server/io_pool.h"

namespace baton::server {

struct ServerOptions {
  HttpServerOptions http;
  ApiOptions api;
};

class Server {
 public:
  // `io` must outlive the server, and be stopped before generator and text are destroyed.
  Server(IoPool* io, ServerOptions options, ApiDeps deps);
  ~Server();

  Status Start();
  uint16_t port() const { return http_->port(); }
  // "http://host:port" as bound.
  std::string address() const;

  // /health answers 503, new generations are refused with 503, running ones go on. Returns when
  // none is left, or ends the remaining ones with an error after `timeout`; true if none had to be.
  bool Drain(Duration timeout);

  // Closes the listening socket and ends running requests. Idempotent.
  void Stop();

  ApiService& service() { return *service_; }

 private:
  void AwaitWritten(Duration timeout) const;

  const ServerOptions options_;
  const std::shared_ptr<ApiService> service_;
  const std::unique_ptr<HttpServer> http_;
  bool stopped_ = false;
};

}  // namespace baton::server

#endif  // BATON_SERVER_SERVER_H_
