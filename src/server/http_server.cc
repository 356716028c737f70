#include "server/http_server.h"

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/match.h"
#include "base/log.h"
#include "server/asio_loop.h"
#include "server/cat.h"

namespace baton::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

struct HttpServerShared {
  IoPool* pool = nullptr;
  std::shared_ptr<IoPool::Impl> loops;
  HttpServerOptions options;
  HttpHandler handler;
  std::shared_ptr<Loop> accept_loop;
  std::weak_ptr<tcp::acceptor> acceptor;
  std::atomic<uint16_t> port{0};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> unanswered{0};
};

namespace {

// The bytes of a head. `length` is absent for chunked answers.
std::string FormatHead(const HttpResponse& response, std::optional<size_t> length,
                       bool keep_alive) {
  std::string head = Cat("HTTP/1.1 ", response.status, " ",
                                  HttpStatusPhrase(response.status),
                                  "\r\nContent-Type: ", response.content_type, "\r\n");
  for (const auto& [name, value] : response.headers) CatTo(&head, name, ": ", value, "\r\n");
  if (length.has_value()) {
    CatTo(&head, "Content-Length: ", *length, "\r\n");
  } else {
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive) head += "Connection: close\r\n";
  head += "\r\n";
  return head;
}

void AppendChunk(std::string* out, std::string_view data) {
  if (data.empty()) return;  // an empty chunk would end the answer
  CatTo(out, absl::Hex(data.size()), "\r\n", data,
                  "\r\n");
}

std::string ErrorBody(int status, std::string_view message) {
  return Cat(R"({"error":{"message":")", message,
                      R"(","type":"BadRequestError","param":null,"code":)", status, "}}");
}

// The answer under way on one connection. Lives on the connection's loop.
struct Answer {
  explicit Answer(asio::io_context& context) : wake(context) {}

  std::string pending;  // formatted bytes that wait to be written
  bool begun = false;
  bool ended = false;
  bool closed = false;  // the client is gone
  bool keep_alive = true;
  bool head_only = false;  // the request was HEAD
  size_t buffer_max = 0;
  std::function<void()> on_closed;
  std::function<void()> abort;  // closes the socket
  asio::steady_timer wake;  // never expires; cancelled to wake the writer

  void Wake() { wake.cancel(); }

  void MarkClosed() {
    if (closed) return;
    closed = true;
    pending.clear();
    Wake();
    if (on_closed && !ended) std::exchange(on_closed, nullptr)();
  }

  void Abort() {
    MarkClosed();
    if (abort) abort();
  }

  void Send(HttpResponse response) {
    if (begun || closed) return;
    begun = ended = true;
    pending = FormatHead(response, response.body.size(), keep_alive);
    if (!head_only) pending += response.body;
    Wake();
  }

  void BeginStream(HttpResponse head) {
    if (begun || closed) return;
    begun = true;
    pending = FormatHead(head, std::nullopt, keep_alive);
    if (!head_only) AppendChunk(&pending, head.body);
    Wake();
  }

  bool Write(std::string_view data) {
    if (closed || ended || !begun) return false;
    if (head_only) return true;
    if (pending.size() + data.size() > buffer_max) {
      LogWarning(Cat("a client reads too slowly: more than ", buffer_max,
                              " bytes wait for it; closing its connection"));
      Abort();
      return false;
    }
    AppendChunk(&pending, data);
    Wake();
    return true;
  }

  void End() {
    if (closed || ended || !begun) return;
    ended = true;
    if (!head_only) pending += "0\r\n\r\n";
    Wake();
  }
};

// What a handler holds. It may outlive loop and connection, so it owns neither.
class ExchangeImpl final : public Exchange {
 public:
  ExchangeImpl(std::shared_ptr<Loop> loop, std::weak_ptr<Answer> answer)
      : loop_(std::move(loop)), answer_(std::move(answer)) {}

  ~ExchangeImpl() override {
    loop_->Post([weak = answer_] {
      auto answer = weak.lock();
      if (!answer || answer->ended) return;
      if (answer->begun) {
        // The client must not take a cut stream for a whole one.
        answer->Abort();
        return;
      }
      HttpResponse response;
      response.status = 500;
      response.body = ErrorBody(500, "the request was dropped without an answer");
      answer->Send(std::move(response));
    });
  }

  void Send(HttpResponse response) override {
    if (auto answer = answer_.lock()) answer->Send(std::move(response));
  }
  void BeginStream(HttpResponse head) override {
    if (auto answer = answer_.lock()) answer->BeginStream(std::move(head));
  }
  bool Write(std::string_view data) override {
    auto answer = answer_.lock();
    return answer && answer->Write(data);
  }
  void End() override {
    if (auto answer = answer_.lock()) answer->End();
  }
  void OnClosed(std::function<void()> fn) override {
    auto answer = answer_.lock();
    if (!answer || answer->closed) {
      loop_->Post(std::move(fn));
      return;
    }
    answer->on_closed = std::move(fn);
  }
  void Post(std::function<void()> fn) override { loop_->Post(std::move(fn)); }

