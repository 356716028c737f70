#include "server/server.h"

#include <thread>
#include <utility>

#include "server/cat.h"

namespace baton::server {
namespace {

constexpr Duration kAbortGrace = std::chrono::seconds(5);
constexpr Duration kWriteGrace = std::chrono::seconds(2);

}  // namespace

Server::Server(IoPool* io, ServerOptions options, ApiDeps deps)
    : options_(std::move(options)),
      service_(std::make_shared<ApiService>(options_.api, std::move(deps))),
      http_(std::make_unique<HttpServer>(
          io,
          options_.http,
          [service = service_](HttpRequest request, std::shared_ptr<Exchange> exchange) {
            service->Handle(std::move(request), std::move(exchange));
          })) {}

Server::~Server() { Stop(); }

Status Server::Start() { return http_->Start(); }

std::string Server::address() const { return Cat("http://", options_.http.host, ":", port()); }

bool Server::Drain(Duration timeout) {
  service_->SetDraining();
  const bool idle = service_->calls().WaitIdle(timeout);
  if (!idle) {
    service_->calls().AbortAll();
    service_->calls().WaitIdle(kAbortGrace);
  }
  AwaitWritten(kWriteGrace);
  return idle;
}

// The last bytes of an answer leave after its call has ended.
void Server::AwaitWritten(Duration timeout) const {
  const MonotonicClock clock;
  const Instant deadline = clock.Now() + timeout;
  while (http_->unanswered() > 0 && clock.Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Server::Stop() {
  if (std::exchange(stopped_, true)) return;
  service_->SetDraining();
  http_->StopAccepting();
  service_->calls().AbortAll();
  service_->calls().WaitIdle(kAbortGrace);
}

}  // namespace baton::server
