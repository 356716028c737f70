#include "server/generation_call.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "server/cat.h"
#include "server/generation_json.h"
#include "server/relay_sink.h"

namespace baton::server {
namespace {

using engine::FinishReason;
using engine::GenerateResult;
using engine::TokenEvent;

uint64_t RandomSeed() {
  uint64_t seed = 0;
  FillRandom(&seed, sizeof(seed));
  return seed;
}

ApiError Stopping() {
  ApiError error;
  error.status = 503;
  error.message = "the server is shutting down and ended this request; retry elsewhere or later";
  error.retry_after_s = 1;
  return error;
}

ApiError Busy(int64_t max) {
  ApiError error;
  error.status = 429;
  error.message =
      Cat("too many requests: at most ", max, " choices are served at once; retry later");
  error.retry_after_s = 1;
  return error;
}

int64_t CodePoints(const std::string& s) {
  return std::count_if(s.begin(), s.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace

GenerationCall::GenerationCall(engine::Generator* generator,
                               const TextFrontend* text,
                               CallPlan plan,
                               std::shared_ptr<Exchange> exchange)
    : generator_(generator), text_(text), plan_(std::move(plan)), exchange_(std::move(exchange)) {}

void GenerationCall::Run(ActiveCalls* calls, std::function<void(int)> on_status) {
  on_status_ = std::move(on_status);
  AddChoices();
  std::weak_ptr<GenerationCall> weak = weak_from_this();
  ticket_ = calls->Enter(static_cast<int64_t>(choices_.size()), [weak] {
    if (auto self = weak.lock()) self->Abort();
  });
  if (!ticket_) return Fail(Busy(calls->weight_max()));
  exchange_->OnClosed([weak] {
    auto self = weak.lock();
    if (!self) return;
    self->done_ = true;
    self->CancelAll();
    self->ReportStatus(499);
  });
  for (auto& choice : choices_) {
    if (auto error = StartChoice(choice.get())) return Fail(*error);
  }
}

void GenerationCall::AddChoices() {
  const uint64_t base = plan_.params.seed.has_value() ? *plan_.params.seed : RandomSeed();
  for (const PreparedPrompt& prompt : plan_.prompts) {
    for (int64_t i = 0; i < plan_.params.n; ++i) {
      auto choice = std::make_unique<Choice>();
      choice->index = static_cast<int64_t>(choices_.size());
      choice->prompt = &prompt;
      choice->seed = base + static_cast<uint64_t>(i);
      choice->stream = std::make_unique<TextStream>(
          text_->NewDecoder(plan_.params.skip_special_tokens),
          TextStream::Options{plan_.params.stop, plan_.params.include_stop_str,
                              plan_.params.sampling.min_tokens});
      choice->text = prompt.echo;
      choice->code_points = CodePoints(prompt.echo);
      choices_.push_back(std::move(choice));
    }
  }
}

std::optional<ApiError> GenerationCall::StartChoice(Choice* choice) {
  engine::GenerateRequest request;
  request.prompt = choice->prompt->tokens;
  request.prompt_len = static_cast<int64_t>(request.prompt.size());
  request.sampling = choice->prompt->sampling;
  request.sampling.seed = choice->seed;
  // The prompt is scored once, whatever the number of its choices.
  if (choice->index % plan_.params.n != 0) request.sampling.prompt_logprobs = -1;
  request.cache_salt = plan_.params.cache_salt;
  request.conversation_len = choice->prompt->conversation_len;
  request.prefill_endpoint = plan_.prefill_endpoint;
  request.label = plan_.info.id;
  // The sink, held by the generator until the end, keeps the call alive.
  auto sink = std::make_shared<RelaySink>(
      exchange_, [self = shared_from_this(), choice](std::vector<TokenEvent> events,
                                                     std::optional<GenerateResult> result) {
        if (!events.empty()) self->OnEvents(choice, events);
        if (result.has_value()) self->OnResult(choice, *std::move(result));
      });
  auto generation = generator_->Start(std::move(request), std::move(sink));
  if (!generation.ok()) return ErrorFromStatus(generation.status());
  choice->generation = *std::move(generation);
  ++running_;
  return std::nullopt;
}

void GenerationCall::OnEvents(Choice* choice, const std::vector<TokenEvent>& events) {
  // Tokens that the engine made after a stop string was found are not part of the answer.
  if (done_ || plan_.params.score_only || choice->stream->stopped()) return;
  std::string text;
  size_t used = 0;
  while (used < events.size() && !choice->stream->stopped()) {
    const TokenEvent& event = events[used++];
    text += choice->stream->Push(event.token);
    choice->logits_hash = event.logits_hash;
    ++choice->tokens;
  }
  if (choice->stream->stopped()) choice->generation->Cancel();
  const std::span<const TokenEvent> taken(events.data(), used);
  const bool keep_events =
      plan_.params.debug ||
      (!plan_.params.stream && (plan_.info.logprobs || plan_.info.return_token_ids));
  if (keep_events) choice->events.insert(choice->events.end(), taken.begin(), taken.end());
  if (!plan_.params.stream) {
    choice->text += text;
  } else if (!text.empty() || plan_.info.logprobs || plan_.info.return_token_ids) {
    SendChunk(choice, std::move(text), taken, false);
  }
}

void GenerationCall::OnResult(Choice* choice, GenerateResult result) {
  choice->result = std::move(result);
  choice->generation.reset();
  --running_;
  if (done_) {
    if (running_ == 0) ticket_.reset();
    return;
  }
  if (aborted_) return Fail(Stopping());
  if (choice->result->reason == FinishReason::kError) {
    return Fail(ErrorFromStatus(choice->result->error));
  }
  if (choice->result->reason == FinishReason::kCancelled && !choice->stream->stopped()) {
    return Fail(Stopping());
  }
  std::string rest = choice->stream->Finish();
  if (plan_.params.stream) {
    SendChunk(choice, std::move(rest), {}, true);
  } else {
    choice->text += rest;
  }
  if (running_ == 0) Complete();
}

void GenerationCall::SendChunk(Choice* choice,
                               std::string text,
                               std::span<const TokenEvent> events,
                               bool final_chunk) {
  if (!streaming_) {
    streaming_ = true;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers.emplace_back("Cache-Control", "no-cache");
    exchange_->BeginStream(std::move(head));
    ReportStatus(200);
  }
  std::string out;
  if (!choice->chunk_sent && plan_.info.chat) {
    // The role comes in a chunk of its own, as clients expect.
    ChoicePiece role;
    role.index = choice->index;
    role.first = true;
    role.prompt = &choice->prompt->tokens;
    out += SseEvent(ChunkJson(plan_.info, *text_, role));
    choice->chunk_sent = true;
  }
  ChoicePiece piece;
  if (final_chunk) piece = FinalPiece(*choice);
  piece.index = choice->index;
  piece.first = !choice->chunk_sent;
  piece.prompt = &choice->prompt->tokens;
  piece.text = piece.first ? choice->prompt->echo + text : std::move(text);
  piece.events = events;
  piece.text_offset = choice->code_points;
  for (const TokenEvent& event : events) {
    choice->code_points += CodePoints(text_->TokenBytes(event.token));
  }
  out += SseEvent(ChunkJson(plan_.info, *text_, piece));
  choice->chunk_sent = true;
  // A dropped write closes the connection, and OnClosed then ends this call.
  exchange_->Write(out);
}

// Everything but text and events.
ChoicePiece GenerationCall::FinalPiece(const Choice& choice) const {
  ChoicePiece piece;
  piece.index = choice.index;
  piece.prompt = &choice.prompt->tokens;
  piece.finish_reason = "stop";
  if (plan_.params.score_only) {
    piece.finish_reason = "length";
  } else if (choice.stream->stopped()) {
    piece.stop_reason = choice.stream->stop_string();
  } else if (choice.result->reason == FinishReason::kLength) {
    piece.finish_reason = "length";
  } else if (choice.result->stop_token.has_value()) {
    const auto& eos = text_->defaults().eos_token_ids;
    const TokenId id = *choice.result->stop_token;
    if (std::find(eos.begin(), eos.end(), id) == eos.end()) piece.stop_reason = id;
  }
  if (plan_.params.debug) piece.baton = DebugJson(choice);
  return piece;
}

Json GenerationCall::DebugJson(const Choice& choice) const {
  Json ids = Json::array();
  for (const TokenEvent& event : choice.events) ids.push_back(event.token);
  Json handoffs = Json::array();
  for (const auto& record : choice.result->handoffs) handoffs.push_back(HandoffToJson(record));
  const engine::Usage& usage = choice.result->usage;
  return Json{{"logits_hash", choice.logits_hash.Hex()},
              {"token_ids", std::move(ids)},
              {"seed", choice.seed},
              {"handoffs", std::move(handoffs)},
              {"cached_tokens", usage.cached_tokens},
              {"local_prefill_tokens", usage.local_prefill_tokens},
              {"recomputed_tokens", usage.recomputed_tokens},
              {"rejects", usage.rejects}};
}

// A prompt counts once, however many choices came from it.
UsageTotals GenerationCall::Totals() const {
  UsageTotals totals;
  const PreparedPrompt* counted = nullptr;
  for (const auto& choice : choices_) {
    totals.completion_tokens += choice->tokens;
    if (choice->prompt == counted) continue;
    counted = choice->prompt;
    totals.prompt_tokens += static_cast<int64_t>(choice->prompt->tokens.size());
    totals.cached_tokens += choice->result->usage.cached_tokens;
  }
  return totals;
}

void GenerationCall::Complete() {
  done_ = true;
  ticket_.reset();
  if (plan_.params.stream) {
    std::string out;
    if (plan_.params.include_usage) out += SseEvent(UsageChunkJson(plan_.info, Totals()));
    out += "data: [DONE]\n\n";
    exchange_->Write(out);
    exchange_->End();
    return;
  }
  std::vector<ChoicePiece> pieces;
  for (const auto& choice : choices_) {
    ChoicePiece piece = FinalPiece(*choice);
    piece.text = choice->text;
    piece.events = choice->events;
    piece.text_offset = choice->code_points;
    if (choice->prompt->sampling.prompt_logprobs >= 0) {
      const int64_t first = choice->index - choice->index % plan_.params.n;
      piece.scores = &choices_[static_cast<size_t>(first)]->result->prompt_scores;
    }
    pieces.push_back(std::move(piece));
  }
  HttpResponse response;
  response.body = DumpJson(AnswerJson(plan_.info, *text_, pieces, Totals()));
  exchange_->Send(std::move(response));
  ReportStatus(200);
}

void GenerationCall::Fail(const ApiError& error) {
  if (done_) return;
  done_ = true;
  CancelAll();
  if (running_ == 0) ticket_.reset();
  if (streaming_) {
    exchange_->Write(Cat(SseEvent(ErrorJson(error)), "data: [DONE]\n\n"));
    exchange_->End();
    return;
  }
  exchange_->Send(ErrorResponse(error));
  ReportStatus(error.status);
}

void GenerationCall::Abort() {
  exchange_->Post([self = shared_from_this()] {
    self->aborted_ = true;
    self->Fail(Stopping());
  });
}

void GenerationCall::CancelAll() {
  for (auto& choice : choices_) {
    if (choice->generation) choice->generation->Cancel();
  }
}

void GenerationCall::ReportStatus(int status) {
  if (on_status_) std::exchange(on_status_, nullptr)(status);
}

}  // namespace baton::server