 private:
  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Answer> answer_;
};

// Counts a request until its answer has been written or given up.
class Unanswered {
 public:
  explicit Unanswered(HttpServerShared* shared) : shared_(shared) { shared_->unanswered.fetch_add(1); }
  ~Unanswered() { shared_->unanswered.fetch_sub(1); }
  Unanswered(const Unanswered&) = delete;
  Unanswered& operator=(const Unanswered&) = delete;

 private:
  HttpServerShared* const shared_;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServerShared> shared, std::shared_ptr<Loop> loop,
             tcp::socket socket)
      : shared_(std::move(shared)), loop_(std::move(loop)), stream_(std::move(socket)) {}

  ~Connection() { shared_->connections.fetch_sub(1); }

  asio::awaitable<void> Serve() {
    const HttpLimits& limits = shared_->options.limits;
    error_code error;
    stream_.socket().set_option(tcp::no_delay(true), error);
    stream_.socket().non_blocking(true, error);
    if (shared_->connections.load() > limits.connections_max) {
      co_await WriteAndClose(503, "too many connections; retry later");
      co_return;
    }
    bool keep_alive = true;
    while (keep_alive) {
      std::optional<HttpRequest> request = co_await ReadRequest(&keep_alive);
      if (!request.has_value()) break;
      keep_alive = co_await Respond(std::move(*request), keep_alive);
    }
    stream_.socket().shutdown(tcp::socket::shutdown_both, error);
    stream_.close();
  }

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;

  // The next request, or nothing if the connection is to be closed (an error has been answered).
  asio::awaitable<std::optional<HttpRequest>> ReadRequest(bool* keep_alive) {
    const HttpLimits& limits = shared_->options.limits;
    error_code error;
    if (buffer_.size() == 0) {
      stream_.expires_after(std::chrono::milliseconds(limits.idle_ms));
      const size_t n = co_await stream_.async_read_some(
          buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return std::nullopt;
      buffer_.commit(n);
    }
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
    stream_.expires_after(std::chrono::milliseconds(limits.read_ms));
    co_await beast::http::async_read_header(stream_, buffer_, parser,
                                            asio::redirect_error(asio::use_awaitable, error));
    if (!error && absl::EqualsIgnoreCase(ToView(parser.get()[beast::http::field::expect]),
                                         "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue),
                                 asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) {
      stream_.expires_after(std::chrono::milliseconds(limits.read_ms));
      co_await beast::http::async_read(stream_, buffer_, parser,
                                       asio::redirect_error(asio::use_awaitable, error));
    }
    stream_.expires_never();
    if (error) {
      co_await AnswerReadError(error);
      co_return std::nullopt;
    }
    *keep_alive = parser.get().keep_alive();
    co_return ToRequest(parser.release());
  }

  static absl::string_view ToView(beast::string_view s) { return {s.data(), s.size()}; }

  static HttpRequest ToRequest(beast::http::request<beast::http::string_body> message) {
    HttpRequest request;
    request.method = std::string(message.method_string());
    const std::string target(message.target());
    const size_t mark = target.find('?');
    request.path = target.substr(0, mark);
    if (mark != std::string::npos) request.query = target.substr(mark + 1);
    for (const auto& field : message) {
      request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    request.body = std::move(message.body());
    return request;
  }

  asio::awaitable<void> AnswerReadError(error_code error) {
    const HttpLimits& limits = shared_->options.limits;
    if (error == beast::http::error::body_limit) {
      co_await WriteAndClose(413, Cat("request body is larger than the limit of ",
                                               limits.body_bytes, " bytes"));
    } else if (error == beast::http::error::header_limit ||
               error == beast::http::error::buffer_overflow) {
      co_await WriteAndClose(431, Cat("request header is larger than the limit of ",
                                               limits.header_bytes, " bytes"));
    } else if (error.category() == BadTargetCategory() &&
               error != beast::http::error::end_of_stream &&
               error != beast::http::error::partial_message) {
      co_await WriteAndClose(400, Cat("not an HTTP/1.1 request: ", error.message()));
    }
    // Otherwise the client is gone or a timeout has closed the connection.
  }

  static const boost::system::error_category& BadTargetCategory() {
    static const error_code kAny = beast::http::error::bad_target;
    return kAny.category();
  }

  asio::awaitable<void> WriteAndClose(int status, std::string message) {
    HttpResponse response;
    response.status = status;
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    response.body = ErrorBody(status, message);
    const std::string bytes = FormatHead(response, response.body.size(), false) + response.body;
    error_code error;
    stream_.expires_after(std::chrono::milliseconds(kLingerMs));
    co_await asio::async_write(stream_, asio::buffer(bytes),
                               asio::redirect_error(asio::use_awaitable, error));
    // Unread bytes at close make the kernel send a reset, which can overtake the answer: read a
    // bounded amount of what the client still sends.
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    size_t drained = 0;
    buffer_.clear();
    while (!error && drained < kDrainBytesMax) {
      drained += co_await stream_.async_read_some(
          buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    }
  }

  // Lets the handler answer and writes what it says. Returns whether the connection goes on.
  asio::awaitable<bool> Respond(HttpRequest request, bool keep_alive) {
    auto answer = std::make_shared<Answer>(loop_->context());
    answer->wake.expires_at(asio::steady_timer::time_point::max());
    answer->keep_alive = keep_alive;
    answer->head_only = request.method == "HEAD";
    answer->buffer_max = shared_->options.limits.stream_buffer_bytes;
    answer->abort = [this] { stream_.close(); };
    answer_ = answer;
    ArmWatch();
    const Unanswered count(shared_.get());
    shared_->handler(std::move(request), std::make_shared<ExchangeImpl>(loop_, answer));
    error_code error;
    while (!answer->closed) {
      if (answer->pending.empty()) {
        if (answer->ended) break;
        co_await answer->wake.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      const std::string bytes = std::exchange(answer->pending, {});
      co_await WriteAll(bytes, &error);
      if (error) answer->MarkClosed();
    }
    answer_.reset();
    co_return keep_alive && !answer->closed;
  }

  // The timeout starts over with each piece, so that it bounds a stall and not a long answer.
  asio::awaitable<void> WriteAll(std::string_view bytes, error_code* error) {
    while (!bytes.empty()) {
      stream_.expires_after(std::chrono::milliseconds(shared_->options.limits.write_ms));
      const size_t n =
          co_await stream_.async_write_some(asio::buffer(bytes.substr(0, kWriteBytes)),
                                            asio::redirect_error(asio::use_awaitable, *error));
      if (*error) break;
      bytes.remove_prefix(n);
    }
    if (!*error) stream_.expires_never();
  }

  // Waits for the socket to become readable while an answer is under way. End of file then means
  // that the client has left; bytes are the next, pipelined request and are kept for it. The wait
  // may outlive the answer: it then ends with the next request's first bytes and does nothing.
  void ArmWatch() {
    if (watching_ || !stream_.socket().is_open()) return;
    watching_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](error_code error) {
                                  self->watching_ = false;
                                  if (!error) self->OnReadable();
                                });
  }

  void OnReadable() {
    auto answer = answer_.lock();
    if (!answer) return;
    error_code error;
    const size_t n = stream_.socket().read_some(buffer_.prepare(kReadBytes), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      ArmWatch();
    } else if (error) {
      answer->MarkClosed();
    } else {
      buffer_.commit(n);
      // Past this bound the client's leaving shows only when a write fails.
      if (buffer_.size() < kPipelineBytesMax) ArmWatch();
    }
  }

  static constexpr size_t kReadBytes = 16 << 10;
  static constexpr size_t kWriteBytes = 256 << 10;
  static constexpr size_t kPipelineBytesMax = 256 << 10;
  static constexpr size_t kDrainBytesMax = 1 << 20;
  static constexpr int64_t kLingerMs = 2'000;

  const std::shared_ptr<HttpServerShared> shared_;
  const std::shared_ptr<Loop> loop_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::weak_ptr<Answer> answer_;
  bool watching_ = false;
};

void SpawnConnection(std::shared_ptr<HttpServerShared> shared, std::shared_ptr<Loop> loop,
                     tcp::socket socket) {
  shared->connections.fetch_add(1);
  auto connection = std::make_shared<Connection>(std::move(shared), loop, std::move(socket));
  asio::co_spawn(
      loop->context(),
      [connection]() -> asio::awaitable<void> { co_await connection->Serve(); },
      [connection](const std::exception_ptr& exception) {
        if (!exception) return;
        try {
          std::rethrow_exception(exception);
        } catch (const std::exception& e) {
          LogError(Cat("HTTP connection ended by an exception: ", e.what()));
        }
      });
}

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
    loop->Post([shared, loop, moved] { SpawnConnection(shared, loop, std::move(*moved)); });
  }
}

StatusOr<tcp::endpoint> ResolveBind(asio::io_context& context, const std::string& host,
                                    uint16_t port) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) return tcp::endpoint(address, port);
  tcp::resolver resolver(context);
  const auto results = resolver.resolve(host, std::to_string(port), error);
  if (error || results.empty()) {
    return absl::InvalidArgumentError(Cat("cannot resolve host '", host,
                                                   "': ", error.message(),
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
    return absl::UnavailableError(Cat("cannot listen on ", options.host, ":",
                                               options.port, ": ", error.message(),
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
