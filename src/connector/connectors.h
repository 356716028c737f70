// The connectors this build has, by endpoint scheme, and the one function that opens a source-side
// listener. New transports are added here and nowhere else. Thread rule: a ConnectorSet is filled
// at start and read-only afterwards.
#ifndef BATON_CONNECTOR_CONNECTORS_H_
#define BATON_CONNECTOR_CONNECTORS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "connector/connector.h"
#include "connector/inproc/inproc_connector.h"

namespace baton {

// False in a build that found no libucx-dev.
bool HaveUcx();

class ConnectorSet {
 public:
  ConnectorSet() = default;
  // tcp, shm, ucx where HaveUcx(), and inproc if `hub` is given (it must outlive the set).
  static ConnectorSet Standard(const Clock* clock, InprocHub* hub = nullptr);
  // A second connector of the same name replaces the first (tests wrap one this way).
  void Add(std::unique_ptr<Connector> connector);
  // Takes the connector out of the set, to wrap it; null if absent.
  std::unique_ptr<Connector> Take(std::string_view name);
  // InvalidArgument names the scheme and those that exist.
  StatusOr<Connector*> For(const std::string& endpoint) const;

 private:
  std::vector<std::unique_ptr<Connector>> connectors_;
};

struct ListenOptions {
  std::string endpoint;  // "tcp:127.0.0.1:0", "ucx:127.0.0.1:0", "shm:@name", "inproc:name"
  std::vector<SourceRegion> regions;  // all memory that may ever be granted; outlives the listener
  const Clock* clock = nullptr;
  InprocHub* hub = nullptr;  // for inproc only
};

// Errors: InvalidArgument (endpoint does not parse, shm region without fd), Unavailable with the
// system's reason if the address cannot be bound.
StatusOr<std::unique_ptr<Listener>> Listen(const ListenOptions& options);
using ListenFn = std::function<StatusOr<std::unique_ptr<Listener>>(const ListenOptions&)>;

}  // namespace baton

#endif  // BATON_CONNECTOR_CONNECTORS_H_
