// Hand-offs over TCP: frames and bulk bytes share one socket; bulk bytes go by writev/readv between
// the two memories with no copy in between. No encryption and no authentication: the link must be
// a trusted network, or the digests keyed. Thread rule: as connector.h says.
#ifndef BATON_CONNECTOR_TCP_TCP_CONNECTOR_H_
#define BATON_CONNECTOR_TCP_TCP_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "connector/connector.h"

namespace baton {

std::unique_ptr<Connector> MakeTcpConnector(const Clock* clock);
// `address` is HOST:PORT ("[::1]:9001" for IPv6); port 0 takes a free one.
StatusOr<std::unique_ptr<Listener>> ListenTcp(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock);

}  // namespace baton

#endif  // BATON_CONNECTOR_TCP_TCP_CONNECTOR_H_
