#include "server/http_client.h"

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "server/asio_loop.h"
#include "server/cat.h"

namespace baton::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

StatusOr<HttpAddress> ParseHttpAddress(std::string_view url) {
  absl::string_view rest = AbslView(url);
  absl::ConsumePrefix(&rest, "http://");
  absl::ConsumeSuffix(&rest, "/");
  HttpAddress address;
  size_t colon = rest.rfind(':');
  if (colon != absl::string_view::npos && rest.find(']', colon) != absl::string_view::npos) {
    colon = absl::string_view::npos;  // inside of "[::1]"
  }
  uint32_t port = 80;
  if (colon != absl::string_view::npos &&
      (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port == 0 || port > 65535)) {
    port = 0;
  }
  absl::string_view host = rest.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  address.host = std::string(host);
  if (host.empty() || port == 0 || absl::StrContains(host, "/")) {
    return absl::InvalidArgumentError(
        Cat("'", url, "' is not a worker's address; expected http://HOST:PORT"));
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

namespace {

struct Peer {
  explicit Peer(asio::io_context& context) : stream(context) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

// Idle connections of one loop, by address. Used on that loop only; owned by its coroutines and
// the client, so it holds no loop.
struct IdlePeers {
  std::map<std::string, std::vector<std::unique_ptr<Peer>>> by_address;
};

}  // namespace

struct HttpClientShared {
  std::shared_ptr<IoPool::Impl> loops;
  HttpClient::Options options;
};

namespace {

class CallImpl final : public ClientCall, public std::enable_shared_from_this<CallImpl> {
 public:
  CallImpl(std::shared_ptr<HttpClientShared> shared,
           std::shared_ptr<Loop> loop,
           ClientRequest request)
      : shared_(std::move(shared)), loop_(std::move(loop)), request_(std::move(request)) {}

  void Launch(std::shared_ptr<ClientHandler> handler) {
    loop_->Post([self = shared_from_this(), handler] {
      asio::co_spawn(
          self->loop_->context(),
          [self, handler]() -> asio::awaitable<void> {
            Status status = co_await self->Run(handler.get());
            self->peer_ = nullptr;
            handler->OnDone(self->cancelled_ ? absl::CancelledError("call cancelled") : status);
          },
          [](const std::exception_ptr& exception) {
            if (!exception) return;
            try {
              std::rethrow_exception(exception);
            } catch (const std::exception& e) {
              LogError(Cat("HTTP call ended by an exception: ", e.what()));
            }
          });
    });
  }

  void Cancel() override {
    loop_->Post([self = shared_from_this()] {
      self->cancelled_ = true;
      if (self->peer_ != nullptr) self->peer_->stream.close();
    });
  }

 private:
  using Parser = beast::http::response_parser<beast::http::buffer_body>;

  Status Lost(std::string_view what, error_code error) const {
    return absl::UnavailableError(Cat(
        what, " ", request_.address.Name(),
        " failed: ", error == beast::error::timeout ? std::string("timed out") : error.message()));
  }

  asio::awaitable<Status> Run(ClientHandler* handler) {
    std::string head = Cat(request_.method, " ", request_.target,
                           " HTTP/1.1\r\nHost: ", request_.address.Name(), "\r\n");
    for (const auto& [name, value] : request_.headers) CatTo(&head, name, ": ", value, "\r\n");
    CatTo(&head, "Content-Length: ", request_.body.size(), "\r\n\r\n");
    std::string bytes = std::move(head) + request_.body;

    // A kept connection may have been closed by the peer in the meantime. Then, and only if not a
    // byte of an answer came, the call is repeated once on a fresh one.
    std::unique_ptr<Peer> peer = TakeIdle();
    if (peer) {
      peer_ = peer.get();
      bool answered = false;
      Status status = co_await Converse(peer.get(), bytes, handler, &answered);
      if (status.ok()) KeepIdle(std::move(peer));
      if (status.ok() || answered || cancelled_) co_return status;
      peer_ = nullptr;
    }
    peer = std::make_unique<Peer>(loop_->context());
    peer_ = peer.get();
    Status status = co_await Connect(peer.get());
    bool answered = false;
    if (status.ok()) status = co_await Converse(peer.get(), bytes, handler, &answered);
    if (status.ok()) KeepIdle(std::move(peer));
    co_return status;
  }

  asio::awaitable<Status> Connect(Peer* peer) {
    error_code error;
    peer->stream.expires_after(std::chrono::milliseconds(request_.connect_ms));
    const asio::ip::address literal = asio::ip::make_address(request_.address.host, error);
    if (!error) {
      co_await peer->stream.async_connect(tcp::endpoint(literal, request_.address.port),
                                          asio::redirect_error(asio::use_awaitable, error));
    } else {
      tcp::resolver resolver(loop_->context());
      const auto results = co_await resolver.async_resolve(
          request_.address.host, std::to_string(request_.address.port),
          asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return Lost("resolving", error);
      if (cancelled_) co_return absl::CancelledError("call cancelled");
      co_await peer->stream.async_connect(results,
                                          asio::redirect_error(asio::use_awaitable, error));
    }
    if (error) co_return Lost("connecting to", error);
    if (cancelled_) co_return absl::CancelledError("call cancelled");
    peer->stream.socket().set_option(tcp::no_delay(true), error);
    peer->stream.socket().set_option(asio::socket_base::keep_alive(true), error);
    co_return absl::OkStatus();
  }

  asio::awaitable<Status> Converse(Peer* peer,
                                   const std::string& bytes,
                                   ClientHandler* handler,
                                   bool* answered) {
    error_code error;
    peer->stream.expires_after(std::chrono::milliseconds(request_.head_ms));
    co_await asio::async_write(peer->stream, asio::buffer(bytes),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return Lost("sending to", error);
    Parser parser;
    parser.body_limit(boost::none);
    parser.header_limit(64 << 10);
    co_await beast::http::async_read_header(peer->stream, peer->buffer, parser,
                                            asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return ReadError(error);
    *answered = true;
    HttpHeaders headers;
    for (const auto& field : parser.get()) {
      headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    handler->OnHead(static_cast<int>(parser.get().result_int()), headers);
    std::array<char, 16 << 10> piece;
    while (!parser.is_done() && !cancelled_) {
      if (request_.body_ms > 0) {
        peer->stream.expires_after(std::chrono::milliseconds(request_.body_ms));
      } else {
        peer->stream.expires_never();
      }
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      co_await beast::http::async_read_some(peer->stream, peer->buffer, parser,
                                            asio::redirect_error(asio::use_awaitable, error));
      const size_t n = piece.size() - parser.get().body().size;
      if (n > 0 && !cancelled_) handler->OnData(std::string_view(piece.data(), n));
      if (error && error != beast::http::error::need_buffer) co_return ReadError(error);
    }
    if (cancelled_) co_return absl::CancelledError("call cancelled");
    peer->stream.expires_never();
    reusable_ = parser.get().keep_alive();
    co_return absl::OkStatus();
  }

  Status ReadError(error_code error) const {
    const bool malformed = error.category() == HttpCategory() &&
                           error != beast::http::error::end_of_stream &&
                           error != beast::http::error::partial_message;
    if (!malformed) return Lost("reading from", error);
    return absl::InternalError(
        Cat("the answer of ", request_.address.Name(), " is not HTTP/1.1: ", error.message()));
  }

  static const boost::system::error_category& HttpCategory() {
    static const error_code kAny = beast::http::error::bad_target;
    return kAny.category();
  }

  IdlePeers& Idle() { return asio::use_service<IdleService>(loop_->context()).peers; }

  // Idle connections live in the io_context, so they end with it and need no lock.
  class IdleService final : public asio::execution_context::service {
   public:
    using key_type = IdleService;
    static inline asio::execution_context::id id;
    explicit IdleService(asio::execution_context& context) : service(context) {}
    void shutdown() override { peers.by_address.clear(); }
    IdlePeers peers;
  };

  std::unique_ptr<Peer> TakeIdle() {
    auto& list = Idle().by_address[request_.address.Name()];
    if (list.empty()) return nullptr;
    std::unique_ptr<Peer> peer = std::move(list.back());
    list.pop_back();
    return peer;
  }

  void KeepIdle(std::unique_ptr<Peer> peer) {
    auto& list = Idle().by_address[request_.address.Name()];
    if (reusable_ && peer->stream.socket().is_open() &&
        list.size() < shared_->options.idle_connections_max) {
      list.push_back(std::move(peer));
    }
  }

  const std::shared_ptr<HttpClientShared> shared_;
  const std::shared_ptr<Loop> loop_;
  const ClientRequest request_;
  // On the loop only:
  Peer* peer_ = nullptr;
  bool cancelled_ = false;
  bool reusable_ = false;
};

}  // namespace

HttpClient::HttpClient(IoPool* pool, Options options)
    : shared_(std::make_shared<HttpClientShared>()) {
  shared_->loops = pool->impl();
  shared_->options = options;
}

HttpClient::~HttpClient() = default;

std::shared_ptr<ClientCall> HttpClient::Start(ClientRequest request,
                                              std::shared_ptr<ClientHandler> handler) {
  auto call = std::make_shared<CallImpl>(shared_, shared_->loops->Next(), std::move(request));
  call->Launch(std::move(handler));
  return call;
}

}  // namespace baton::server
