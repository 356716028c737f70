#include "server/response_json.h"

#include <algorithm>
#include <cmath>

#include "server/cat.h"

namespace baton::server {
namespace {

using engine::PromptScore;
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

// The four parallel lists of a completion's "logprobs".
class LogprobLists {
 public:
  LogprobLists(const TextFrontend& text, int64_t offset) : text_(text), offset_(offset) {}

  void Add(TokenId id, float logprob, std::span<const std::pair<TokenId, float>> top) {
    std::string shown = TokenText(text_, id);
    Json tops = Json::object();
    for (const auto& [other, value] : top)
      tops.emplace(TokenText(text_, other), FiniteLogprob(value));
    tops.emplace(shown, FiniteLogprob(logprob));
    Append(id, std::move(shown), FiniteLogprob(logprob), std::move(tops));
  }
  // The first token of a prompt: nothing says how likely it was.
  void AddUnknown(TokenId id) { Append(id, TokenText(text_, id), Json(), Json()); }

  Json Take() {
    return Json{{"text_offset", std::move(offsets_)},
                {"token_logprobs", std::move(logprobs_)},
                {"tokens", std::move(tokens_)},
                {"top_logprobs", std::move(tops_)}};
  }

 private:
  void Append(TokenId id, std::string shown, Json logprob, Json tops) {
    offsets_.push_back(offset_);
    offset_ += CodePoints(text_.TokenBytes(id));
    tokens_.push_back(std::move(shown));
    logprobs_.push_back(std::move(logprob));
    tops_.push_back(std::move(tops));
  }

  const TextFrontend& text_;
  int64_t offset_;
  Json tokens_ = Json::array();
  Json logprobs_ = Json::array();
  Json tops_ = Json::array();
  Json offsets_ = Json::array();
};

Json CompletionLogprobs(const AnswerInfo& info,
                        const TextFrontend& text,
                        const ChoicePiece& piece) {
  const bool echo = info.echo && piece.scores != nullptr;
  LogprobLists lists(text, echo ? 0 : piece.text_offset);
  if (echo) {
    lists.AddUnknown(piece.prompt->front());
    for (size_t i = 0; i < piece.scores->size(); ++i) {
      const PromptScore& score = (*piece.scores)[i];
      const size_t shown =
          std::min<size_t>(score.top.size(), static_cast<size_t>(info.top_logprobs));
      lists.Add((*piece.prompt)[i + 1], score.logprob, std::span(score.top).first(shown));
    }
  }
  for (const TokenEvent& event : piece.events) lists.Add(event.token, event.logprob, event.top);
  return lists.Take();
}

// [null, {"id": {"logprob", "rank", "decoded_token"}, ...}, ...]: the k most likely and the token
// itself, as vLLM has it.
Json PromptLogprobs(const AnswerInfo& info, const TextFrontend& text, const ChoicePiece& piece) {
  Json list = Json::array({nullptr});
  for (size_t i = 0; i < piece.scores->size(); ++i) {
    const PromptScore& score = (*piece.scores)[i];
    Json entry = Json::object();
    const auto add = [&](TokenId id, float logprob, int64_t rank) {
      entry.emplace(std::to_string(id), Json{{"logprob", FiniteLogprob(logprob)},
                                             {"rank", rank},
                                             {"decoded_token", TokenText(text, id)}});
    };
    add((*piece.prompt)[i + 1], score.logprob, score.rank);
    const size_t shown =
        std::min<size_t>(score.top.size(), static_cast<size_t>(info.prompt_logprobs));
    for (size_t j = 0; j < shown; ++j)
      add(score.top[j].first, score.top[j].second, static_cast<int64_t>(j) + 1);
    list.push_back(std::move(entry));
  }
  return list;
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
    choice["logprobs"] =
        info.chat ? ChatLogprobs(text, piece) : CompletionLogprobs(info, text, piece);
  }
  if (!chunk || piece.finish_reason.has_value()) choice["stop_reason"] = piece.stop_reason;
  if (info.return_token_ids) {
    choice["token_ids"] = TokenIdsJson(piece.events);
    if (!info.chat && (!chunk || piece.first)) choice["prompt_token_ids"] = *piece.prompt;
  }
  if (!info.chat && info.prompt_logprobs >= 0 && piece.scores != nullptr)
    choice["prompt_logprobs"] = PromptLogprobs(info, text, piece);
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
  if (info.chat && info.prompt_logprobs >= 0 && choices.front().scores != nullptr)
    json["prompt_logprobs"] = PromptLogprobs(info, text, choices.front());
  if (choices.size() == 1 && !choices.front().baton.is_null())
    json["baton"] = choices.front().baton;
  return json;
}

std::string SseEvent(const Json& json) { return Cat("data: ", DumpJson(json), "\n\n"); }

}  // namespace baton::server
