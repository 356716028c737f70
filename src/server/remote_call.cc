#include "server/remote_call.h"

#include <utility>

#include "base/log.h"
#include "server/cat.h"
#include "server/generation_json.h"

namespace baton::server {
namespace {

using engine::FinishReason;
using engine::GenerateResult;
using engine::TokenEvent;

constexpr size_t kLineMax = size_t{16} << 20;
constexpr size_t kErrorBodyMax = 64 << 10;
constexpr Duration kFullPause = std::chrono::milliseconds(100);

}  // namespace

RouterShared::RouterShared(IoPool* io_pool, RouterOptions router_options)
    : io(io_pool),
      options(std::move(router_options)),
      table(std::make_shared<WorkerTable>(
          WorkerTable::Options{options.prefill, options.decode, options.connectors, 3, 8})),
      client(io_pool, HttpClient::Options{}),
      affinity(options.affinity_entries) {}

std::vector<std::shared_ptr<RemoteCall>> RouterShared::Calls() {
  MutexLock lock(&mu);
  std::vector<std::shared_ptr<RemoteCall>> out;
  for (const auto& [id, call] : calls) out.push_back(call);
  return out;
}

// The answer of a worker to one attempt.
class RemoteCall::Attempt final : public ClientHandler {
 public:
  Attempt(std::shared_ptr<RemoteCall> call, int64_t number)
      : call_(std::move(call)), number_(number) {}

  void OnHead(int status, const HttpHeaders&) override { http_status = status; }

  void OnData(std::string_view data) override {
    if (http_status != 200) {
      if (body.size() + data.size() <= kErrorBodyMax) body += data;
      return;
    }
    while (!data.empty() && malformed.empty()) {
      const size_t end = data.find('\n');
      line_ += data.substr(0, end);
      if (line_.size() > kLineMax) malformed = "a line is too long";
      if (end == std::string_view::npos) return;
      data.remove_prefix(end + 1);
      OnLine(std::exchange(line_, {}));
    }
  }

  void OnDone(const Status& status) override { call_->OnAttemptDone(number_, *this, status); }

  int http_status = 0;
  std::string body;  // of an answer other than 200
  std::optional<GenerateResult> result;
  std::string malformed;  // why the answer cannot be used

 private:
  void OnLine(const std::string& line) {
    auto decoded = DecodeLine(line);
    if (!decoded.ok()) {
      malformed = std::string(decoded.status().message());
    } else if (auto* events = std::get_if<std::vector<TokenEvent>>(&*decoded)) {
      call_->OnEvents(number_, *events);
    } else {
      result = std::get<GenerateResult>(*std::move(decoded));
    }
  }

