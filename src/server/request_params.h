// From the JSON body of a completion or chat request to typed, range-checked parameters. Every
// field is either obeyed, harmless to ignore, or refused by name with what to do instead; unknown
// names are refused, so that a misspelt parameter is never dropped in silence.
// Not here: tokenisation, generation. Thread rule: free functions over values.
#ifndef BATON_SERVER_REQUEST_PARAMS_H_
#define BATON_SERVER_REQUEST_PARAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "server/api_error.h"
#include "server/text_frontend.h"

namespace baton::server {

// What a request is checked against.
struct RequestContext {
  const RequestDefaults* defaults = nullptr;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  int64_t choices_max = 128;  // prompts x n of one request
  int64_t logprobs_max = 20;
};

// Shared by both endpoints.
struct GenerationParams {
  std::string model;  // "" = the served one
  bool stream = false;
  bool include_usage = false;
  int64_t n = 1;
  // Complete but for max_tokens, seed per choice, and eos ids among stop_token_ids.
  engine::SamplingParams sampling;
  std::optional<int64_t> max_tokens;
  std::string max_tokens_name = "max_tokens";  // the field it came from
  std::optional<uint64_t> seed;                // absent: a random one per request
  std::vector<std::string> stop;
  bool include_stop_str = false;
  bool skip_special_tokens = true;
  bool add_special_tokens = true;
  bool return_token_ids = false;
  bool debug = false;  // "baton_debug"
  bool echo = false;
  // "max_tokens": 0 with echo: the prompt is scored and no token answered.
  bool score_only = false;
  int32_t prompt_logprobs = -1;  // k >= 0: "prompt_logprobs" in the answer
  std::string cache_salt;
};

struct PromptInput {
  bool is_text = true;
  std::string text;
  std::vector<TokenId> ids;
};

struct CompletionParams {
  GenerationParams common;
  std::vector<PromptInput> prompts;  // at least one
};

struct ChatParams {
  GenerationParams common;
  ChatRender render;
};

// A JSON object from a request body, keys in order. NaN and Infinity are named with their key.
std::optional<ApiError> ParseBody(std::string_view text, OrderedJson* out);

std::optional<ApiError> ParseCompletion(const OrderedJson& body,
                                        const RequestContext& context,
                                        CompletionParams* out);
std::optional<ApiError> ParseChat(const OrderedJson& body,
                                  const RequestContext& context,
                                  ChatParams* out);
// "messages", "chat_template_kwargs", "add_generation_prompt", "continue_final_message" (also for
// /tokenize).
std::optional<ApiError> ParseRender(const OrderedJson& body, ChatRender* out);

// Checks a tokenised prompt against the context and sets max_tokens. `default_max_tokens` is used
// where the request names none, cut to what fits.
std::optional<ApiError> FitToContext(const GenerationParams& params,
                                     int64_t prompt_tokens,
                                     const RequestContext& context,
                                     int64_t default_max_tokens,
                                     engine::SamplingParams* sampling);

}  // namespace baton::server

#endif  // BATON_SERVER_REQUEST_PARAMS_H_
