#include "soak/fleet.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "soak/counts.h"
#include "soak/models.h"

namespace baton::soak {
namespace {

const char* NameOf(Role role) { return role == Role::kPrefill ? "prefill" : "decode"; }

}  // namespace

Fleet::Fleet(const model::Model* model, FleetOptions options, Findings* findings)
    : model_(model), options_(std::move(options)), findings_(findings) {
  MutexLock lock(&mu_);
  for (const Role role : {Role::kPrefill, Role::kDecode})
    for (size_t i = 0; i < options_.workers; ++i) {
      auto worker = Make(role, FreshEndpoints(options_.ucx));
      BATON_CHECK(worker.ok());
      Of(role).push_back(*std::move(worker));
    }
}

Fleet::~Fleet() = default;

StatusOr<Fleet::WorkerPtr> Fleet::Make(Role role, std::vector<std::string> endpoints) {
  const bool prefill = role == Role::kPrefill;
  engine::WorkerOptions o;
  o.hub = &hub_;
  o.listen = std::move(endpoints);
  o.early_blocks = options_.early_blocks;
  o.lease = std::chrono::seconds(5);
  o.engine.token_budget = options_.token_budget;
  o.engine.max_num_seqs = 16;
  o.engine.serve_from_cache_only = !prefill;
  o.engine.hint_peers = {"*"};
  o.engine.step_compact_bytes = options_.compact_each_step ? uint64_t{64} << 20 : 0;
  o.memory.slots = options_.slots;
  o.memory.blocks = prefill ? options_.prefill_blocks : options_.blocks;
  if (!options_.fixed)
    o.memory.budget_bytes =
        engine::NodeMemoryBytes(model_->layout(), o.memory.slots, o.memory.blocks);
  if (options_.hostility.any()) {
    static const MonotonicClock clock;
    o.connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock, &hub_));
    for (const std::string& scheme : Schemes(options_.ucx))
      o.connectors->Add(
          std::make_unique<DyingConnector>(o.connectors->Take(scheme), options_.hostility,
                                           options_.seed + 1000 * ++made_, findings_));
  }
  BATON_ASSIGN_OR_RETURN(auto worker, engine::Worker::Create(model_, std::move(o)));
  return WorkerPtr(std::move(worker));
}

std::shared_ptr<engine::Worker> Fleet::Any(Role role, SplitMix64* rng) {
  MutexLock lock(&mu_);
  return Of(role)[rng->Below(options_.workers)];
}

void Fleet::Restart(Role role, SplitMix64* rng) {
  const size_t i = rng->Below(options_.workers);
  WorkerPtr old;
  {
    MutexLock lock(&mu_);
    old = Of(role)[i];
  }
  old->Stop();
  ExpectEmpty(old.get(), absl::StrCat("a stopped ", NameOf(role), " worker"), true, findings_);
  Add(*old);
  StatusOr<WorkerPtr> fresh = absl::UnknownError("not tried");
  if (rng->Below(2) == 0) fresh = Make(role, old->endpoints());
  findings_->Count(fresh.ok() ? "restarts at the same endpoints" : "restarts elsewhere");
  if (!fresh.ok()) fresh = Make(role, FreshEndpoints(options_.ucx));
  if (!fresh.ok()) return findings_->Wrong(std::string(fresh.status().message()));
  MutexLock lock(&mu_);
  Of(role)[i] = *std::move(fresh);
}

// What it has done in its life.
void Fleet::Add(const engine::Worker& worker) {
  auto& w = const_cast<engine::Worker&>(worker);
  const engine::EngineStats& e = w.engine().stats();
  const HandoffStats& h = worker.handoff_stats();
  const ElasticStats m = w.memory().Stats();
  findings_->Count("bytes moved by compaction", m.bytes_moved);
  findings_->Count("border moves", m.border_moves);
  findings_->Count("preemptions", e.preemptions);
  findings_->Count("generated tokens", e.generated_tokens);
  findings_->Count("checkpoints made", e.checkpoints_made);
  findings_->Count("checkpoints refused", e.checkpoint_rejects);
  findings_->Count("prefix hit tokens", e.prefix_hits);
  findings_->Count("hand-offs verified", h.verified);
  findings_->Count("units quarantined", h.quarantined_units);
  findings_->Count("early blocks", h.early_blocks);
  findings_->Count("links joined", h.links_joined);
  findings_->Count("leases expired", h.leases_expired);
  for (const auto& [name, counts] : h.connectors.Snapshot()) {
    findings_->Count("failovers", counts.failovers);
    findings_->Count("shares moved", counts.shares_moved);
  }
  for (size_t r = 0; r < kReasonCount; ++r)
    if (const uint64_t n = h.rejects[r].load(); n > 0)
      findings_->Count(
          absl::StrCat("pulls ended by ", std::string(ReasonName(static_cast<Reason>(r)))), n);
}

void Fleet::Retire() {
  MutexLock lock(&mu_);
  for (const Role role : {Role::kDecode, Role::kPrefill}) {
    for (size_t i = 0; i < Of(role).size(); ++i)
      ExpectEmpty(Of(role)[i].get(), absl::StrCat(NameOf(role), " worker ", i), false, findings_);
  }
  for (const Role role : {Role::kDecode, Role::kPrefill}) {
    for (const WorkerPtr& worker : Of(role)) {
      worker->Stop();
      Add(*worker);
    }
    Of(role).clear();
  }
}

std::string Fleet::Text() {
  MutexLock lock(&mu_);
  std::string text;
  for (const Role role : {Role::kDecode, Role::kPrefill})
    for (const WorkerPtr& worker : Of(role))
      absl::StrAppend(&text, NameOf(role), ": ", CountsOf(worker.get()).Text(), "\n");
  return text;
}

}  // namespace baton::soak
