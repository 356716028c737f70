// JSON form of the Generator contract, spoken between router and workers on POST
// /internal/generate: the request is one object; the answer is one JSON value per line, batches of
// token events and last the result. Every field travels exactly (floats by shortest round trip,
// -inf as null, salts as hex because they need not be UTF-8). Nothing in the bytes of a peer can
// crash the reader. Wire format: docs/api.md, "Between router and workers".
// Thread rule: free functions.
#ifndef BATON_SERVER_GENERATION_JSON_H_
#define BATON_SERVER_GENERATION_JSON_H_

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "engine/generator.h"

namespace baton::server {

std::string EncodeRequest(const engine::GenerateRequest& request);
StatusOr<engine::GenerateRequest> DecodeRequest(std::string_view text);

// One line each, with its '\n'.
std::string EncodeEvents(std::span<const engine::TokenEvent> events);
std::string EncodeResult(const engine::GenerateResult& result);

using GenerationLine = std::variant<std::vector<engine::TokenEvent>, engine::GenerateResult>;
// `line` without its '\n'.
StatusOr<GenerationLine> DecodeLine(std::string_view line);

Json HandoffToJson(const engine::HandoffRecord& record);

// {"code", "message", "reason"}; the code is the canonical name, e.g. "UNAVAILABLE".
Json StatusToJson(const Status& status);
StatusOr<Status> StatusFromJson(const Json& json);

}  // namespace baton::server

#endif  // BATON_SERVER_GENERATION_JSON_H_
