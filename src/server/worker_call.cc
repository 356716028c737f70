#include "server/worker_call.h"

#include <utility>

#include "server/api_error.h"
#include "server/cat.h"
#include "server/generation_json.h"
#include "server/relay_sink.h"

namespace baton::server {

void WorkerCall::Refuse(const Status& status, Exchange* exchange) {
  const ApiError error = ErrorFromStatus(status);
  HttpResponse response;
  response.status = error.status;
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  response.body = DumpJson(Json{{"error", StatusToJson(status)}});
  exchange->Send(std::move(response));
}

void WorkerCall::Run(std::string_view body, ActiveCalls* calls) {
  auto request = DecodeRequest(body);
  if (!request.ok()) {
    return Refuse(absl::InvalidArgumentError(
                      Cat("malformed generate request: ", std::string(request.status().message()))),
                  exchange_.get());
  }
  std::weak_ptr<WorkerCall> weak = weak_from_this();
  ticket_ = calls->Enter(1, [weak] {
    if (auto self = weak.lock()) self->Abort();
  });
  if (!ticket_) {
    return Refuse(
        absl::ResourceExhaustedError(Cat("worker is full: ", calls->weight_max(), " requests")),
        exchange_.get());
  }
  auto sink = std::make_shared<RelaySink>(
      exchange_, [self = shared_from_this()](std::vector<engine::TokenEvent> events,
                                             std::optional<engine::GenerateResult> result) {
        std::string lines;
        if (!events.empty()) lines += EncodeEvents(events);
        if (result.has_value()) lines += EncodeResult(*result);
        self->exchange_->Write(lines);
        if (!result.has_value()) return;
        self->exchange_->End();
        self->generation_.reset();
        self->ticket_.reset();
      });
  auto generation = generator_->Start(*std::move(request), std::move(sink));
  if (!generation.ok()) {
    ticket_.reset();
    return Refuse(generation.status(), exchange_.get());
  }
  generation_ = *std::move(generation);
  HttpResponse head;
  head.content_type = "application/x-ndjson";
  exchange_->BeginStream(std::move(head));
  exchange_->OnClosed([weak] {
    if (auto self = weak.lock(); self && self->generation_) self->generation_->Cancel();
  });
}

void WorkerCall::Abort() {
  exchange_->Post([self = shared_from_this()] {
    if (self->generation_) self->generation_->Cancel();
  });
}

}  // namespace baton::server
