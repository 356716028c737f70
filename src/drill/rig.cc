#include "drill/rig.h"

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace baton::drill {
namespace {

constexpr uint64_t kTierBytes = uint64_t{256} << 20;
constexpr int kReleasePolls = 500;
constexpr auto kReleasePoll = std::chrono::milliseconds(10);

std::string FreshEndpoint(const std::string& connector) {
  if (connector != "shm" && connector != "inproc") {
    return absl::StrCat(connector, ":127.0.0.1:0");
  }
  const std::string name = absl::StrCat("baton-drill-", RandomBytes<NodeId>().Hex());
  return absl::StrCat(connector, connector == "shm" ? ":@" : ":", name);
}

uint64_t HeldBy(engine::Worker& worker) {
  worker.engine().RunOnEngineThread([](engine::Core& core) {
    if (core.Empty()) core.DropCheckpoints();
  });
  const PoolSet pools = worker.memory().pools();
  uint64_t held = 0;
  if (pools.slots != nullptr) {
    const PoolStats s = pools.slots->Stats();
    held += s.used - s.quarantined + s.leases;
  }
  for (BlockPool* pool : pools.blocks) {
    const PoolStats s = pool->Stats();
    held += s.used - s.quarantined + s.leases + s.references;
  }
  return held;
}

}  // namespace

void Recorder::OnTokens(std::span<const engine::TokenEvent> events) {
  if (on_first_ != nullptr) std::exchange(on_first_, nullptr)();
  MutexLock lock(&mu_);
  events_.insert(events_.end(), events.begin(), events.end());
  cv_.NotifyAll();
}

void Recorder::OnFinish(const engine::GenerateResult& result) {
  MutexLock lock(&mu_);
  result_ = result;
  cv_.NotifyAll();
}

engine::GenerateResult Recorder::Wait() {
  MutexLock lock(&mu_);
  while (!result_.has_value()) cv_.Wait(&mu_);
  return *result_;
}

void Recorder::WaitForTokens(size_t n) {
  MutexLock lock(&mu_);
  while (events_.size() < n && !result_.has_value()) cv_.Wait(&mu_);
}

std::vector<engine::TokenEvent> Recorder::events() {
  MutexLock lock(&mu_);
  return events_;
}

StatusOr<std::unique_ptr<Rig>> Rig::Create(const model::Model* model, const RigOptions& options) {
  TransferPlan plan;
  if (!options.connector.empty()) {
    BATON_ASSIGN_OR_RETURN(plan, ParseTransferPlan(options.connector));
  }
  auto rig = std::unique_ptr<Rig>(new Rig(model, options, std::move(plan)));
  if (!options.connector.empty()) BATON_RETURN_IF_ERROR(rig->RestartPrefill());
  BATON_ASSIGN_OR_RETURN(rig->decode_, rig->MakeWorker(false));
  return rig;
}

std::vector<std::string> Rig::Names() const {
  if (!plan_.mixed()) return {plan_.control};
  return {plan_.kv, plan_.state};
}

Status Rig::RestartPrefill() {
  prefill_.reset();
  BATON_ASSIGN_OR_RETURN(prefill_, MakeWorker(true));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<engine::Worker>> Rig::MakeWorker(bool prefill) {
  engine::WorkerOptions o;
  o.engine.threads = 1;
  o.engine.token_budget = 64;
  o.memory.slots = options_.slots;
  o.memory.blocks = options_.blocks;
  o.memory.checks_off = options_.pool_checks_off;
  o.lease = options_.lease;
  o.digester = options_.digester;
  o.hub = &hub_;
  if (options_.connector.empty()) {
    BATON_RETURN_IF_ERROR(AddRest(&o));
    return engine::Worker::Create(model_, std::move(o));
  }
  o.engine.serve_from_cache_only = !prefill;
  for (const std::string& name : Names()) o.listen.push_back(FreshEndpoint(name));
  if (prefill) {
    o.wrap_provider = [this](BundleProvider* inner) {
      auto wrapped = std::make_unique<HostileProvider>(inner);
      provider_ = wrapped.get();
      return wrapped;
    };
  } else {
    o.checks = options_.checks;
    o.connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock_, &hub_));
    for (const std::string& name : Names()) {
      std::unique_ptr<Connector> honest = o.connectors->Take(name);
      if (honest == nullptr)
        return absl::InvalidArgumentError(absl::StrCat("no connector named \"", name, "\""));
      auto wrapped = std::make_unique<HostileConnector>(std::move(honest));
      // The conversation of a plan goes to the first, whose blocks have a link of their own.
      hostile_.Add(wrapped.get(), plan_.mixed() && name == plan_.kv ? 2 : 1);
      o.connectors->Add(std::move(wrapped));
    }
  }
  return engine::Worker::Create(model_, std::move(o));
}

// One worker that computes all itself, and where it finds again what it has computed.
Status Rig::AddRest(engine::WorkerOptions* o) {
  const Rest rest = options_.rest;
  o->checks = options_.checks;
  o->engine.prefix_caching = rest != Rest::kNowhere && rest != Rest::kParked;
  o->on_parked = options_.on_parked;
  o->wrap_store = [this](std::unique_ptr<ObjectStore> store) {
    return KeepStore(std::move(store), &store_);
  };
  if (rest == Rest::kHost) o->host_cache_bytes = kTierBytes;
  if (rest == Rest::kDisk) {
    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       absl::StrCat("baton-drill-", RandomBytes<NodeId>().Hex());
    std::error_code error;
    std::filesystem::create_directory(path, error);
    if (error)
      return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message(),
                                                 "; set TMPDIR to a writable directory"));
    directory_ = path.string();
    o->disk.emplace();
    o->disk->directory = directory_;
    o->disk_cache_bytes = kTierBytes;
  }
  return absl::OkStatus();
}

Rig::~Rig() {
  decode_.reset();
  prefill_.reset();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

StatusOr<std::shared_ptr<engine::Generation>> Rig::Start(engine::GenerateRequest request,
                                                         std::shared_ptr<Recorder> sink) {
  if (prefill_ != nullptr && plan_.mixed()) {
    request.prefill_endpoint = absl::StrCat("kv=", prefill_->EndpointOf(plan_.kv),
                                            ",state=", prefill_->EndpointOf(plan_.state));
  } else if (prefill_ != nullptr) {
    request.prefill_endpoint = prefill_->EndpointOf(plan_.control);
  }
  return decode_->engine().Start(std::move(request), std::move(sink));
}

uint64_t Rig::Held() {
  uint64_t held = 0;
  for (engine::Worker* worker : {prefill_.get(), decode_.get()}) {
    if (worker == nullptr) continue;
    uint64_t here = HeldBy(*worker);
    for (int i = 0; i < kReleasePolls && here > 0; ++i) {
      std::this_thread::sleep_for(kReleasePoll);
      here = HeldBy(*worker);
    }
    held += here;
  }
  return held;
}

}  // namespace baton::drill
