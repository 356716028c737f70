#include "connector/connector.h"

namespace baton {

StatusOr<Endpoint> ParseEndpoint(const std::string& endpoint) {
  const size_t colon = endpoint.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == endpoint.size())
    return absl::InvalidArgumentError("endpoint '" + endpoint +
                                      "' is not SCHEME:ADDRESS; write tcp:127.0.0.1:9001, "
                                      "shm:/path/socket, shm:@name or inproc:name");
  return Endpoint{endpoint.substr(0, colon), endpoint.substr(colon + 1)};
}

}  // namespace baton
