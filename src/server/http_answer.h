// The writing side of one request on a connection, and the Exchange a handler holds of it. Inside
// of the HTTP server (http_connection.cc); everything that includes this pays for Asio.
//
// Thread rule: an Answer lives on its connection's loop; an ExchangeImpl may be destroyed anywhere.
#ifndef BATON_SERVER_HTTP_ANSWER_H_
#define BATON_SERVER_HTTP_ANSWER_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/asio_loop.h"
#include "server/cat.h"
#include "server/http.h"

namespace baton::server {

// The bytes of a head. `length` is absent for chunked answers.
inline std::string FormatHead(const HttpResponse& response,
                              std::optional<size_t> length,
                              bool keep_alive) {
  std::string head = Cat("HTTP/1.1 ", response.status, " ", HttpStatusPhrase(response.status),
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

inline void AppendChunk(std::string* out, std::string_view data) {
  if (data.empty()) return;  // an empty chunk would end the answer
  CatTo(out, absl::Hex(data.size()), "\r\n", data, "\r\n");
}

inline std::string TransportErrorBody(int status, std::string_view message) {
  return Cat(R"({"error":{"message":")", message,
             R"(","type":"BadRequestError","param":null,"code":)", status, "}}");
}

// The answer under way on one connection. Lives on the connection's loop.
struct Answer {
  explicit Answer(boost::asio::io_context& context) : wake(context) {}

  std::string pending;  // formatted bytes that wait to be written
  bool begun = false;
  bool ended = false;
  bool closed = false;  // the client is gone
  bool keep_alive = true;
  bool head_only = false;  // the request was HEAD
  size_t buffer_max = 0;
  std::function<void()> on_closed;
  std::function<void()> abort;     // closes the socket
  boost::asio::steady_timer wake;  // never expires; cancelled to wake the writer

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
      response.body = TransportErrorBody(500, "the request was dropped without an answer");
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

}  // namespace baton::server

#endif  // BATON_SERVER_HTTP_ANSWER_H_
