#include "server/request_params.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "server/cat.h"
#include "server/chat_messages.h"
#include "server/field_reader.h"
#include "server/request_fields.h"

namespace baton::server {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kSaltBytesMax = 1024;
constexpr size_t kStopCountMax = 16;
constexpr size_t kStopBytesMax = 1024;
constexpr size_t kStopIdsMax = 256;
constexpr size_t kBiasesMax = 1024;

// The key whose value begins at or just before `offset`, for messages about unparsable values.
std::string KeyBefore(std::string_view text, size_t offset) {
  size_t colon = std::min(offset, text.size());
  while (colon > 0 && text[colon - 1] != ':') --colon;
  if (colon == 0) return {};
  size_t end = colon - 1;
  while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  if (end == 0 || text[end - 1] != '"') return {};
  --end;
  const size_t begin = text.substr(0, end).rfind('"');
  if (begin == std::string_view::npos || end - begin > 65) return {};
  return std::string(text.substr(begin + 1, end - begin - 1));
}

// Where a bare NaN or Infinity stands outside strings, or npos.
size_t FindBareToken(std::string_view text) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\') ++i;
      if (i < text.size() && text[i] == '"') in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == 'N' || text[i] == 'I') {
      return i;
    }
  }
  return std::string_view::npos;
}

// {"token id": bias}.
void ReadBias(const RequestContext& context,
              FieldReader* r,
              std::vector<std::pair<TokenId, float>>* out) {
  const OrderedJson* bias = r->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object() || bias->size() > kBiasesMax) {
    return r->FailType("logit_bias",
                       Cat("an object of at most ", kBiasesMax, " token ids with their bias"),
                       *bias);
  }
  for (const auto& [key, value] : bias->items()) {
    uint32_t id = 0;
    const auto [end, bad] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (bad != std::errc() || end != key.data() + key.size() || id >= context.vocab_size) {
      return r->Fail(BadRequest(Cat("logit_bias must name token ids in [0, ",
                                    context.vocab_size - 1, "], got ", ShowJson(OrderedJson(key))),
                                "logit_bias"));
    }
    if (!value.is_number() || !(std::fabs(value.get<double>()) <= 100)) {
      return r->Fail(BadRequest(Cat("logit_bias of token ", id,
                                    " must be a number in [-100, 100], got ", ShowJson(value)),
                                "logit_bias"));
    }
    out->emplace_back(id, static_cast<float>(value.get<double>()));
  }
  std::sort(out->begin(), out->end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(out->begin(), out->end(), same) != out->end())
    r->Fail(BadRequest("logit_bias names a token twice", "logit_bias"));
}

// vLLM's rule: what a stream cannot carry is refused, not dropped.
void ReadPromptLogprobs(const RequestContext& context, FieldReader* r, GenerationParams* p) {
  const auto k = r->Int("prompt_logprobs", 0, context.logprobs_max);
  if (!k.has_value()) return;
  if (p->stream) {
    r->Fail(BadRequest("prompt_logprobs are not available in a stream; send stream: false",
                       "prompt_logprobs"));
  }
  p->prompt_logprobs = p->sampling.prompt_logprobs = static_cast<int32_t>(*k);
}

void ReadSampling(const RequestContext& context, FieldReader* r, GenerationParams* p) {
  const RequestDefaults& d = *context.defaults;
  engine::SamplingParams& s = p->sampling;
  s.temperature = r->Number("temperature", {0, 100}).value_or(d.temperature);
  s.top_k = std::max<int64_t>(0, r->Int("top_k", -1, INT32_MAX).value_or(d.top_k));
  s.top_p = r->Number("top_p", {0, 1, true}).value_or(d.top_p);
  s.min_p = r->Number("min_p", {0, 1}).value_or(d.min_p);
  s.repetition_penalty =
      r->Number("repetition_penalty", {0, 100, true}).value_or(d.repetition_penalty);
  s.presence_penalty = r->Number("presence_penalty", {-2, 2}).value_or(0);
  s.frequency_penalty = r->Number("frequency_penalty", {-2, 2}).value_or(0);
  ReadBias(context, r, &s.logit_bias);
  if (const auto seed = r->Int("seed", INT64_MIN, INT64_MAX)) {
    p->seed = static_cast<uint64_t>(*seed);
  }
  p->max_tokens = r->Int("max_completion_tokens", 1, context.max_model_len);
  if (p->max_tokens.has_value()) p->max_tokens_name = "max_completion_tokens";
  if (const auto max_tokens = r->Int("max_tokens", p->echo ? 0 : 1, context.max_model_len)) {
    if (!p->max_tokens.has_value()) p->max_tokens = max_tokens;
  }
  if (p->max_tokens == 0) {  // a prompt is computed by asking for the token after it
    p->score_only = true;
    p->max_tokens = 1;
  }
  s.min_tokens = r->Int("min_tokens", 0, context.max_model_len).value_or(0);
  if (p->max_tokens.has_value() && s.min_tokens > *p->max_tokens) {
    r->Fail(BadRequest(Cat("min_tokens must be an integer in [0, max_tokens = ", *p->max_tokens,
                           "], got ", s.min_tokens),
                       "min_tokens"));
  }
  s.ignore_eos = r->Bool("ignore_eos").value_or(false);
  s.stop_token_ids = r->TokenIds("stop_token_ids", context.vocab_size, kStopIdsMax);
}

