#include "server/http_server.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "server/cat.h"
#include "server/http_connection.h"

namespace baton::server {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

asio::awaitable<void> AcceptLoop(std::shared_ptr<HttpServerShared> shared,
                                 std::shared_ptr<tcp::acceptor> acceptor) {
  while (acceptor->is_open()) {
    std::shared_ptr<Loop> loop = shared->loops->Next();
    error_code error;
    tcp::socket socket = co_await acceptor->async_accept(
        loop->context(), asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) break;
    if (error) {
      // Out of descriptors, most likely: wait instead of spinning on the same error.
      LogWarning(Cat("accept failed: ", error.message()));
      asio::steady_timer pause(shared->accept_loop->context(), std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    auto moved = std::make_shared<tcp::socket>(std::move(socket));
    loop->Post([shared, loop, moved] { ServeConnection(shared, loop, std::move(*moved)); });
  }
}

StatusOr<tcp::endpoint> ResolveBind(asio::io_context& context,
                                    const std::string& host,
                                    uint16_t port) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) return tcp::endpoint(address, port);
  tcp::resolver resolver(context);
  const auto results = resolver.resolve(host, std::to_string(port), error);
  if (error || results.empty()) {
    return absl::InvalidArgumentError(Cat("cannot resolve host '", host, "': ", error.message(),
                                          "; give an address such as 127.0.0.1"));
  }
  return results.begin()->endpoint();
}

}  // namespace

HttpServer::HttpServer(IoPool* pool, HttpServerOptions options, HttpHandler handler)
    : shared_(std::make_shared<HttpServerShared>()) {
  shared_->pool = pool;
  shared_->loops = pool->impl();
  shared_->options = std::move(options);
  shared_->handler = std::move(handler);
  shared_->accept_loop = shared_->loops->loops.front();
}

HttpServer::~HttpServer() { StopAccepting(); }

Status HttpServer::Start() {
  const HttpServerOptions& options = shared_->options;
  asio::io_context& context = shared_->accept_loop->context();
  BATON_ASSIGN_OR_RETURN(const tcp::endpoint endpoint,
                         ResolveBind(context, options.host, options.port));
  auto acceptor = std::make_shared<tcp::acceptor>(context);
  error_code error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return absl::UnavailableError(Cat("cannot listen on ", options.host, ":", options.port, ": ",
                                      error.message(),
                                      "; choose another --port or end what uses it"));
  }
  shared_->port = acceptor->local_endpoint(error).port();
  shared_->acceptor = acceptor;
  asio::co_spawn(context, AcceptLoop(shared_, acceptor), asio::detached);
  return absl::OkStatus();
}

uint16_t HttpServer::port() const { return shared_->port.load(); }

void HttpServer::StopAccepting() {
  shared_->accept_loop->Post([shared = shared_] {
    error_code error;
    if (auto acceptor = shared->acceptor.lock()) acceptor->close(error);
  });
}

int64_t HttpServer::connections() const { return shared_->connections.load(); }

int64_t HttpServer::unanswered() const { return shared_->unanswered.load(); }

}  // namespace baton::server
