// Hand-offs over UCX, the road to RDMA: the conversation runs over a TCP socket of its own, as in
// tcp/, the bulk bytes as UCX messages into bounce buffers, from which the receiver copies them to
// their destinations after checking each against what it asked for. The receiver acknowledges each
// read when its last byte has landed; until then the source keeps its memory.
//
// A peer that dies closes the socket, so neither side depends on UCX to notice; deadlines hold on
// both. No authentication: ucx_worker.h says what that means. Thread rule: as connector.h says.
#ifndef BATON_CONNECTOR_UCX_UCX_CONNECTOR_H_
#define BATON_CONNECTOR_UCX_UCX_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "connector/connector.h"

namespace baton {

std::unique_ptr<Connector> MakeUcxConnector(const Clock* clock);
// `address` is HOST:PORT of the conversation; port 0 takes a free one. UCX opens ports of its own
// for the bulk bytes: on the loopback device only if HOST is a loopback address.
StatusOr<std::unique_ptr<Listener>> ListenUcx(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock);

}  // namespace baton

#endif  // BATON_CONNECTOR_UCX_UCX_CONNECTOR_H_
