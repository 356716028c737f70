// ApiService: completions, chat, tokenize and detokenize.
#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/rng.h"
#include "server/api_service.h"
#include "server/cat.h"
#include "server/field_reader.h"
#include "server/generation_call.h"

namespace baton::server {
namespace {

constexpr int64_t kCompletionTokensDefault = 16;  // as OpenAI and vLLM have it
// Larger bodies are parsed and tokenised off the io thread, which others share.
constexpr size_t kInlineBodyBytes = size_t{32} << 10;
constexpr size_t kDetokenizeMax = size_t{1} << 20;

std::string RandomId(std::string_view prefix) { return Cat(prefix, RandomBytes<StateId>().Hex()); }

ApiError NoText() {
  ApiError error;
  error.status = 501;
  error.message = "this model has no tokenizer; send token ids to /v1/completions";
  return error;
}

// Text that the template or the tokenizer objects to: the request's fault, whatever the code.
ApiError TextRefused(const Status& status, std::string_view param) {
  return BadRequest(std::string(status.message()), param);
}

}  // namespace

RequestContext ApiService::Context() const {
  RequestContext context;
  context.defaults = &deps_.text->defaults();
  context.max_model_len = generator_.max_model_len();
  context.vocab_size = generator_.vocab_size();
  context.choices_max = options_.choices_per_request_max;
  return context;
}

std::optional<ApiError> ApiService::CheckModel(const std::string& name) const {
  const auto& names = options_.served_model_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) {
    return std::nullopt;
  }
  ApiError error;
  error.status = 404;
  error.param = "model";
  error.message = Cat("model ", ShowJson(OrderedJson(name)), " is not served here; served: ");
  for (size_t i = 0; i < names.size(); ++i) CatTo(&error.message, i > 0 ? ", " : "", names[i]);
  return error;
}

std::optional<ApiError> ApiService::RefuseNewWork() const {
  if (deps_.text == nullptr) return NoText();
  if (!draining()) return std::nullopt;
  ApiError error;
  error.status = 503;
  error.message = "the server is draining; retry elsewhere or later";
  error.retry_after_s = 5;
  return error;
}

void ApiService::FillInfo(const GenerationParams& params, bool chat, AnswerInfo* info) const {
  info->chat = chat;
  info->id = RandomId(chat ? "chatcmpl-" : "cmpl-");
  info->model = params.model.empty() ? options_.served_model_names.front() : params.model;
  info->created = std::time(nullptr);
  info->return_token_ids = params.return_token_ids;
  info->logprobs = params.sampling.logprobs >= 0;
  info->top_logprobs = std::max(0, params.sampling.logprobs);
  info->echo = params.echo;
  info->prompt_logprobs = params.prompt_logprobs;
}

std::optional<ApiError> ApiService::PlanCompletion(const HttpRequest& request,
                                                   CallPlan* plan) const {
  OrderedJson body;
  CompletionParams params;
  const RequestContext context = Context();
  if (auto error = ParseBody(request.body, &body)) return error;
  if (auto error = ParseCompletion(body, context, &params)) return error;
  if (auto error = CheckModel(params.common.model)) return error;
  FillInfo(params.common, false, &plan->info);
  plan->params = params.common;
  if (auto error = Encode(params, context, plan)) return error;
  FinishPlan(request, plan);
  return std::nullopt;
}

std::optional<ApiError> ApiService::Encode(const CompletionParams& params,
                                           const RequestContext& context,
                                           CallPlan* plan) const {
  for (const PromptInput& input : params.prompts) {
    PreparedPrompt prompt;
    if (input.is_text && !deps_.text->has_tokenizer()) return NoText();
    prompt.tokens = input.ids;
    if (input.is_text) {
      auto tokens = deps_.text->Encode(input.text, params.common.add_special_tokens);
      if (!tokens.ok()) return TextRefused(tokens.status(), "prompt");
      prompt.tokens = *std::move(tokens);
    }
    prompt.sampling = params.common.sampling;
    if (params.common.echo) {
      prompt.echo = input.is_text ? input.text : deps_.text->Decode(input.ids, true);
    }
    if (auto error = FitToContext(params.common, static_cast<int64_t>(prompt.tokens.size()),
                                  context, kCompletionTokensDefault, &prompt.sampling)) {
      return error;
    }
    plan->prompts.push_back(std::move(prompt));
  }
  return std::nullopt;
}