  const std::shared_ptr<RemoteCall> call_;
  const int64_t number_;
  std::string line_;
};

RemoteCall::RemoteCall(std::shared_ptr<RouterShared> shared,
                       engine::GenerateRequest request,
                       std::shared_ptr<engine::GenerationSink> sink,
                       int64_t id)
    : shared_(std::move(shared)),
      id_(id),
      request_(std::move(request)),
      prompt_len_(request_.prompt_len > 0 ? request_.prompt_len
                                          : static_cast<int64_t>(request_.prompt.size())),
      prefill_name_(request_.prefill_endpoint),
      sink_(std::move(sink)) {
  request_.prompt_len = prompt_len_;
}

void RemoteCall::Begin() {
  MutexLock lock(&mu_);
  Dispatch();
}

void RemoteCall::Cancel() {
  if (cancel_.exchange(true)) return;
  // Not here: the caller may be the sink, called under mu_.
  shared_->io->After(Duration(0), [self = shared_from_this()] {
    MutexLock lock(&self->mu_);
    if (self->client_call_) {
      self->client_call_->Cancel();
    } else if (self->waiting_) {
      self->Dispatch();
    }
  });
}

void RemoteCall::Abandon() {
  MutexLock lock(&mu_);
  if (!sink_) return;
  GenerateResult cancelled;
  cancelled.reason = FinishReason::kCancelled;
  Finish(std::move(cancelled));
}

void RemoteCall::WorkerJoined() {
  MutexLock lock(&mu_);
  if (waiting_) Dispatch();
}

void RemoteCall::WorkerHung(WorkerIndex worker) {
  MutexLock lock(&mu_);
  if (client_call_ && decode_ == worker) client_call_->Cancel();
}

void RemoteCall::Dispatch() {
  waiting_ = false;
  if (!sink_) return;
  if (cancel_.load()) {
    GenerateResult cancelled;
    cancelled.reason = FinishReason::kCancelled;
    return Finish(std::move(cancelled));
  }
  // The worker may have been lost between the last token and the result.
  if (static_cast<int64_t>(request_.prompt.size()) - prompt_len_ >= request_.sampling.max_tokens) {
    GenerateResult complete;
    complete.reason = FinishReason::kLength;
    return Finish(std::move(complete));
  }
  WorkerTable::DecodeQuery query;
  query.fingerprint = fingerprint_;
  query.excluded = full_;
  if (auto placement = shared_->affinity.Find(request_.prompt, request_.cache_salt)) {
    query.preferred = placement->worker;
    query.preferred_epoch = placement->epoch;
  }
  if (const auto pick = shared_->table->PickDecode(query)) return Send(*pick);
  const bool streaming = static_cast<int64_t>(request_.prompt.size()) > prompt_len_;
  if (!full_.empty() && !streaming) {
    return FinishError(
        absl::ResourceExhaustedError("every healthy decode worker is full; retry later"));
  }
  Wait();
  if (full_.empty()) return;
  // A stream under way is not given up because its new home is full just now.
  full_.clear();
  shared_->io->After(kFullPause, [self = shared_from_this()] { self->WorkerJoined(); });
}

void RemoteCall::Send(const WorkerTable::DecodePick& pick) {
  if (deadline_) std::exchange(deadline_, nullptr)->Cancel();
  decode_ = pick.worker;
  epoch_ = pick.epoch;
  fingerprint_ = pick.fingerprint;
  request_.prefill_endpoint.clear();
  // Scores of the prompt need its logits, which only the worker that computes it has.
  if (HandoffBoundary(static_cast<int64_t>(request_.prompt.size())) > 0 &&
      request_.sampling.prompt_logprobs < 0) {
    if (auto prefill = shared_->table->PickPrefill(pick.worker, prefill_name_)) {
      prefill_ = prefill->worker;
      request_.prefill_endpoint = prefill->endpoint;
    }
  }
  const int64_t conversation =
      request_.conversation_len > 0 ? request_.conversation_len : HandoffBoundary(prompt_len_);
  const std::span<const TokenId> tokens(request_.prompt);
  shared_->affinity.Remember(tokens.first(std::min<size_t>(conversation, tokens.size())),
                             request_.cache_salt, {pick.worker, pick.epoch});
  ClientRequest http;
  http.address = shared_->table->address(pick.worker);
  http.method = "POST";
  http.target = "/internal/generate";
  http.headers.emplace_back("Content-Type", "application/json");
  if (!shared_->options.worker_api_key.empty()) {
    http.headers.emplace_back("Authorization", Cat("Bearer ", shared_->options.worker_api_key));
  }
  http.body = EncodeRequest(request_);
  client_call_ = shared_->client.Start(std::move(http),
                                       std::make_shared<Attempt>(shared_from_this(), ++attempt_));
}

void RemoteCall::Wait() {
  waiting_ = true;
  if (deadline_) return;
  deadline_ = shared_->io->After(std::chrono::milliseconds(shared_->options.worker_wait_ms),
                                 [self = shared_from_this()] { self->WaitedTooLong(); });
}

void RemoteCall::WaitedTooLong() {
  MutexLock lock(&mu_);
  if (!waiting_) return;
  FinishError(absl::UnavailableError(
      Cat("no healthy decode worker within ", shared_->options.worker_wait_ms, " ms (",
          shared_->table->Problems(WorkerDuty::kDecode), "); retry later")));
}

void RemoteCall::OnEvents(int64_t attempt, std::span<const TokenEvent> events) {
  MutexLock lock(&mu_);
  if (attempt != attempt_ || !sink_ || events.empty()) return;
  for (const TokenEvent& event : events) request_.prompt.push_back(event.token);
  request_.logits_hash = events.back().logits_hash;
  fruitless_ = 0;
  ReleasePrefill();
  sink_->OnTokens(events);
}

void RemoteCall::OnAttemptDone(int64_t attempt, const Attempt& outcome, const Status& status) {
  MutexLock lock(&mu_);
  if (attempt != attempt_ || !sink_) return;
  client_call_.reset();
  Judge(outcome, status);
}

// What the end of an attempt means. decode_ is still set.
void RemoteCall::Judge(const Attempt& outcome, const Status& status) {
  const std::string name = shared_->table->address(*decode_).Name();
  if (cancel_.load()) {
    ReleaseWorkers();
    return Dispatch();
  }
  if (outcome.result.has_value()) {
    const GenerateResult& result = *outcome.result;
    // Ends that the worker did not choose for this request: it is stopping.
    const bool stopping = result.reason == FinishReason::kCancelled ||
                          (result.reason == FinishReason::kError && !ReasonOf(result.error) &&
                           result.error.code() == absl::StatusCode::kUnavailable);
    if (stopping) return WorkerLost("is stopping");
    ReleaseWorkers();
    return Finish(*outcome.result);
  }
  if (!outcome.malformed.empty()) {
    return WorkerLost(Cat("sent a malformed answer: ", outcome.malformed));
  }
  if (!status.ok()) return WorkerLost(std::string(status.message()));
  if (outcome.http_status == 200) return WorkerLost("ended its answer without a result");
  if (outcome.http_status == 503) return WorkerLost("draining");
  const WorkerIndex worker = *decode_;
  ReleaseWorkers();
  const Json body = ParseJsonLenient(outcome.body).value_or(Json());
  const Json error = body.is_object() ? body.value("error", Json()) : Json();
  auto decoded = StatusFromJson(error);
  if (outcome.http_status == 429) {
    full_.insert(worker);
    return Dispatch();
  }
  if (outcome.http_status == 400 && decoded.ok()) return FinishError(*decoded);
  FinishError(absl::InternalError(
      Cat("worker ", name, " answered ", outcome.http_status, ": ", outcome.body.substr(0, 300),
          outcome.http_status == 401 ? " (check the router's worker key)" : "")));
}

void RemoteCall::WorkerLost(const std::string& problem) {
  const WorkerIndex worker = *decode_;
  ReleaseWorkers();
  const std::string name = shared_->table->address(worker).Name();
  if (shared_->table->ReportFailed(worker, problem)) {
    LogWarning(Cat("worker ", name, " left: ", problem));
  }
  if (++fruitless_ >= shared_->options.attempts_max) {
    return FinishError(absl::UnavailableError(
        Cat(fruitless_, " attempts on decode workers failed, the last on ", name, ": ", problem)));
  }
  const int64_t sent = static_cast<int64_t>(request_.prompt.size()) - prompt_len_;
  shared_->failovers.fetch_add(1);
  shared_->resubmitted_tokens.fetch_add(sent);
  LogInfo(Cat("request ", request_.label, " continues elsewhere after ", sent, " tokens"));
  Dispatch();
}

void RemoteCall::FinishError(Status error) {
  GenerateResult result;
  result.reason = FinishReason::kError;
  result.error = std::move(error);
  Finish(std::move(result));
}

void RemoteCall::Finish(GenerateResult result) {
  waiting_ = false;
  if (deadline_) std::exchange(deadline_, nullptr)->Cancel();
  // The last worker counts from its own start; the caller counts from the prompt.
  result.usage.prompt_tokens = prompt_len_;
  result.usage.completion_tokens = static_cast<int64_t>(request_.prompt.size()) - prompt_len_;
  if (result.reason == FinishReason::kStop || result.reason == FinishReason::kLength) {
    const std::span<const TokenId> tokens(request_.prompt);
    if (decode_last_.has_value()) {
      shared_->affinity.Remember(tokens, request_.cache_salt, {*decode_last_, epoch_});
    }
  }
  const std::shared_ptr<engine::GenerationSink> sink = std::exchange(sink_, nullptr);
  {
    MutexLock lock(&shared_->mu);
    shared_->calls.erase(id_);
  }
  sink->OnFinish(result);
}

void RemoteCall::ReleasePrefill() {
  if (prefill_) shared_->table->Release(*std::exchange(prefill_, std::nullopt));
}

void RemoteCall::ReleaseWorkers() {
  ReleasePrefill();
  if (!decode_) return;
  decode_last_ = decode_;
  shared_->table->Release(*std::exchange(decode_, std::nullopt));
}

}  // namespace baton::server
