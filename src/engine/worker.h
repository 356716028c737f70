// One worker: memory, engine, hand-off client and server around a loaded model. What `serve` runs
// in a process; tests build several in one process over the same model.
//
// Thread rule: Create, Start and Stop on one thread; the rest is thread-safe.
#ifndef BATON_ENGINE_WORKER_H_
#define BATON_ENGINE_WORKER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "handoff/server.h"
#include "tier/disk/disk_store.h"

namespace baton::engine {

struct WorkerOptions {
  EngineOptions engine;
  NodeMemoryOptions memory;         // node and epoch are filled by Create
  std::vector<std::string> listen;  // hand-off endpoints to serve; empty: serves no peer
  Duration lease = std::chrono::seconds(30);
  Duration connect_timeout = std::chrono::seconds(5);
  uint64_t host_cache_bytes = 0;         // budget of the host tier; 0: none
  std::optional<DiskStoreOptions> disk;  // the disk tier, under host; nothing: none
  uint64_t disk_cache_bytes = uint64_t{16} << 30;
  // How states rest in tiers. Other than kSame: answers that go on from a restore are close to, not
  // equal to, recomputing; engine.audit_share must be 0.
  RestEncoding checkpoint_dtype = RestEncoding::kSame;
  // For hostile tiers in tests and the drill.
  std::function<std::unique_ptr<ObjectStore>(std::unique_ptr<ObjectStore>)> wrap_store;
  Digester digester;         // of part digests; peers must use the same algorithm and key
  bool early_blocks = true;  // offer and take blocks while a prefill computes

  // For assembling workers inside one process, and for hostile connectors in tests and the demo.
  InprocHub* hub = nullptr;
  ListenFn listen_with = Listen;
  std::unique_ptr<ConnectorSet> connectors;  // null: ConnectorSet::Standard
  std::function<std::unique_ptr<BundleProvider>(BundleProvider*)> wrap_provider;
  std::function<void(ParkedBundle*)> on_parked;  // CoreDeps::on_parked
  Checks checks;  // all on
};

class Worker {
 public:
  // Errors: memory cannot be had, an endpoint cannot be bound.
  static StatusOr<std::unique_ptr<Worker>> Create(const model::Model* model, WorkerOptions options);
  ~Worker();

  Engine& engine() { return *engine_; }
  NodeMemory& memory() { return *memory_; }
  HandoffClient& client() { return *client_; }
  const HandoffStats& handoff_stats() const { return stats_; }
  const LocalIdentity& self() const { return self_; }
  const model::Model& model() const { return *model_; }
  // As bound, e.g. {"tcp:127.0.0.1:41231", "shm:@..."}.
  std::vector<std::string> endpoints() const;
  // The one with this scheme, or "".
  std::string EndpointOf(const std::string& scheme) const;
  // Stops serving peers and ends every request. Repeatable.
  void Stop();

 private:
  Worker() = default;
  Status OpenTiers(const WorkerOptions& options, std::vector<std::unique_ptr<Tier>>* tiers);
  const model::Model* model_ = nullptr;
  MonotonicClock clock_;
  HandoffStats stats_;
  LocalIdentity self_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<ConnectorSet> connectors_;
  std::unique_ptr<HandoffClient> client_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BundleProvider> wrapped_;
  std::unique_ptr<BundleProvider> late_;
  std::unique_ptr<HandoffServer> server_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_WORKER_H_