std::optional<ApiError> ApiService::RenderTokens(const ChatRender& render,
                                                 bool add_special_tokens,
                                                 PreparedPrompt* prompt) const {
  const auto text = deps_.text->RenderChat(render);
  if (!text.ok()) {
    // Whatever the template objects to is in the messages; a model without one serves no chat.
    return TextRefused(text.status(), "messages");
  }
  auto tokens = deps_.text->Encode(*text, add_special_tokens);
  if (!tokens.ok()) return TextRefused(tokens.status(), "messages");
  prompt->tokens = *std::move(tokens);
  ChatRender conversation = render;
  conversation.add_generation_prompt = false;
  conversation.continue_final_message = false;
  const auto conversation_text = deps_.text->RenderChat(conversation);
  if (conversation_text.ok()) {
    const auto told = deps_.text->Encode(*conversation_text, add_special_tokens);
    if (!told.ok()) return TextRefused(told.status(), "messages");
    const auto [a, b] =
        std::mismatch(told->begin(), told->end(), prompt->tokens.begin(), prompt->tokens.end());
    prompt->conversation_len = a - told->begin();
  }
  return std::nullopt;
}

std::optional<ApiError> ApiService::PlanChat(const HttpRequest& request, CallPlan* plan) const {
  OrderedJson body;
  ChatParams params;
  const RequestContext context = Context();
  if (auto error = ParseBody(request.body, &body)) return error;
  if (auto error = ParseChat(body, context, &params)) return error;
  if (auto error = CheckModel(params.common.model)) return error;
  FillInfo(params.common, true, &plan->info);
  plan->params = params.common;
  PreparedPrompt prompt;
  if (auto error = RenderTokens(params.render, params.common.add_special_tokens, &prompt)) {
    return error;
  }
  prompt.sampling = params.common.sampling;
  auto error = FitToContext(params.common, static_cast<int64_t>(prompt.tokens.size()), context,
                            context.defaults->max_new_tokens.value_or(context.max_model_len),
                            &prompt.sampling);
  if (error.has_value()) {
    if (error->param == "prompt") error->param = "messages";
    return error;
  }
  plan->prompts.push_back(std::move(prompt));
  FinishPlan(request, plan);
  return std::nullopt;
}