void ReadCommon(const RequestContext& context, FieldReader* r, GenerationParams* p) {
  p->model = r->String("model", kNameBytesMax).value_or("");
  p->stream = r->Bool("stream").value_or(false);
  if (const OrderedJson* options = r->Find("stream_options")) {
    if (!options->is_object()) {
      r->FailType("stream_options", "an object", *options);
    } else if (!p->stream) {
      r->Fail(
          BadRequest("stream_options needs stream: true; remove it or stream", "stream_options"));
    } else {
      FieldReader inner(*options);
      p->include_usage = inner.Bool("include_usage").value_or(false);
      if (inner.failed()) r->Fail(*inner.error());
    }
  }
  p->n = r->Int("n", 1, context.choices_max).value_or(1);
  p->stop = r->Strings("stop", kStopCountMax, kStopBytesMax);
  p->include_stop_str = r->Bool("include_stop_str_in_output").value_or(false);
  p->skip_special_tokens = r->Bool("skip_special_tokens").value_or(true);
  p->return_token_ids = r->Bool("return_token_ids").value_or(false);
  p->debug = r->Bool("baton_debug").value_or(false);
  p->cache_salt = r->String("cache_salt", kSaltBytesMax).value_or("");
  ReadSampling(context, r, p);
  ReadPromptLogprobs(context, r, p);
}

std::optional<ApiError> ReadPrompt(const OrderedJson& value,
                                   const std::string& name,
                                   const RequestContext& context,
                                   PromptInput* out) {
  if (value.is_string()) {
    out->text = value.get<std::string>();
    return std::nullopt;
  }
  out->is_text = false;
  return ReadTokenIds(value, name, context.vocab_size, &out->ids);
}

