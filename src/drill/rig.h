// What a drill runs on: a prefill and a decode worker in this process, joined by a chosen
// connector, or by two by rule, with a hostile one around each and a hostile provider behind them,
// and a sink that keeps everything. Nothing here is reachable from serve or route. Thread rule: Rig
// on one thread; Recorder is thread-safe.
#ifndef BATON_DRILL_RIG_H_
#define BATON_DRILL_RIG_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "connector/hostile/hostile_connector.h"
#include "connector/hostile/hostile_provider.h"
#include "drill/at_rest.h"
#include "engine/worker.h"
#include "handoff/transfer_plan.h"

namespace baton::drill {

// Keeps what a request produced and can be waited for.
class Recorder final : public engine::GenerationSink {
 public:
  // `on_first` runs once, on the engine's thread, when the first token arrives.
  explicit Recorder(std::function<void()> on_first = nullptr) : on_first_(std::move(on_first)) {}
  void OnTokens(std::span<const engine::TokenEvent> events) override;
  void OnFinish(const engine::GenerateResult& result) override;
  // Both block.
  engine::GenerateResult Wait();
  void WaitForTokens(size_t n);
  std::vector<engine::TokenEvent> events();

 private:
  std::function<void()> on_first_;
  Mutex mu_;
  CondVar cv_;
  std::vector<engine::TokenEvent> events_ BATON_GUARDED_BY(mu_);
  std::optional<engine::GenerateResult> result_ BATON_GUARDED_BY(mu_);
};

// The hostile connectors of one worker, used as one: what is armed is armed in each, as what it is
// about travels over one of them.
class HostileConnectors {
 public:
  // `links`: how many one hand-off opens over it. `connector` belongs to the worker.
  void Add(HostileConnector* connector, int links) { all_.emplace_back(connector, links); }
  // The next `times` hand-offs are attacked on every link.
  void Arm(const Attack& attack, int times) {
    for (const auto& [connector, links] : all_) connector->Arm(attack, times * links);
  }

 private:
  std::vector<std::pair<HostileConnector*, int>> all_;
};

struct RigOptions {
  // "inproc", "shm", ..., or "kv=shm,state=tcp"; "": one worker that computes all itself
  std::string connector;
  Digester digester;
  Checks checks;
  PoolChecksOff pool_checks_off;
  Duration lease = std::chrono::seconds(30);
  uint32_t slots = 12;
  uint32_t blocks = 256;
  // With no connector: where its bundles rest between requests.
  Rest rest = Rest::kNowhere;
  std::function<void(engine::ParkedBundle*)> on_parked{};
};

class Rig {
 public:
  // Errors: memory cannot be had, no such connector or plan, an endpoint cannot be bound.
  static StatusOr<std::unique_ptr<Rig>> Create(const model::Model* model,
                                               const RigOptions& options);
  ~Rig();

  // Starts a request on the decoding worker, which pulls from the other one.
  StatusOr<std::shared_ptr<engine::Generation>> Start(engine::GenerateRequest request,
                                                      std::shared_ptr<Recorder> sink);
  // Stops and starts the prefill worker: new epoch, empty memory.
  Status RestartPrefill();
  // Units, leases and references still held after all requests ended and checkpoints were dropped;
  // waits a little for a peer's release. Quarantined ranges are not counted.
  uint64_t Held();

  HostileConnectors& connector() { return hostile_; }
  HostileProvider& provider() { return *provider_; }
  engine::Worker& decode() { return *decode_; }
  // Of a rig with a tier.
  ObjectsAtRest objects() const { return ObjectsAtRest(store_, directory_); }
  engine::Worker& prefill() { return *prefill_; }
  const model::Model& model() const { return *model_; }

 private:
  Rig(const model::Model* model, const RigOptions& options, TransferPlan plan)
      : model_(model), options_(options), plan_(std::move(plan)) {}
  // Names of connectors: one, or the two of a plan.
  std::vector<std::string> Names() const;
  StatusOr<std::unique_ptr<engine::Worker>> MakeWorker(bool prefill);
  Status AddRest(engine::WorkerOptions* o);

  const model::Model* model_;
  const RigOptions options_;
  const TransferPlan plan_;  // of names in place of endpoints
  MonotonicClock clock_;
  InprocHub hub_;
  HostileConnectors hostile_;            // of the decode worker, which owns them
  HostileProvider* provider_ = nullptr;  // of the prefill worker, which owns it
  ObjectStore* store_ = nullptr;         // of the decode worker's tier, which owns it
  std::string directory_;                // of its disk tier; made and removed here
  std::unique_ptr<engine::Worker> prefill_;
  std::unique_ptr<engine::Worker> decode_;
};

}  // namespace baton::drill

#endif  // BATON_DRILL_RIG_H_
