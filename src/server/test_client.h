// For tests: a blocking HTTP client on plain sockets, which shares no code with the server and can
// send anything. Reads give up after ten seconds. Thread rule: one object per thread.
#ifndef BATON_SERVER_TEST_CLIENT_H_
#define BATON_SERVER_TEST_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/http.h"

namespace baton::server {

struct TestResponse {
  int status = 0;  // 0: no answer
  HttpHeaders headers;
  std::string body;
  Json json() const { return ParseJsonLenient(body).value_or(Json()); }
  std::string header(std::string_view name) const { return std::string(FindHeader(headers, name)); }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    timeval timeout{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestClient() { Close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Closes with a reset instead of an orderly end.
  void Reset() {
    linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }

  bool SendRaw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  bool Send(std::string_view method,
            std::string_view path,
            std::string_view body = {},
            const HttpHeaders& headers = {}) {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
    for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
    return SendRaw(text);
  }

  // The head of an answer; its body is read by ReadBody or Next.
  std::optional<TestResponse> ReadHead() {
    const size_t end = Fill("\r\n\r\n");
    if (end == std::string::npos) return std::nullopt;
    TestResponse response;
    response.status = std::atoi(buffer_.substr(9, 3).c_str());
    size_t at = buffer_.find("\r\n") + 2;
    while (at < end) {
      const size_t stop = buffer_.find("\r\n", at);
      const std::string line = buffer_.substr(at, stop - at);
      const size_t colon = line.find(": ");
      response.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
      at = stop + 2;
    }
    buffer_.erase(0, end + 4);
    chunked_ = response.header("Transfer-Encoding") == "chunked";
    length_ = static_cast<size_t>(std::atoll(response.header("Content-Length").c_str()));
    return response;
  }
  // The next chunk of a chunked body: nothing at its end (complete() says which kind).
  std::optional<std::string> NextChunk() {
    const size_t line = Fill("\r\n");
    if (line == std::string::npos) return std::nullopt;
    const size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
    if (!FillTo(line + 2 + size + 2)) return std::nullopt;
    std::string data = buffer_.substr(line + 2, size);
    buffer_.erase(0, line + 2 + size + 2);
    complete_ = size == 0;
    if (complete_) return std::nullopt;
    return data;
  }
  std::string ReadBody() {
    std::string body;
    if (chunked_) {
      while (auto chunk = NextChunk()) body += *chunk;
    } else if (FillTo(length_)) {
      body = buffer_.substr(0, length_);
      buffer_.erase(0, length_);
      complete_ = true;
    }
    return body;
  }
  bool complete() const { return complete_; }
  // True if the peer has closed the connection.
  bool AtEnd() {
    char c;
    return buffer_.empty() && ::recv(fd_, &c, 1, 0) == 0;
  }
  TestResponse Read() {
    complete_ = false;
    auto response = ReadHead();
    if (!response) return {};
    response->body = ReadBody();
    return *response;
  }

 private:
  bool More() {
    char piece[65536];
    const ssize_t n = ::recv(fd_, piece, sizeof(piece), 0);
    if (n <= 0) return false;
    buffer_.append(piece, static_cast<size_t>(n));
    return true;
  }
  size_t Fill(std::string_view mark) {
    size_t at;
    while ((at = buffer_.find(mark)) == std::string::npos)
      if (!More()) return std::string::npos;
    return at;
  }
  bool FillTo(size_t bytes) {
    while (buffer_.size() < bytes)
      if (!More()) return false;
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string buffer_;
  bool chunked_ = false;
  bool complete_ = false;
  size_t length_ = 0;
};

// One request on a connection of its own.
inline TestResponse Fetch(uint16_t port,
                          std::string_view method,
                          std::string_view path,
                          std::string_view body = {},
                          const HttpHeaders& headers = {}) {
  TestClient client(port);
  if (!client.Send(method, path, body, headers)) return {};
  return client.Read();
}

// The payloads of a stream's events; "[DONE]" is a string.
inline std::vector<Json> SsePayloads(const std::string& body) {
  std::vector<Json> out;
  size_t at = 0;
  for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = body.substr(at, end - at);
    if (data.rfind("data: ", 0) != 0) continue;
    const std::string payload = data.substr(6);
    out.push_back(payload == "[DONE]" ? Json("[DONE]")
                                      : ParseJsonLenient(payload).value_or(Json()));
  }
  return out;
}

}  // namespace baton::server

#endif  // BATON_SERVER_TEST_CLIENT_H_