std::optional<ApiError> ReadPrompts(const OrderedJson& body,
                                    const RequestContext& context,
                                    std::vector<PromptInput>* out) {
  const auto it = body.find("prompt");
  const auto wrong = [&](std::string_view found) {
    return BadRequest(Cat("prompt must be a string, a list of strings, a list of token ids or a "
                          "list of such lists, got ",
                          found),
                      "prompt");
  };
  if (it == body.end() || it->is_null()) return wrong("nothing");
  const OrderedJson& prompt = *it;
  if (prompt.is_string() || (prompt.is_array() && !prompt.empty() && prompt[0].is_number())) {
    out->emplace_back();
    return ReadPrompt(prompt, "prompt", context, &out->back());
  }
  if (!prompt.is_array() || prompt.empty()) return wrong(ShowJson(prompt));
  if (static_cast<int64_t>(prompt.size()) > context.choices_max) {
    return BadRequest(
        Cat("prompt must hold at most ", context.choices_max, " prompts, got ", prompt.size()),
        "prompt");
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i].type() != prompt[0].type() || !(prompt[i].is_string() || prompt[i].is_array())) {
      return wrong(Cat(ShowJson(prompt[i]), " as element ", i));
    }
    out->emplace_back();
    if (auto error = ReadPrompt(prompt[i], Cat("prompt[", i, "]"), context, &out->back())) {
      error->param = "prompt";
      return error;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseBody(std::string_view text, OrderedJson* out) {
  auto body = ParseJsonOrdered(text);
  if (!body.ok()) {
    const size_t bare = FindBareToken(text);
    const std::string key = bare == std::string_view::npos ? "" : KeyBefore(text, bare);
    if (!key.empty()) {
      return BadRequest(
          Cat("body is not valid JSON: the value of ", ShowJson(OrderedJson(key)), " at byte ",
              bare, " is not a finite number (NaN and Infinity are not JSON)"),
          key);
    }
    return BadRequest(Cat("body is not valid JSON: ", std::string(body.status().message())));
  }
  if (!body->is_object()) {
    return BadRequest(Cat("body must be a JSON object, got ", ShowJson(*body)));
  }
  *out = *std::move(body);
  return std::nullopt;
}

std::optional<ApiError> ParseCompletion(const OrderedJson& body,
                                        const RequestContext& context,
                                        CompletionParams* out) {
  FieldReader reader(body);
  GenerationParams& p = out->common;
  CheckFields(body, Endpoint::kCompletions, &reader);
  p.echo = reader.Bool("echo").value_or(false);
  ReadCommon(context, &reader, &p);
  if (const auto k = reader.Int("logprobs", 0, context.logprobs_max)) {
    p.sampling.logprobs = static_cast<int32_t>(*k);
  }
  p.add_special_tokens = reader.Bool("add_special_tokens").value_or(true);
  if (p.echo && p.sampling.logprobs >= 0) {
    if (p.stream) {
      reader.Fail(BadRequest("echo with logprobs is not available in a stream; send stream: false",
                             "echo"));
    }
    p.sampling.prompt_logprobs = std::max(p.sampling.prompt_logprobs, p.sampling.logprobs);
  }
  if (reader.failed()) return reader.error();
  if (auto error = ReadPrompts(body, context, &out->prompts)) return error;
  const int64_t choices = static_cast<int64_t>(out->prompts.size()) * p.n;
  if (choices > context.choices_max) {
    return BadRequest(Cat("n x prompts must be at most ", context.choices_max, ", got ", p.n, " x ",
                          out->prompts.size()),
                      "n");
  }
  return std::nullopt;
}

std::optional<ApiError> ParseRender(const OrderedJson& body, ChatRender* out) {
  FieldReader reader(body);
  out->add_generation_prompt = reader.Bool("add_generation_prompt").value_or(true);
  out->continue_final_message = reader.Bool("continue_final_message").value_or(false);
  if (out->continue_final_message && reader.Find("add_generation_prompt") == nullptr) {
    out->add_generation_prompt = false;
  }
  if (out->continue_final_message && out->add_generation_prompt) {
    reader.Fail(BadRequest("continue_final_message needs add_generation_prompt: false",
                           "continue_final_message"));
  }
  if (const OrderedJson* extra = reader.Find("chat_template_kwargs")) {
    if (!extra->is_object()) reader.FailType("chat_template_kwargs", "an object", *extra);
    out->extra = *extra;
  }
  ReadTools(&reader, out);
  const OrderedJson* messages = reader.Find("messages");
  if (messages == nullptr) {
    reader.Fail(
        BadRequest("messages is missing; send a list of {\"role\", \"content\"}", "messages"));
  }
  if (reader.failed()) return reader.error();
  out->messages = *messages;
  return CheckMessages(&out->messages);
}

std::optional<ApiError> ParseChat(const OrderedJson& body,
                                  const RequestContext& context,
                                  ChatParams* out) {
  FieldReader reader(body);
  GenerationParams& p = out->common;
  CheckFields(body, Endpoint::kChat, &reader);
  ReadCommon(context, &reader, &p);
  p.add_special_tokens = reader.Bool("add_special_tokens").value_or(false);
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  const auto top = reader.Int("top_logprobs", 0, context.logprobs_max);
  if (top.value_or(0) > 0 && !logprobs) {
    reader.Fail(BadRequest("top_logprobs needs logprobs: true", "top_logprobs"));
  }
  if (logprobs) p.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  if (reader.failed()) return reader.error();
  return ParseRender(body, &out->render);
}

std::optional<ApiError> FitToContext(const GenerationParams& params,
                                     int64_t prompt_tokens,
                                     const RequestContext& context,
                                     int64_t default_max_tokens,
                                     engine::SamplingParams* sampling) {
  const int64_t room = context.max_model_len - prompt_tokens;
  if (prompt_tokens == 0) return BadRequest("the prompt holds no token; send some text", "prompt");
  if (room < 1) {
    return BadRequest(Cat("this model's maximum context length is ", context.max_model_len,
                          " tokens and the prompt holds ", prompt_tokens,
                          "; shorten it to at most ", context.max_model_len - 1),
                      "prompt");
  }
  if (params.max_tokens.value_or(0) > room) {
    return BadRequest(Cat(params.max_tokens_name, " must be an integer in [1, ", room, "], got ",
                          *params.max_tokens, ": this model's maximum context length is ",
                          context.max_model_len, " tokens and the prompt holds ", prompt_tokens),
                      params.max_tokens_name);
  }
  sampling->max_tokens = params.max_tokens.value_or(std::min(default_max_tokens, room));
  // As in vLLM, the model's own limit holds for every request.
  if (const auto limit = context.defaults->max_new_tokens)
    sampling->max_tokens = std::min(sampling->max_tokens, *limit);
  if (sampling->min_tokens > sampling->max_tokens) {
    return BadRequest(Cat("min_tokens must be an integer in [0, max_tokens = ",
                          sampling->max_tokens, "], got ", sampling->min_tokens),
                      "min_tokens");
  }
  return std::nullopt;
}

}  // namespace baton::server
