#include "server/request_fields.h"

#include <algorithm>

#include "server/cat.h"

namespace baton::server {
namespace {

constexpr std::string_view kSupportedBoth[] = {
    "model",
    "stream",
    "stream_options",
    "n",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "prompt_logprobs",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "cache_salt",
    "return_token_ids",
    "baton_debug",
    "add_special_tokens",
    "logprobs",
};
constexpr std::string_view kSupportedCompletions[] = {"prompt", "echo"};
constexpr std::string_view kSupportedChat[] = {"messages",
                                               "top_logprobs",
                                               "chat_template_kwargs",
                                               "add_generation_prompt",
                                               "continue_final_message",
                                               "tools",
                                               "tool_choice",
                                               "documents"};

// Bookkeeping of the client's that cannot change the answer.
constexpr std::string_view kIgnored[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "request_id",
    "spaces_between_special_tokens",
    "parallel_tool_calls",
};

struct Refused {
  std::string_view name;
  std::string_view remedy;
};
constexpr Refused kRefused[] = {
    {"tools", "only /v1/chat/completions knows it"},
    {"tool_choice", "only /v1/chat/completions knows it"},
    {"documents", "only /v1/chat/completions knows it"},
    {"functions", "describe the functions in a system message"},
    {"function_call", "leave it out or send \"none\""},
    {"response_format",
     "answers are not constrained to a format; leave it out or send {\"type\": \"text\"}, ask for "
     "the "
     "format in a message and check the answer"},
    {"best_of", "use n and choose among the answers"},
    {"suffix", "leave it out"},
    {"allowed_token_ids", "leave it out"},
    {"bad_words", "use stop to end at a word"},
    {"truncate_prompt_tokens", "shorten the prompt"},
    {"guided_json", "leave it out and check the answer"},
    {"guided_regex", "leave it out and check the answer"},
    {"guided_choice", "leave it out and check the answer"},
    {"guided_grammar", "leave it out and check the answer"},
    {"structured_outputs", "leave it out and check the answer"},
    {"structural_tag", "leave it out and check the answer"},
    {"use_beam_search", "use n with a temperature"},
    {"length_penalty", "leave it out"},
    {"chat_template", "start the server with --chat-template"},
    {"audio", "only text is served"},
    {"modalities", "only [\"text\"] is served"},
    {"prediction", "leave it out"},
    {"web_search_options", "leave it out"},
    {"reasoning_effort", "use chat_template_kwargs if the template knows it"},
    {"mm_processor_kwargs", "only text is served"},
    {"priority", "requests are served in order of arrival"},
    {"logits_processors", "leave it out"},
    {"kv_transfer_params",
     "the router hands state over by itself; send it the plain request, or start `baton route`"},
    {"return_tokens_as_token_ids", "use return_token_ids"},
    {"prompt_embeds", "send the prompt as text or token ids"},
    {"verbosity", "say it in a message"},
    {"top_logprobs", "completions take logprobs: K"},
    {"echo", "only /v1/completions knows it"},
    {"prompt", "chat takes messages"},
    {"messages", "completions take a prompt; use /v1/chat/completions"},
    {"chat_template_kwargs", "only /v1/chat/completions knows it"},
};

template <size_t N>
bool Contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// True if the value is what leaving the field out would mean.
bool IsNeutral(std::string_view name, const OrderedJson& value) {
  if (value.is_null()) return true;
  if (name == "prompt" || name == "messages") return false;
  if (name == "tool_choice" || name == "function_call") return value == "none";
  if (name == "response_format") {
    return value.is_object() && value.size() == 1 && value.contains("type") &&
           value["type"] == "text";
  }
  if (name == "modalities") return value.is_array() && value.size() == 1 && value[0] == "text";
  if (name == "kv_transfer_params" && value.is_object()) {
    // Asks for nothing unless one of the two is true; the rest only says where and how.
    for (const char* wish : {"do_remote_decode", "do_remote_prefill"})
      if (value.contains(wish) && !value[wish].is_null() && value[wish] != false) return false;
    return true;
  }
  if (name == "best_of" || name == "length_penalty") return value.is_number() && value == 1;
  if (value.is_boolean()) return value == false;
  if (value.is_number()) return value == 0;
  if (value.is_string()) return value == "";
  return value.empty();
}

bool IsSupported(std::string_view name, Endpoint endpoint) {
  if (Contains(kSupportedBoth, name) || Contains(kIgnored, name)) return true;
  return endpoint == Endpoint::kChat ? Contains(kSupportedChat, name)
                                     : Contains(kSupportedCompletions, name);
}

// Levenshtein distance, for "did you mean". Names are short.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

std::string DidYouMean(std::string_view name, Endpoint endpoint) {
  std::string_view best;
  size_t best_distance = 4;
  const auto consider = [&](const auto& list) {
    for (std::string_view candidate : list) {
      const size_t distance = EditDistance(name, candidate);
      if (distance < best_distance) {
        best_distance = distance;
        best = candidate;
      }
    }
  };
  if (name.size() > 64) return "remove it";
  consider(kSupportedBoth);
  if (endpoint == Endpoint::kChat) {
    consider(kSupportedChat);
  } else {
    consider(kSupportedCompletions);
  }
  return best.empty() ? "remove it" : Cat("did you mean '", best, "'?");
}

}  // namespace

void CheckFields(const OrderedJson& body, Endpoint endpoint, FieldReader* reader) {
  for (const auto& [key, value] : body.items()) {
    const std::string_view name = key;
    if (IsSupported(name, endpoint)) continue;
    const auto* refused = std::find_if(std::begin(kRefused), std::end(kRefused),
                                       [&](const Refused& r) { return r.name == name; });
    if (refused != std::end(kRefused)) {
      if (IsNeutral(name, value)) continue;
      reader->Fail(BadRequest(
          Cat(name, " is not supported here, got ", ShowJson(value), "; ", refused->remedy), name));
    } else if (!value.is_null()) {
      const std::string shown(name.substr(0, 64));
      reader->Fail(BadRequest(
          Cat("unknown parameter ", ShowJson(OrderedJson(shown)), "; ", DidYouMean(name, endpoint)),
          shown));
    }
    if (reader->failed()) return;
  }
}

}  // namespace baton::server
