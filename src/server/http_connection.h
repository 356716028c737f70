// One connection of the HTTP server: reads requests, lets the handler answer, writes. Inside of the
// HTTP server; everything that includes this pays for Asio.
// Thread rule: a connection lives on its loop.
#ifndef BATON_SERVER_HTTP_CONNECTION_H_
#define BATON_SERVER_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "server/asio_loop.h"
#include "server/http_server.h"

namespace baton::server {

// What acceptor and connections share.
struct HttpServerShared {
  IoPool* pool = nullptr;
  std::shared_ptr<IoPool::Impl> loops;
  HttpServerOptions options;
  HttpHandler handler;
  std::shared_ptr<Loop> accept_loop;
  std::weak_ptr<boost::asio::ip::tcp::acceptor> acceptor;
  std::atomic<uint16_t> port{0};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> unanswered{0};
};

// Serves `socket`, which belongs to `loop`, until its end. On the loop's thread.
void ServeConnection(std::shared_ptr<HttpServerShared> shared,
                     std::shared_ptr<Loop> loop,
                     boost::asio::ip::tcp::socket socket);

}  // namespace baton::server

#endif  // BATON_SERVER_HTTP_CONNECTION_H_
