// JSON of completion and chat answers, whole and in chunks, as OpenAI and vLLM shape them, with
// "baton" beside where baton_debug asked for it. Pure formatting.
// Thread rule: free functions over values.
#ifndef BATON_SERVER_RESPONSE_JSON_H_
#define BATON_SERVER_RESPONSE_JSON_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/generator.h"
#include "server/text_frontend.h"

namespace baton::server {

// What all answers of one request share.
struct AnswerInfo {
  bool chat = false;
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix seconds, for display
  bool return_token_ids = false;
  bool logprobs = false;
  int32_t top_logprobs = 0;      // how many to show of each token of an echo
  bool echo = false;             // completions: logprobs speak of the prompt, too
  int32_t prompt_logprobs = -1;  // k >= 0: how many to show of each prompt token
};

// A piece of one choice: a chunk of a stream, or all of it.
struct ChoicePiece {
  int64_t index = 0;
  std::string text;
  std::span<const engine::TokenEvent> events;  // the tokens of this piece
  int64_t text_offset = 0;                     // code points before this piece
  bool first = false;                          // first chunk: role, prompt token ids
  std::optional<std::string> finish_reason;
  Json stop_reason;                              // null, stop string or stop token id
  Json baton;                                    // null or the debug object
  const std::vector<TokenId>* prompt = nullptr;  // for return_token_ids and prompt scores
  // Of prompt tokens 1, 2, ...; null where nobody asked.
  const std::vector<engine::PromptScore>* scores = nullptr;
};

struct UsageTotals {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

Json UsageJson(const UsageTotals& usage);

// One chunk ("data:" payload) with one choice.
Json ChunkJson(const AnswerInfo& info, const TextFrontend& text, const ChoicePiece& piece);
// The last chunk of a stream with include_usage.
Json UsageChunkJson(const AnswerInfo& info, const UsageTotals& usage);
// The whole answer.
Json AnswerJson(const AnswerInfo& info,
                const TextFrontend& text,
                std::span<const ChoicePiece> choices,
                const UsageTotals& usage);

// "data: {json}\n\n"
std::string SseEvent(const Json& json);

}  // namespace baton::server

#endif  // BATON_SERVER_RESPONSE_JSON_H_
