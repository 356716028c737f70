#include "connector/tcp/tcp_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kSocketBufferBytes = 8 << 20;  // asked for; the kernel caps it at its own limit
constexpr int kBacklog = 128;

std::string Text(const Endpoint& endpoint) { return endpoint.scheme + ":" + endpoint.address; }

struct AddressList {
  addrinfo* head = nullptr;
  ~AddressList() {
    if (head != nullptr) freeaddrinfo(head);
  }
};

Status Lookup(const Endpoint& endpoint, bool passive, AddressList* out) {
  BATON_ASSIGN_OR_RETURN(const HostPort hp, ParseHostPort(endpoint));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int rc = getaddrinfo(hp.host.c_str(), hp.port.c_str(), &hints, &out->head);
  if (rc != 0) return Reject(Reason::kPeerUnavailable, Text(endpoint) + ": " + gai_strerror(rc));
  return absl::OkStatus();
}

StatusOr<std::string> BoundEndpoint(int fd, const Endpoint& endpoint) {
  sockaddr_storage bound{};
  socklen_t len = sizeof bound;
  char port[NI_MAXSERV];
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &len) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), len, nullptr, 0, port, sizeof port,
                  NI_NUMERICSERV) != 0)
    return absl::UnavailableError(Text(endpoint) + ": cannot read back the bound port");
  const std::string text = Text(endpoint);
  return text.substr(0, text.rfind(':') + 1) + port;
}

}  // namespace

StatusOr<HostPort> ParseHostPort(const Endpoint& endpoint) {
  const std::string& address = endpoint.address;
  const size_t colon = address.rfind(':');
  HostPort out;
  if (colon != std::string::npos) {
    out.host = address.substr(0, colon);
    out.port = address.substr(colon + 1);
  }
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  uint32_t port = 0;
  if (out.host.empty() || !absl::SimpleAtoi(out.port, &port) || port > 65535)
    return absl::InvalidArgumentError(absl::StrCat(endpoint.scheme, " endpoint '", address,
                                                   "' is not HOST:PORT, for example ",
                                                   endpoint.scheme, ":127.0.0.1:9001"));
  return out;
}

void TuneTcpSocket(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
}

StatusOr<Fd> ConnectTcpSocket(const Endpoint& endpoint,
                              Instant deadline,
                              const Clock* clock,
                              const CancelToken& cancel) {
  AddressList list;
  BATON_RETURN_IF_ERROR(Lookup(endpoint, /*passive=*/false, &list));
  const std::string text = Text(endpoint);
  if (cancel.stop_requested()) return Reject(Reason::kCancelled, text + ": connect cancelled");
  Status last = Reject(Reason::kPeerUnavailable, text + ": no address");
  for (const addrinfo* a = list.head; a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
      last = Reject(Reason::kPeerUnavailable, text + ": " + ErrnoText(errno));
      continue;
    }
    TuneTcpSocket(fd.get());
    last = absl::OkStatus();
    if (connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0)
      last = errno == EINPROGRESS ? FinishConnect(fd.get(), text, deadline, clock, cancel)
                                  : Reject(Reason::kPeerUnavailable,
                                           absl::StrCat(text, ": connect: ", ErrnoText(errno)));
    if (last.ok()) return fd;
  }
  return last;
}

StatusOr<ListeningSocket> ListenTcpSocket(const Endpoint& endpoint) {
  AddressList list;
  BATON_RETURN_IF_ERROR(Lookup(endpoint, /*passive=*/true, &list));
  std::string why = "no address";
  for (const addrinfo* a = list.head; a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int one = 1;
    if (fd.valid()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!fd.valid() || bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        listen(fd.get(), kBacklog) != 0) {
      why = ErrnoText(errno);
      continue;
    }
    BATON_ASSIGN_OR_RETURN(std::string bound, BoundEndpoint(fd.get(), endpoint));
    return ListeningSocket{std::move(fd), std::move(bound)};
  }
  return absl::UnavailableError("cannot listen on " + Text(endpoint) + ": " + why);
}

}  // namespace baton
