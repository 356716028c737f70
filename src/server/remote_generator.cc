#include "server/remote_generator.h"

#include <algorithm>
#include <utility>

#include "server/cat.h"
#include "server/remote_call.h"

namespace baton::server {

RemoteGenerator::RemoteGenerator(IoPool* io, RouterOptions options)
    : shared_(std::make_shared<RouterShared>(io, std::move(options))) {}

RemoteGenerator::~RemoteGenerator() {
  Stop();
  for (const auto& call : shared_->Calls()) call->Abandon();
}

void RemoteGenerator::StartHealthChecks() {
  shared_->monitor =
      std::make_shared<HealthMonitor>(shared_->io, &shared_->client, shared_->table,
                                      HealthMonitor::Options{shared_->options.health_interval_ms,
                                                             shared_->options.health_timeout_ms});
  std::weak_ptr<RouterShared> weak = shared_;
  HealthMonitor::Hooks hooks;
  hooks.joined = [weak](WorkerIndex) {
    if (auto shared = weak.lock())
      for (const auto& call : shared->Calls()) call->WorkerJoined();
  };
  hooks.hung = [weak](WorkerIndex worker) {
    if (auto shared = weak.lock())
      for (const auto& call : shared->Calls()) call->WorkerHung(worker);
  };
  shared_->monitor->Start(std::move(hooks));
}

void RemoteGenerator::Stop() {
  if (shared_->monitor) shared_->monitor->Stop();
  {
    MutexLock lock(&shared_->mu);
    shared_->stopped = true;
  }
  for (const auto& call : shared_->Calls()) call->Cancel();
}

StatusOr<std::shared_ptr<engine::Generation>> RemoteGenerator::Start(
    engine::GenerateRequest request, std::shared_ptr<engine::GenerationSink> sink) {
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt holds no token");
  const std::string& name = request.prefill_endpoint;
  if (!name.empty() && !shared_->table->KnowsPrefill(name)) {
    std::string known;
    for (const HttpAddress& a : shared_->options.prefill) {
      CatTo(&known, known.empty() ? "" : ", ", a.Name());
    }
    return absl::InvalidArgumentError(
        Cat("x-prefiller-host-port must name one of this router's prefill workers (", known,
            "), got ", name.substr(0, 200)));
  }
  std::shared_ptr<RemoteCall> call;
  {
    MutexLock lock(&shared_->mu);
    if (shared_->stopped) return absl::UnavailableError("the router is stopping");
    if (static_cast<int64_t>(shared_->calls.size()) >= shared_->options.in_flight_max) {
      return absl::ResourceExhaustedError(Cat("too many requests: at most ",
                                              shared_->options.in_flight_max,
                                              " are in flight at once; retry later"));
    }
    const int64_t id = shared_->next_id++;
    call = std::make_shared<RemoteCall>(shared_, std::move(request), std::move(sink), id);
    shared_->calls.emplace(id, call);
  }
  call->Begin();
  return std::shared_ptr<engine::Generation>(std::move(call));
}

int64_t RemoteGenerator::max_model_len() const {
  const int64_t own = shared_->options.max_model_len;
  const int64_t workers = shared_->table->max_model_len();
  if (own == 0 || workers == 0) return std::max(own, workers);
  return std::min(own, workers);
}

int64_t RemoteGenerator::vocab_size() const {
  const int64_t own = shared_->options.vocab_size;
  return own > 0 ? own : shared_->table->vocab_size();
}

bool RemoteGenerator::Ready() const {
  bool decode = false;
  bool prefill = shared_->options.prefill.empty();
  for (const WorkerView& w : shared_->table->View()) {
    if (!w.healthy) continue;
    (w.duty == WorkerDuty::kDecode ? decode : prefill) = true;
  }
  return decode && prefill;
}

Json RemoteGenerator::HealthExtra() const {
  Json workers = Json::array();
  for (const WorkerView& w : shared_->table->View()) {
    workers.push_back(Json{{"address", w.address.Name()},
                           {"role", w.duty == WorkerDuty::kDecode ? "decode" : "prefill"},
                           {"healthy", w.healthy},
                           {"problem", w.problem},
                           {"in_flight", w.in_flight},
                           {"epoch", w.info.epoch}});
  }
  return Json{{"ready", Ready()}, {"workers", std::move(workers)}};
}

StatusRows RemoteGenerator::Rows() const {
  StatusRows rows;
  for (const WorkerView& w : shared_->table->View()) {
    rows.emplace_back(
        Cat(w.duty == WorkerDuty::kDecode ? "decode" : "prefill", " worker ", w.address.Name()),
        w.healthy ? Cat("healthy, ", w.in_flight, " in flight") : w.problem);
  }
  rows.emplace_back("failovers", Cat(failovers()));
  return rows;
}

std::vector<MetricSample> RemoteGenerator::Collect() const {
  std::vector<MetricSample> out;
  const auto gauge = MetricSample::Type::kGauge;
  const auto counter = MetricSample::Type::kCounter;
  for (const WorkerView& w : shared_->table->View()) {
    const std::vector<std::pair<std::string, std::string>> labels = {
        {"worker", w.address.Name()},
        {"role", w.duty == WorkerDuty::kDecode ? "decode" : "prefill"}};
    out.push_back(
        {"worker_healthy", "1 if the worker is in use", gauge, labels, w.healthy ? 1.0 : 0.0});
    out.push_back({"worker_in_flight", "Requests of this router on the worker", gauge, labels,
                   static_cast<double>(w.in_flight)});
  }
  out.push_back({"failovers_total",
                 "Attempts ended by the loss of a decode worker",
                 counter,
                 {},
                 static_cast<double>(shared_->failovers.load())});
  out.push_back({"resubmitted_tokens_total",
                 "Output tokens sent again as prompt",
                 counter,
                 {},
                 static_cast<double>(shared_->resubmitted_tokens.load())});
  return out;
}

int64_t RemoteGenerator::failovers() const { return shared_->failovers.load(); }

}  // namespace baton::server
