#include "sim/http.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/io_pool.h"

namespace baton::sim {
namespace {

SimHttp* g_http = nullptr;

}  // namespace

// One request under way, both ends of it: the worker's Exchange and the router's ClientCall.
class SimExchange final : public server::Exchange,
                          public std::enable_shared_from_this<SimExchange> {
 public:
  SimExchange(SimHttp* http,
              uint64_t id,
              MachinePtr machine,
              std::shared_ptr<server::ClientHandler> handler)
      : http_(http), id_(id), machine_(std::move(machine)), handler_(std::move(handler)) {}
  ~SimExchange() override { http_->Closed(this); }

  void Send(server::HttpResponse response) override {
    if (answered_) return;
    answered_ = true;
    ToClient([this, status = response.status] { handler_->OnHead(status, {}); });
    ToClient([this, body = std::move(response.body)] { handler_->OnData(body); });
    ToClient([this] { Done(absl::OkStatus()); });
  }
  void BeginStream(server::HttpResponse head) override {
    if (answered_) return;
    answered_ = true;
    ToClient([this, status = head.status] { handler_->OnHead(status, {}); });
  }
  bool Write(std::string_view data) override {
    if (gone_) return false;
    ToClient([this, text = std::string(data)] { handler_->OnData(text); });
    return true;
  }
  void End() override {
    ToClient([this] { Done(absl::OkStatus()); });
  }
  void OnClosed(std::function<void()> fn) override {
    if (gone_)
      fn();
    else
      on_closed_ = std::move(fn);
  }
  void Post(std::function<void()> fn) override {
    http_->loop().At(http_->scheduler().now(),
                     [self = shared_from_this(), fn = std::move(fn)] { fn(); });
  }

  // The router gives up; the worker learns of it a little later.
  void Cancel() {
    if (done_) return;
    ToClientNow([this] { Done(absl::CancelledError("cancelled")); });
    http_->loop().At(http_->scheduler().now() + http_->Latency(), [self = shared_from_this()] {
      self->gone_ = true;
      if (self->on_closed_) std::exchange(self->on_closed_, nullptr)();
    });
  }
  // The machine has died, or the connection has broken.
  void Lose(bool machine_too) {
    lost_ = true;
    http_->loop().At(http_->scheduler().now() + http_->Latency(), [self = shared_from_this()] {
      self->Done(absl::UnavailableError("connection lost"));
    });
    gone_ = true;
    if (!machine_too && on_closed_) Post(std::exchange(on_closed_, nullptr));
    on_closed_ = nullptr;
  }
  void Done(const Status& status) {
    if (std::exchange(done_, true)) return;
    const auto handler = std::exchange(handler_, nullptr);
    handler->OnDone(status);
  }
  const Machine& machine() const { return *machine_; }
  uint64_t id() const { return id_; }
  bool gone() const { return gone_; }

 private:
  void ToClient(std::function<void()> fn) {
    if (gone_ || lost_) return;
    last_ = std::max(last_, http_->scheduler().now() + http_->Latency());
    http_->loop().At(last_, [self = shared_from_this(), fn = std::move(fn)] {
      if (!self->done_ && !self->lost_) fn();
    });
  }
  void ToClientNow(std::function<void()> fn) {
    http_->loop().At(http_->scheduler().now(), [self = shared_from_this(), fn = std::move(fn)] {
      if (!self->done_) fn();
    });
  }

  SimHttp* const http_;
  const uint64_t id_;
  const MachinePtr machine_;
  std::shared_ptr<server::ClientHandler> handler_;
  std::function<void()> on_closed_;
  bool answered_ = false;
  bool gone_ = false;  // the client has left
  bool lost_ = false;
  bool done_ = false;
  Instant last_{};
};

namespace {

// A worker may end an exchange long after the router has dropped the call.
class SimCall final : public server::ClientCall {
 public:
  explicit SimCall(std::shared_ptr<SimExchange> exchange) : exchange_(std::move(exchange)) {}
  void Cancel() override { exchange_->Cancel(); }

