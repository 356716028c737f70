#include "server/node_info.h"

#include "server/cat.h"

namespace baton::server {

Json NodeInfoToJson(const NodeInfo& info, std::string_view status) {
  Json handoff = Json::object();
  for (const auto& [connector, endpoint] : info.handoff) handoff[connector] = endpoint;
  return Json{{"status", std::string(status)},
              {"role", info.role},
              {"model", info.model},
              {"fingerprint", info.fingerprint},
              {"epoch", info.epoch},
              {"handoff", std::move(handoff)},
              {"max_model_len", info.max_model_len},
              {"vocab_size", info.vocab_size}};
}

StatusOr<NodeInfo> NodeInfoFromJson(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJsonLenient(text, 16));
  NodeInfo info;
  if (!json.is_object()) return absl::InvalidArgumentError("health answer is not a JSON object");
  const auto bad = [](std::string_view key) {
    return absl::InvalidArgumentError(
        Cat("health answer has no proper '", key, "': not a Baton worker?"));
  };
  const std::pair<const char*, std::string*> strings[] = {{"role", &info.role},
                                                          {"model", &info.model},
                                                          {"fingerprint", &info.fingerprint},
                                                          {"epoch", &info.epoch}};
  for (const auto& [key, out] : strings) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_string()) return bad(key);
    *out = it->get<std::string>();
  }
  const std::pair<const char*, int64_t*> numbers[] = {{"max_model_len", &info.max_model_len},
                                                      {"vocab_size", &info.vocab_size}};
  for (const auto& [key, out] : numbers) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_integer()) return bad(key);
    *out = it->get<int64_t>();
  }
  const auto handoff = json.find("handoff");
  if (handoff == json.end() || !handoff->is_object()) return bad("handoff");
  for (const auto& [connector, endpoint] : handoff->items()) {
    if (!endpoint.is_string()) return bad("handoff");
    info.handoff[connector] = endpoint.get<std::string>();
  }
  return info;
}

}  // namespace baton::server
