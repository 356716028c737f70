// The sockets under "tcp:HOST:PORT" and "ucx:HOST:PORT": name lookup, connecting before a deadline,
// listening. Thread rule: free functions.
#ifndef BATON_CONNECTOR_TCP_TCP_SOCKET_H_
#define BATON_CONNECTOR_TCP_TCP_SOCKET_H_

#include <string>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "connector/connector.h"
#include "connector/socket_stream.h"

namespace baton {

struct HostPort {
  std::string host;  // without the brackets of "[::1]"
  std::string port;
};
// InvalidArgument unless it is HOST:PORT.
StatusOr<HostPort> ParseHostPort(const Endpoint& endpoint);

// A connected, tuned, non-blocking socket. Errors: InvalidArgument (endpoint does not parse),
// kPeerUnavailable, kCancelled.
StatusOr<Fd> ConnectTcpSocket(const Endpoint& endpoint,
                              Instant deadline,
                              const Clock* clock,
                              const CancelToken& cancel);

struct ListeningSocket {
  Fd fd;
  std::string endpoint;  // with the scheme, and the port bound in place of 0
};
// Errors: InvalidArgument, kPeerUnavailable (name does not resolve), Unavailable (cannot bind).
StatusOr<ListeningSocket> ListenTcpSocket(const Endpoint& endpoint);

// No delay, large buffers. For accepted sockets; those above are tuned.
void TuneTcpSocket(int fd);

}  // namespace baton

#endif  // BATON_CONNECTOR_TCP_TCP_SOCKET_H_
