#include "server/http_connection.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/match.h"
#include "server/http_answer.h"

namespace baton::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

// Counts a request until its answer has been written or given up.
class Unanswered {
 public:
  explicit Unanswered(HttpServerShared* shared) : shared_(shared) {
    shared_->unanswered.fetch_add(1);
  }
  ~Unanswered() { shared_->unanswered.fetch_sub(1); }
  Unanswered(const Unanswered&) = delete;
  Unanswered& operator=(const Unanswered&) = delete;

 private:
  HttpServerShared* const shared_;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServerShared> shared,
             std::shared_ptr<Loop> loop,
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
    if (!error &&
        absl::EqualsIgnoreCase(ToView(parser.get()[beast::http::field::expect]), "100-continue")) {
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
      co_await WriteAndClose(
          413, Cat("request body is larger than the limit of ", limits.body_bytes, " bytes"));
    } else if (error == beast::http::error::header_limit ||
               error == beast::http::error::buffer_overflow) {
      co_await WriteAndClose(
          431, Cat("request header is larger than the limit of ", limits.header_bytes, " bytes"));
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
    response.body = TransportErrorBody(status, message);
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
      drained += co_await stream_.async_read_some(buffer_.prepare(kReadBytes),
                                                  asio::redirect_error(asio::use_awaitable, error));
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

}  // namespace

void ServeConnection(std::shared_ptr<HttpServerShared> shared,
                     std::shared_ptr<Loop> loop,
                     tcp::socket socket) {
  shared->connections.fetch_add(1);
  auto connection = std::make_shared<Connection>(std::move(shared), loop, std::move(socket));
  asio::co_spawn(
      loop->context(), [connection]() -> asio::awaitable<void> { co_await connection->Serve(); },
      [connection](const std::exception_ptr& exception) {
        if (!exception) return;
        try {
          std::rethrow_exception(exception);
        } catch (const std::exception& e) {
          LogError(Cat("HTTP connection ended by an exception: ", e.what()));
        }
      });
}

}  // namespace baton::server