void ApiService::FinishPlan(const HttpRequest& request, CallPlan* plan) const {
  if (options_.accept_prefiller_header) {
    plan->prefill_endpoint = std::string(request.header("x-prefiller-host-port"));
  }
  if (plan->params.sampling.ignore_eos) return;
  const auto& eos = deps_.text->defaults().eos_token_ids;
  for (PreparedPrompt& prompt : plan->prompts) {
    auto& ids = prompt.sampling.stop_token_ids;
    // Published files name ids beyond the vocabulary; those never come.
    std::copy_if(eos.begin(), eos.end(), std::back_inserter(ids),
                 [&](TokenId id) { return int64_t{id} < generator_.vocab_size(); });
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
}

void ApiService::RunCall(CallPlan plan, const std::shared_ptr<Exchange>& exchange) {
  auto call = std::make_shared<GenerationCall>(&generator_, deps_.text, std::move(plan), exchange);
  call->Run(calls_.get(),
            [self = shared_from_this()](int status) { self->deps_.metrics->HttpAnswer(status); });
}

void ApiService::Completions(const HttpRequest& request,
                             const std::shared_ptr<Exchange>& exchange) {
  PlanAndRun(request, exchange, &ApiService::PlanCompletion);
}

void ApiService::Chat(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  PlanAndRun(request, exchange, &ApiService::PlanChat);
}

void ApiService::PlanAndRun(const HttpRequest& request,
                            const std::shared_ptr<Exchange>& exchange,
                            Planner planner) {
  if (auto error = RefuseNewWork()) return AnswerError(exchange.get(), *error);
  auto plan = std::make_shared<CallPlan>();
  if (request.body.size() <= kInlineBodyBytes) {
    if (auto error = (this->*planner)(request, plan.get())) {
      return AnswerError(exchange.get(), *error);
    }
    return RunCall(std::move(*plan), exchange);
  }
  // `this` outlives the task, because the thread is the first member to be destroyed.
  background_.Post([this, weak = weak_from_this(), request, exchange, planner, plan] {
    auto error = (this->*planner)(request, plan.get());
    exchange->Post([weak, exchange, plan, error] {
      auto self = weak.lock();
      if (!self) return;
      if (error.has_value()) return self->AnswerError(exchange.get(), *error);
      self->RunCall(std::move(*plan), exchange);
    });
  });
}

void ApiService::Tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (deps_.text == nullptr || !deps_.text->has_tokenizer())
    return AnswerError(exchange.get(), NoText());
  OrderedJson body;
  if (auto error = ParseBody(request.body, &body)) return AnswerError(exchange.get(), *error);
  FieldReader reader(body);
  const bool chat = reader.Find("messages") != nullptr;
  const bool special = reader.Bool("add_special_tokens").value_or(!chat);
  const bool strings = reader.Bool("return_token_strs").value_or(false);
  const std::string model = reader.String("model", 1024).value_or("");
  const std::string text = reader.String("prompt", size_t{1} << 30).value_or("");
  if (!chat && reader.Find("prompt") == nullptr) {
    reader.Fail(BadRequest("prompt is missing; send a string, or messages", "prompt"));
  }
  if (reader.failed()) return AnswerError(exchange.get(), *reader.error());
  if (auto error = CheckModel(model)) return AnswerError(exchange.get(), *error);
  PreparedPrompt prompt;
  if (chat) {
    ChatRender render;
    if (auto error = ParseRender(body, &render)) return AnswerError(exchange.get(), *error);
    if (auto error = RenderTokens(render, special, &prompt)) {
      return AnswerError(exchange.get(), *error);
    }
  } else {
    auto tokens = deps_.text->Encode(text, special);
    if (!tokens.ok()) return AnswerError(exchange.get(), TextRefused(tokens.status(), "prompt"));
    prompt.tokens = *std::move(tokens);
  }
  Json json{{"count", prompt.tokens.size()},
            {"max_model_len", generator_.max_model_len()},
            {"tokens", prompt.tokens}};
  if (strings) {
    Json list = Json::array();
    for (const TokenId id : prompt.tokens) list.push_back(deps_.text->TokenBytes(id));
    json["token_strs"] = std::move(list);
  }
  AnswerJson(exchange.get(), json);
}

void ApiService::Detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (deps_.text == nullptr || !deps_.text->has_tokenizer())
    return AnswerError(exchange.get(), NoText());
  OrderedJson body;
  if (auto error = ParseBody(request.body, &body)) return AnswerError(exchange.get(), *error);
  FieldReader reader(body);
  const std::string model = reader.String("model", 1024).value_or("");
  const auto ids = reader.TokenIds("tokens", generator_.vocab_size(), kDetokenizeMax);
  if (reader.Find("tokens") == nullptr) {
    reader.Fail(BadRequest("tokens is missing; send a list of token ids", "tokens"));
  }
  if (reader.failed()) return AnswerError(exchange.get(), *reader.error());
  if (auto error = CheckModel(model)) return AnswerError(exchange.get(), *error);
  AnswerJson(exchange.get(), Json{{"prompt", deps_.text->Decode(ids, false)}});
}

}  // namespace baton::server
