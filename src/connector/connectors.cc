#include "connector/connectors.h"

#include "absl/strings/str_cat.h"
#include "connector/shm/shm_connector.h"
#include "connector/tcp/tcp_connector.h"
#if BATON_HAVE_UCX
#include "connector/ucx/ucx_connector.h"
#endif

namespace baton {

bool HaveUcx() { return BATON_HAVE_UCX != 0; }

ConnectorSet ConnectorSet::Standard(const Clock* clock, InprocHub* hub) {
  ConnectorSet set;
  set.Add(MakeTcpConnector(clock));
  set.Add(MakeShmConnector(clock));
#if BATON_HAVE_UCX
  set.Add(MakeUcxConnector(clock));
#endif
  if (hub != nullptr) set.Add(MakeInprocConnector(hub, clock));
  return set;
}

void ConnectorSet::Add(std::unique_ptr<Connector> connector) {
  Take(connector->name());
  connectors_.push_back(std::move(connector));
}

std::unique_ptr<Connector> ConnectorSet::Take(std::string_view name) {
  for (auto it = connectors_.begin(); it != connectors_.end(); ++it) {
    if ((*it)->name() != name) continue;
    std::unique_ptr<Connector> out = std::move(*it);
    connectors_.erase(it);
    return out;
  }
  return nullptr;
}

StatusOr<Connector*> ConnectorSet::For(const std::string& endpoint) const {
  BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  std::string known;
  for (const auto& connector : connectors_) {
    if (connector->name() == parsed.scheme) return connector.get();
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(connector->name()));
  }
  const bool left_out = parsed.scheme == "ucx" && !HaveUcx();
  return absl::InvalidArgumentError(
      "endpoint '" + endpoint + "' has the unknown scheme '" + parsed.scheme +
      "'; this process has " + known +
      (left_out ? "; it was built without UCX: install libucx-dev and build again" : ""));
}

StatusOr<std::unique_ptr<Listener>> Listen(const ListenOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(options.endpoint));
  if (parsed.scheme == "tcp") return ListenTcp(parsed.address, options.regions, options.clock);
  if (parsed.scheme == "shm") return ListenShm(parsed.address, options.regions, options.clock);
#if BATON_HAVE_UCX
  if (parsed.scheme == "ucx") return ListenUcx(parsed.address, options.regions, options.clock);
#else
  if (parsed.scheme == "ucx")
    return absl::InvalidArgumentError("cannot listen on '" + options.endpoint +
                                      "': built without UCX; install libucx-dev and build again");
#endif
  if (parsed.scheme == "inproc" && options.hub != nullptr)
    return ListenInproc(options.hub, parsed.address, options.regions, options.clock);
  return absl::InvalidArgumentError(
      "cannot listen on '" + options.endpoint +
      "': the schemes are tcp, shm, ucx and, within one process, inproc");
}

}  // namespace baton
