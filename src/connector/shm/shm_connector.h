// Hand-offs between two processes of one host: frames go over a Unix socket; the source passes the
// descriptors of its arenas (memfd, sealed against shrinking) once per link, the receiver maps them
// read-only and copies from the offsets of the offer, each checked against the mapping's size. The
// peer of a shm link can read the whole arena: same user only (checked by SO_PEERCRED).
// Thread rule: as connector.h says.
#ifndef BATON_CONNECTOR_SHM_SHM_CONNECTOR_H_
#define BATON_CONNECTOR_SHM_SHM_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "connector/connector.h"

namespace baton {

std::unique_ptr<Connector> MakeShmConnector(const Clock* clock);
// `address` is a socket path, or "@NAME" for an abstract name. Every region needs an fd.
StatusOr<std::unique_ptr<Listener>> ListenShm(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock);

}  // namespace baton

#endif  // BATON_CONNECTOR_SHM_SHM_CONNECTOR_H_
