// What a process tells about itself on /health and on the status page. Thread rule: plain values.
#ifndef BATON_SERVER_NODE_INFO_H_
#define BATON_SERVER_NODE_INFO_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace baton::server {

struct NodeInfo {
  std::string role;         // "all", "prefill", "decode", "router"
  std::string model;        // served name
  std::string fingerprint;  // model fingerprint in hex, "" for a router
  std::string epoch;        // incarnation in hex
  // Where bundles can be pulled from, by connector: {"tcp": "127.0.0.1:7001", "shm": "/path"}.
  std::map<std::string, std::string> handoff;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
};

// {"status": ..., "role": ..., ...}
Json NodeInfoToJson(const NodeInfo& info, std::string_view status);
// Unknown keys are ignored; missing ones are an error that names the key.
StatusOr<NodeInfo> NodeInfoFromJson(std::string_view text);

}  // namespace baton::server

#endif  // BATON_SERVER_NODE_INFO_H_
