#include "server/worker_table.h"

#include <algorithm>

#include "server/cat.h"

namespace baton::server {
namespace {

bool DutyFits(WorkerDuty duty, const std::string& role) {
  return role == "all" || role == (duty == WorkerDuty::kPrefill ? "prefill" : "decode");
}

std::string_view DutyName(WorkerDuty duty) {
  return duty == WorkerDuty::kPrefill ? "prefill" : "decode";
}

// Where to pull over a connector ("shm"), or by a plan ("kv=shm,state=tcp" ->
// "kv=shm:@x,state=tcp:.."). Nothing if the worker does not serve one of them.
std::optional<std::string> EndpointFor(const std::string& connector,
                                       const std::map<std::string, std::string>& handoff) {
  std::string out;
  for (size_t begin = 0; begin <= connector.size();) {
    const size_t end = std::min(connector.find(',', begin), connector.size());
    const std::string rule = connector.substr(begin, end - begin);
    const size_t equals = rule.find('=');
    const std::string name = equals == std::string::npos ? rule : rule.substr(equals + 1);
    const auto endpoint = handoff.find(name);
    if (endpoint == handoff.end()) return std::nullopt;
    if (!out.empty()) out += ",";
    if (equals != std::string::npos) out += rule.substr(0, equals + 1);
    out += endpoint->second;
    begin = end + 1;
  }
  return out;
}

}  // namespace

WorkerTable::WorkerTable(Options options) : options_(std::move(options)) {
  for (const HttpAddress& address : options_.prefill) {
    workers_.emplace_back();
    workers_.back().address = address;
    workers_.back().duty = WorkerDuty::kPrefill;
  }
  for (const HttpAddress& address : options_.decode) {
    workers_.emplace_back();
    workers_.back().address = address;
  }
}

size_t WorkerTable::size() const {
  MutexLock lock(&mu_);
  return workers_.size();
}

HttpAddress WorkerTable::address(WorkerIndex worker) const {
  MutexLock lock(&mu_);
  return workers_[worker].address;
}

bool WorkerTable::SetHealthy(WorkerView* worker, bool healthy) {
  return std::exchange(worker->healthy, healthy) != healthy;
}

bool WorkerTable::ServesFleetModel(const NodeInfo& info) {
  const bool in_use = std::any_of(workers_.begin(), workers_.end(),
                                  [](const WorkerView& w) { return w.healthy || w.in_flight > 0; });
  if (fingerprint_.empty() || !in_use) fingerprint_ = info.fingerprint;
  return info.fingerprint == fingerprint_;
}

bool WorkerTable::ReportGood(WorkerIndex index, NodeInfo info) {
  MutexLock lock(&mu_);
  WorkerView& worker = workers_[index];
  worker.timeouts = 0;
  if (!DutyFits(worker.duty, info.role)) {
    worker.problem = Cat("has role '", info.role, "', expected '", DutyName(worker.duty),
                         "' or 'all'; check the router's worker lists");
    return SetHealthy(&worker, false);
  }
  if (!ServesFleetModel(info)) {
    worker.problem = Cat("serves another model: fingerprint ", info.fingerprint.substr(0, 16),
                         ", expected ", fingerprint_.substr(0, 16));
    return SetHealthy(&worker, false);
  }
  worker.info = std::move(info);
  worker.problem.clear();
  return SetHealthy(&worker, true);
}

bool WorkerTable::ReportFailed(WorkerIndex index, const std::string& problem) {
  MutexLock lock(&mu_);
  WorkerView& worker = workers_[index];
  worker.problem = problem;
  return SetHealthy(&worker, false);
}

bool WorkerTable::ReportTimeout(WorkerIndex index) {
  MutexLock lock(&mu_);
  WorkerView& worker = workers_[index];
  if (++worker.timeouts < options_.timeouts_max) return false;
  worker.problem = Cat("gave no answer to ", worker.timeouts, " health checks in a row");
  return SetHealthy(&worker, false);
}

std::optional<WorkerTable::DecodePick> WorkerTable::PickDecode(const DecodeQuery& query) {
  MutexLock lock(&mu_);
  std::optional<WorkerIndex> best;
  const size_t n = workers_.size();
  ++turn_;
  const auto fits = [&](WorkerIndex i) BATON_REQUIRES(mu_) {
    const WorkerView& w = workers_[i];
    return w.duty == WorkerDuty::kDecode && w.healthy && !query.excluded.contains(i) &&
           (query.fingerprint.empty() || w.info.fingerprint == query.fingerprint);
  };
  const auto load = [&](WorkerIndex i) BATON_REQUIRES(mu_) {
    return std::pair(workers_[i].timeouts > 0, workers_[i].in_flight);
  };
  for (size_t k = 0; k < n; ++k) {
    const WorkerIndex i = (turn_ + k) % n;
    // One that has just missed a check comes last: it may hang.
    if (fits(i) && (!best || load(i) < load(*best))) best = i;
  }
  if (!best) return std::nullopt;
  if (query.preferred && *query.preferred < n && fits(*query.preferred) &&
      workers_[*query.preferred].info.epoch == query.preferred_epoch &&
      workers_[*query.preferred].timeouts == 0 &&
      workers_[*query.preferred].in_flight <= workers_[*best].in_flight + options_.affinity_slack) {
    best = query.preferred;
  }
  WorkerView& worker = workers_[*best];
  ++worker.in_flight;
  return DecodePick{*best, worker.info.fingerprint, worker.info.epoch};
}

std::optional<WorkerTable::PrefillPick> WorkerTable::PickPrefill(WorkerIndex decode,
                                                                 const std::string& name) {
  MutexLock lock(&mu_);
  std::optional<PrefillPick> best;
  const size_t n = workers_.size();
  for (size_t k = 0; k < n; ++k) {
    const WorkerIndex i = (turn_ + k) % n;
    const WorkerView& w = workers_[i];
    if (w.duty != WorkerDuty::kPrefill || !w.healthy) continue;
    if (!name.empty() && w.address.Name() != name) continue;
    // One process in both lists: nothing to pull.
    if (w.address == workers_[decode].address) continue;
    if (best && w.in_flight >= workers_[best->worker].in_flight) continue;
    for (const std::string& connector : options_.connectors) {
      const auto endpoint = EndpointFor(connector, w.info.handoff);
      if (!endpoint.has_value()) continue;
      best = PrefillPick{i, *endpoint};
      break;
    }
  }
  if (best) ++workers_[best->worker].in_flight;
  return best;
}

bool WorkerTable::KnowsPrefill(const std::string& name) const {
  return std::any_of(options_.prefill.begin(), options_.prefill.end(),
                     [&](const HttpAddress& a) { return a.Name() == name; });
}

void WorkerTable::Release(WorkerIndex worker) {
  MutexLock lock(&mu_);
  --workers_[worker].in_flight;
}

std::vector<WorkerView> WorkerTable::View() const {
  MutexLock lock(&mu_);
  return workers_;
}

std::string WorkerTable::Problems(WorkerDuty duty) const {
  MutexLock lock(&mu_);
  std::string text;
  for (const WorkerView& w : workers_) {
    if (w.duty != duty || w.healthy) continue;
    CatTo(&text, text.empty() ? "" : "; ", w.address.Name(), " (", DutyName(duty),
          "): ", w.problem);
  }
  return text;
}

int64_t WorkerTable::max_model_len() const {
  MutexLock lock(&mu_);
  int64_t least = 0;
  for (const WorkerView& w : workers_) {
    const int64_t v = w.info.max_model_len;
    if (w.healthy && v > 0 && (least == 0 || v < least)) least = v;
  }
  return least;
}

int64_t WorkerTable::vocab_size() const {
  MutexLock lock(&mu_);
  int64_t least = 0;
  for (const WorkerView& w : workers_) {
    const int64_t v = w.info.vocab_size;
    if (w.healthy && v > 0 && (least == 0 || v < least)) least = v;
  }
  return least;
}

}  // namespace baton::server
