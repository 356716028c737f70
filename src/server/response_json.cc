#include "server/response_json.h"

#include <algorithm>
#include <cmath>

#include "server/cat.h"

namespace baton::server {
namespace {

using engine::TokenEvent;

// JSON knows no infinity; vLLM's floor for masked tokens.
double FiniteLogprob(float v) { return std::isfinite(v) ? static_cast<double>(v) : -9999.0; }

int64_t CodePoints(std::string_view s) {
  return std::count_if(s.begin(), s.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

bool IsUtf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<uint8_t>(s[i]);
    const size_t n = c < 0x80 ? 1 : (c >> 5) == 6 ? 2 : (c >> 4) == 14 ? 3 : (c >> 3) == 30 ? 4 : 0;
    if (n == 0 || i + n > s.size()) return false;
    for (size_t j = 1; j < n; ++j)
      if ((static_cast<uint8_t>(s[i + j]) & 0xC0) != 0x80) return false;
    i += n;
  }
  return true;
}

// The printed form of a token. Half a code point is shown by its bytes, so that two different
// tokens never look alike.
std::string TokenText(const TextFrontend& text, TokenId id) {
  std::string bytes = text.TokenBytes(id);
  if (IsUtf8(bytes)) return bytes;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string shown = "bytes:";
  for (const char c : bytes) {
    shown += "\\x";
    shown.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    shown.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return shown;
}

Json BytesJson(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return list;
}

Json CompletionLogprobs(const TextFrontend& text, const ChoicePiece& piece) {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  int64_t offset = piece.text_offset;
  for (const TokenEvent& event : piece.events) {
    std::string shown = TokenText(text, event.token);
    Json top = Json::object();
    for (const auto& [id, logprob] : event.top) {
      top.emplace(TokenText(text, id), FiniteLogprob(logprob));
    }
    top.emplace(shown, FiniteLogprob(event.logprob));
    offsets.push_back(offset);
    offset += CodePoints(text.TokenBytes(event.token));
    tokens.push_back(std::move(shown));
    logprobs.push_back(FiniteLogprob(event.logprob));
    tops.push_back(std::move(top));
  }
  return Json{{"text_offset", std::move(offsets)},
              {"token_logprobs", std::move(logprobs)},
              {"tokens", std::move(tokens)},
              {"top_logprobs", std::move(tops)}};
}

Json TokenLogprob(const TextFrontend& text, TokenId id, float logprob) {
  return Json{{"token", TokenText(text, id)},
              {"logprob", FiniteLogprob(logprob)},
              {"bytes", BytesJson(text.TokenBytes(id))}};
}

Json ChatLogprobs(const TextFrontend& text, const ChoicePiece& piece) {
  Json content = Json::array();
  for (const TokenEvent& event : piece.events) {
    Json entry = TokenLogprob(text, event.token, event.logprob);
    Json top = Json::array();
    for (const auto& [id, logprob] : event.top) top.push_back(TokenLogprob(text, id, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return Json{{"content", std::move(content)}};
}

Json TokenIdsJson(std::span<const TokenEvent> events) {
  Json ids = Json::array();
  for (const TokenEvent& event : events) ids.push_back(event.token);
  return ids;
}

Json Envelope(const AnswerInfo& info, bool chunk) {
  const std::string object =
      info.chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return Json{
      {"id", info.id}, {"object", object}, {"created", info.created}, {"model", info.model}};
}

Json ChoiceJson(const AnswerInfo& info,
                const TextFrontend& text,
                const ChoicePiece& piece,
                bool chunk) {
  Json choice{{"index", piece.index},
              {"logprobs", nullptr},
              {"finish_reason", piece.finish_reason ? Json(*piece.finish_reason) : Json()}};
  if (info.chat) {
    Json message = Json::object();
    if (!chunk || piece.first) message["role"] = "assistant";
    if (!chunk || piece.first || !piece.text.empty()) message["content"] = piece.text;
    choice[chunk ? "delta" : "message"] = std::move(message);
  } else {
    choice["text"] = piece.text;
  }
  if (info.logprobs && !(chunk && piece.events.empty())) {
    choice["logprobs"] = info.chat ? ChatLogprobs(text, piece) : CompletionLogprobs(text, piece);
  }
  if (!chunk || piece.finish_reason.has_value()) choice["stop_reason"] = piece.stop_reason;
  if (info.return_token_ids) {
    choice["token_ids"] = TokenIdsJson(piece.events);
    if (!info.chat && (!chunk || piece.first)) choice["prompt_token_ids"] = *piece.prompt;
  }
  if (!piece.baton.is_null()) choice["baton"] = piece.baton;
  return choice;
}

}  // namespace

Json UsageJson(const UsageTotals& usage) {
  return Json{{"prompt_tokens", usage.prompt_tokens},
              {"completion_tokens", usage.completion_tokens},
              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
              {"prompt_tokens_details", Json{{"cached_tokens", usage.cached_tokens}}}};
}

Json ChunkJson(const AnswerInfo& info, const TextFrontend& text, const ChoicePiece& piece) {
  Json json = Envelope(info, true);
  json["choices"] = Json::array({ChoiceJson(info, text, piece, true)});
  if (info.chat && info.return_token_ids && piece.first) json["prompt_token_ids"] = *piece.prompt;
  if (!piece.baton.is_null()) json["baton"] = piece.baton;
  return json;
}

Json UsageChunkJson(const AnswerInfo& info, const UsageTotals& usage) {
  Json json = Envelope(info, true);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  return json;
}

Json AnswerJson(const AnswerInfo& info,
                const TextFrontend& text,
                std::span<const ChoicePiece> choices,
                const UsageTotals& usage) {
  Json json = Envelope(info, false);
  Json list = Json::array();
  for (const ChoicePiece& piece : choices) list.push_back(ChoiceJson(info, text, piece, false));
  json["choices"] = std::move(list);
  json["usage"] = UsageJson(usage);
  if (info.chat && info.return_token_ids) json["prompt_token_ids"] = *choices.front().prompt;
  if (choices.size() == 1 && !choices.front().baton.is_null())
    json["baton"] = choices.front().baton;
  return json;
}

std::string SseEvent(const Json& json) { return Cat("data: ", DumpJson(json), "\n\n"); }

}  // namespace baton::server
