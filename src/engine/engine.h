// The engine with its threads: one that runs Core's steps, and a bounded few that wait for pulls.
// It is the Generator of this process and the BundleProvider of its hand-off server. It opens no
// sockets and knows no text.
//
// Thread rule: thread-safe. Sinks are called from the engine's thread.
#ifndef BATON_ENGINE_ENGINE_H_
#define BATON_ENGINE_ENGINE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/core.h"
#include "engine/generator.h"
#include "handoff/client.h"
#include "handoff/provider.h"

namespace baton::engine {

struct EngineDeps {
  const model::Model* model = nullptr;  // outlives the engine, as does everything here
  NodeMemory* memory = nullptr;
  LocalIdentity self;
  HandoffClient* client = nullptr;  // null: this node never pulls
  const Clock* clock = nullptr;
  std::vector<std::unique_ptr<Tier>> tiers;  // fastest first
  Checks checks;                             // of parked bundles and checkpoints; all on
  std::function<void(ParkedBundle*)> on_parked;  // CoreDeps::on_parked
};

class Engine final : public Generator, public BundleProvider {
 public:
  Engine(EngineDeps deps, EngineOptions options);
  ~Engine() override;  // Stop()

  StatusOr<std::shared_ptr<Generation>> Start(GenerateRequest request,
                                              std::shared_ptr<GenerationSink> sink) override;
  int64_t max_model_len() const override { return max_model_len_; }
  int64_t vocab_size() const override { return deps_.model->vocab_size(); }

  // Computes (or finds) the bundle of the ask and pins it. A cancel or the deadline ends the
  // computation.
  StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                  Instant deadline,
                                                  const CancelToken& cancel) override;
  StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
      const Ask& ask,
      Instant deadline,
      const CancelToken& cancel,
      const std::shared_ptr<BlockStream>& stream) override;

  // Refuses new requests with kUnavailable from now on; running ones go on.
  void Drain();
  // Requests that have not ended yet.
  int64_t active() const { return active_.load(); }
  // Ends everything and joins the threads. Sinks get OnFinish(kCancelled). Repeatable.
  void Stop();

  const EngineStats& stats() const { return core_->stats(); }
  NodeMemory& memory() { return *deps_.memory; }
  Tiering& tiers() { return *tiers_; }
  // Runs `fn` on the engine's thread and waits: for tests that look at memory or checkpoints.
  void RunOnEngineThread(const std::function<void(Core&)>& fn);

 private:
  class Handle;
  void Post(std::function<void(Core&)> fn) BATON_EXCLUDES(mu_);
  void Main();
  bool Reclaim();
  void PullMain();

  EngineDeps deps_;
  EngineOptions options_;
  int64_t max_model_len_ = 0;
  std::unique_ptr<Tiering> tiers_;
  std::unique_ptr<Core> core_;
  // Of the engine's thread: memory in quarantine is waited for, since when, and last asked for.
  bool awaiting_quiet_ = false;
  Instant reclaim_start_{};
  Instant reclaim_last_{};
  std::atomic<uint64_t> next_owner_{1};
  std::atomic<int64_t> active_{0};
  std::atomic<bool> draining_{false};

  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void(Core&)>> inbox_ BATON_GUARDED_BY(mu_);
  bool stop_ BATON_GUARDED_BY(mu_) = false;

  Mutex pull_mu_;
  CondVar pull_wake_;
  std::deque<PullTask> pulls_ BATON_GUARDED_BY(pull_mu_);
  bool pull_stop_ BATON_GUARDED_BY(pull_mu_) = false;

  std::thread thread_;
  std::vector<std::thread> pull_threads_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ENGINE_H_