 private:
  const std::shared_ptr<SimExchange> exchange_;
};

}  // namespace

SimHttp::SimHttp(Scheduler* scheduler, Trace* trace, FaultPlan* plan)
    : scheduler_(scheduler), trace_(trace), plan_(plan), loop_(scheduler, "io") {
  g_http = this;
}
SimHttp::~SimHttp() {
  Stop();
  g_http = nullptr;
}
SimHttp* SimHttp::current() { return g_http; }
void SimHttp::Stop() { loop_.Stop(); }

Duration SimHttp::Latency() { return std::chrono::microseconds(20 + scheduler_->rng().Below(100)); }

void SimHttp::Serve(uint16_t port, MachinePtr machine, server::HttpHandler handler) {
  hosts_[port] = {std::move(machine), std::move(handler)};
}

void SimHttp::Cut(const Machine& machine) {
  for (const auto& [id, weak] : exchanges_)
    if (auto exchange = weak.lock(); exchange != nullptr && &exchange->machine() == &machine)
      exchange->Lose(/*machine_too=*/true);
}

void SimHttp::Closed(const SimExchange* exchange) { exchanges_.erase(exchange->id()); }

std::shared_ptr<server::ClientCall> SimHttp::Start(server::ClientRequest request,
                                                   std::shared_ptr<server::ClientHandler> handler) {
  const auto host = hosts_.find(request.address.port);
  const MachinePtr machine =
      host == hosts_.end() ? std::make_shared<Machine>() : host->second.machine;
  auto exchange = std::make_shared<SimExchange>(this, next_id_++, machine, std::move(handler));
  exchanges_[exchange->id()] = exchange;
  const uint16_t port = request.address.port;
  loop_.At(scheduler_->now() + Latency(), [this, port, exchange, r = std::move(request)] {
    const auto it = hosts_.find(port);
    if (it == hosts_.end() || !it->second.machine->up ||
        it->second.machine.get() != &exchange->machine())
      return exchange->Done(absl::UnavailableError("connection refused"));
    if (exchange->gone()) return;
    trace_->Event("http", exchange->id(), port, [&] {
      return absl::StrCat(r.method, " ", r.target, " ", exchange->machine().name);
    });
    server::HttpRequest in;
    in.method = r.method;
    in.path = r.target;
    in.body = r.body;
    it->second.handler(std::move(in), exchange);
  });
  return std::make_shared<SimCall>(exchange);
}

}  // namespace baton::sim

// The production headers' classes, over the simulated wire.
namespace baton::server {

struct IoPool::Impl {
  bool stopped = false;
};

IoPool::IoPool(int) : impl_(std::make_shared<Impl>()) {}
IoPool::~IoPool() { Stop(); }
void IoPool::Stop() { impl_->stopped = true; }

namespace {
class SimTimer final : public IoTimer {
 public:
  void Cancel() override { cancelled = true; }
  bool cancelled = false;
};
}  // namespace

std::shared_ptr<IoTimer> IoPool::After(Duration delay, std::function<void()> fn) {
  auto timer = std::make_shared<SimTimer>();
  sim::SimHttp* http = sim::SimHttp::current();
  http->loop().At(http->scheduler().now() + delay, [timer, impl = impl_, fn = std::move(fn)] {
    if (!timer->cancelled && !impl->stopped) fn();
  });
  return timer;
}

struct HttpClientShared {};

HttpClient::HttpClient(IoPool*, Options) {}
HttpClient::~HttpClient() = default;
std::shared_ptr<ClientCall> HttpClient::Start(ClientRequest request,
                                              std::shared_ptr<ClientHandler> handler) {
  return sim::SimHttp::current()->Start(std::move(request), std::move(handler));
}

}  // namespace baton::server
