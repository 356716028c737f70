// Plain HTTP types between the transport (http_server.cc, http_client.cc: the only files that know
// Beast) and everything above it. No parsing of JSON, no routes, no policy here.
//
// Thread rule: HttpRequest and HttpResponse are values. Each Exchange belongs to one io thread: the
// handler is called there and every method but Post must be called there.
#ifndef BATON_SERVER_HTTP_H_
#define BATON_SERVER_HTTP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The first value of header `name` (compared without case), or "".
std::string_view FindHeader(const HttpHeaders& headers, std::string_view name);

// "Not Found", ...; "Unknown" for codes that Baton never sends.
std::string_view HttpStatusPhrase(int status);

struct HttpRequest {
  std::string method;  // upper case
  std::string path;    // target without the query
  std::string query;   // without '?'
  HttpHeaders headers;
  std::string body;

  std::string_view header(std::string_view name) const { return FindHeader(headers, name); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // besides Content-Type, Content-Length, Connection, Transfer-Encoding
  std::string body;
};

// One request being answered, either by one Send or by BeginStream, any number of Writes and End.
// A handler that drops its last reference without having answered gets a 500 sent for it.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Sends the whole answer. Ignored if an answer has begun or the client is gone.
  virtual void Send(HttpResponse response) = 0;

  // Sends the head of a chunked answer; `head.body` becomes its first bytes.
  virtual void BeginStream(HttpResponse head) = 0;
  // Queues bytes of a chunked answer. Returns false if they were dropped because the client is
  // gone, or because more than HttpLimits::stream_buffer_bytes wait for a client that reads too
  // slowly (the connection is then closed). Never blocks.
  virtual bool Write(std::string_view data) = 0;
  virtual void End() = 0;

  // `fn` is called at most once, when the client leaves before the answer has ended.
  virtual void OnClosed(std::function<void()> fn) = 0;

  // Runs `fn` on the exchange's thread, in order of the calls. May be called from any thread.
  // Dropped after the server has stopped.
  virtual void Post(std::function<void()> fn) = 0;
};

using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

struct HttpLimits {
  size_t header_bytes = size_t{64} << 10;        // 431 above
  size_t body_bytes = size_t{16} << 20;          // 413 above
  size_t stream_buffer_bytes = size_t{8} << 20;  // per stream, waiting for the client
  int64_t connections_max = 2048;                // 503 above
  int64_t idle_ms = 120'000;                     // keep-alive wait for the next request
  int64_t read_ms = 30'000;                      // header, and again body, must be complete
  int64_t write_ms = 60'000;                     // without progress of a write
};

}  // namespace baton::server

#endif  // BATON_SERVER_HTTP_H_
