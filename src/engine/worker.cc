#include "engine/worker.h"

#include <utility>

#include "base/rng.h"
#include "tier/host/host_store.h"

namespace baton::engine {

StatusOr<std::unique_ptr<Worker>> Worker::Create(const model::Model* model, WorkerOptions options) {
  auto w = std::unique_ptr<Worker>(new Worker);
  w->model_ = model;
  w->self_.node = RandomBytes<NodeId>();
  w->self_.epoch = RandomBytes<Epoch>();
  w->self_.model = model->fingerprint();
  w->self_.layout = &model->layout();
  w->self_.digester = options.digester;

  options.memory.node = w->self_.node;
  options.memory.epoch = w->self_.epoch;
  options.memory.shareable = true;
  options.memory.slot_tail_bytes = model->slot_tail_bytes();
  BATON_ASSIGN_OR_RETURN(w->memory_, NodeMemory::Create(model->layout(), options.memory));

  w->connectors_ =
      options.connectors != nullptr
          ? std::move(options.connectors)
          : std::make_unique<ConnectorSet>(ConnectorSet::Standard(&w->clock_, options.hub));
  HandoffClientOptions client;
  client.self = w->self_;
  const PoolSet pools = w->memory_->pools();
  client.pools = {pools.slots, pools.blocks};
  client.clock = &w->clock_;
  client.device = &w->memory_->device();
  client.connectors = w->connectors_.get();
  client.stats = &w->stats_;
  client.connect_timeout = options.connect_timeout;
  client.checks = options.checks;
  client.early_blocks = options.early_blocks;
  w->client_ = std::make_unique<HandoffClient>(std::move(client));

  // The server binds first, so that the engine knows its own endpoints; peers are served after the
  // engine runs.
  struct Late final : BundleProvider {
    BundleProvider* target = nullptr;
    StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                    Instant deadline,
                                                    const CancelToken& cancel) override {
      return target->Provide(ask, deadline, cancel);
    }
    StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
        const Ask& ask,
        Instant deadline,
        const CancelToken& cancel,
        const std::shared_ptr<BlockStream>& stream) override {
      return target->ProvideStreaming(ask, deadline, cancel, stream);
    }
  };
  auto late = std::make_unique<Late>();
  HandoffServerOptions server;
  server.self = w->self_;
  server.clock = &w->clock_;
  Arena& arena = w->memory_->arena();
  server.regions = {SourceRegion{ByteSpan(arena.data(), arena.size()), arena.fd()}};
  server.hub = options.hub;
  server.listen = options.listen_with;
  server.stats = &w->stats_;
  server.lease = options.lease;
  server.checks = options.checks;
  server.early_blocks = options.early_blocks;
  w->server_ = std::make_unique<HandoffServer>(std::move(server), late.get());
  for (const std::string& endpoint : options.listen)
    BATON_RETURN_IF_ERROR(w->server_->AddListener(endpoint));
  for (const std::string& endpoint : w->server_->endpoints())
    options.engine.own_endpoints.emplace_back(endpoint.substr(0, endpoint.find(':')), endpoint);

  EngineDeps deps;
  deps.model = model;
  deps.memory = w->memory_.get();
  deps.self = w->self_;
  deps.client = w->client_.get();
  deps.clock = &w->clock_;
  deps.checks = options.checks;
  deps.on_parked = options.on_parked;
  BATON_RETURN_IF_ERROR(w->OpenTiers(options, &deps.tiers));
  w->engine_ = std::make_unique<Engine>(std::move(deps), options.engine);
  if (options.wrap_provider) {
    w->wrapped_ = options.wrap_provider(w->engine_.get());
    late->target = w->wrapped_.get();
  } else {
    late->target = w->engine_.get();
  }
  w->late_ = std::move(late);
  w->server_->Start();
  return w;
}

Status Worker::OpenTiers(const WorkerOptions& options, std::vector<std::unique_ptr<Tier>>* tiers) {
  TierOptions tier;
  tier.model = self_.model;
  tier.layout = self_.layout;
  tier.digester = &self_.digester;
  tier.device = &memory_->device();
  tier.checks = options.checks;
  tier.rest_encoding = options.checkpoint_dtype;
  tier.node = self_.node;
  tier.epoch = self_.epoch;
  if (options.checkpoint_dtype != RestEncoding::kSame && options.engine.audit_share > 0)
    return absl::InvalidArgumentError(
        "states at rest in fewer bits differ from recomputed ones: audits would find only that; "
        "switch them off");
  const auto open = [&](uint64_t bytes, std::unique_ptr<ObjectStore> store) -> Status {
    tier.budget_bytes = bytes;
    if (options.wrap_store) store = options.wrap_store(std::move(store));
    BATON_ASSIGN_OR_RETURN(auto opened, Tier::Open(tier, std::move(store)));
    tiers->push_back(std::move(opened));
    return absl::OkStatus();
  };
  if (options.host_cache_bytes > 0) {
    BATON_ASSIGN_OR_RETURN(auto store, OpenHostStore({options.host_cache_bytes}));
    BATON_RETURN_IF_ERROR(open(options.host_cache_bytes, std::move(store)));
  }
  if (options.disk.has_value()) {
    BATON_ASSIGN_OR_RETURN(auto store, OpenDiskStore(*options.disk));
    BATON_RETURN_IF_ERROR(open(options.disk_cache_bytes, std::move(store)));
  }
  return absl::OkStatus();
}

Worker::~Worker() { Stop(); }

void Worker::Stop() {
  // The server first: its conversations wait in Engine::Provide and hold leases.
  if (server_ != nullptr) server_->Stop();
  if (engine_ != nullptr) engine_->Stop();
}

std::vector<std::string> Worker::endpoints() const { return server_->endpoints(); }

std::string Worker::EndpointOf(const std::string& scheme) const {
  for (const std::string& e : endpoints())
    if (e.rfind(scheme + ":", 0) == 0) return e;
  return "";
}

}  // namespace baton::engine
