// One request of the router under way, over as many attempts on decode workers as it takes.
//
//   Dispatch -> (no worker) waiting -> Dispatch | finished
//            -> attempt on a worker -> finished          a result of its own making arrived
//                                   -> Dispatch          worker lost, draining or full
//
// Thread rule: thread-safe; all state under mu_, which is held while the sink is called so that
// its calls are ordered. Cancel takes no lock, because a sink may call it.
#ifndef BATON_SERVER_REMOTE_CALL_H_
#define BATON_SERVER_REMOTE_CALL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/generator.h"
#include "server/health_monitor.h"
#include "server/http_client.h"
#include "server/io_pool.h"
#include "server/prefix_affinity.h"
#include "server/remote_generator.h"
#include "server/worker_table.h"

namespace baton::server {

class RemoteCall;

// What all calls of a router share; outlives the RemoteGenerator while calls end.
struct RouterShared {
  RouterShared(IoPool* io_pool, RouterOptions router_options);

  IoPool* const io;
  const RouterOptions options;
  const std::shared_ptr<WorkerTable> table;
  HttpClient client;
  PrefixAffinity affinity;
  std::shared_ptr<HealthMonitor> monitor;
  std::atomic<int64_t> failovers{0};
  std::atomic<int64_t> resubmitted_tokens{0};

  Mutex mu;
  bool stopped BATON_GUARDED_BY(mu) = false;
  int64_t next_id BATON_GUARDED_BY(mu) = 0;
  std::map<int64_t, std::shared_ptr<RemoteCall>> calls BATON_GUARDED_BY(mu);

  std::vector<std::shared_ptr<RemoteCall>> Calls() BATON_EXCLUDES(mu);
};

class RemoteCall final : public engine::Generation,
                         public std::enable_shared_from_this<RemoteCall> {
 public:
  RemoteCall(std::shared_ptr<RouterShared> shared,
             engine::GenerateRequest request,
             std::shared_ptr<engine::GenerationSink> sink,
             int64_t id);

  void Begin();
  void Cancel() override;
  // Finishes at once; for the end of the process, when no loop runs any more.
  void Abandon();
  // A worker has become healthy: goes on if waiting.
  void WorkerJoined();
  // Gives up the attempt if it is on `worker`.
  void WorkerHung(WorkerIndex worker);

 private:
  class Attempt;

  void Dispatch() BATON_REQUIRES(mu_);
  void Send(const WorkerTable::DecodePick& pick) BATON_REQUIRES(mu_);
  void Wait() BATON_REQUIRES(mu_);
  void WaitedTooLong();
  void OnEvents(int64_t attempt, std::span<const engine::TokenEvent> events);
  void OnAttemptDone(int64_t attempt, const Attempt& outcome, const Status& status);
  void Judge(const Attempt& outcome, const Status& status) BATON_REQUIRES(mu_);
  void WorkerLost(const std::string& problem) BATON_REQUIRES(mu_);
  void FinishError(Status error) BATON_REQUIRES(mu_);
  void Finish(engine::GenerateResult result) BATON_REQUIRES(mu_);
  void ReleaseWorkers() BATON_REQUIRES(mu_);
  void ReleasePrefill() BATON_REQUIRES(mu_);

  const std::shared_ptr<RouterShared> shared_;
  const int64_t id_;
  std::atomic<bool> cancel_{false};

  Mutex mu_;
  // The request as it would be sent now: prompt grows by the tokens that have come.
  engine::GenerateRequest request_ BATON_GUARDED_BY(mu_);
  const int64_t prompt_len_;
  const std::string prefill_name_;  // asked for by the client, "" = any
  std::shared_ptr<engine::GenerationSink> sink_ BATON_GUARDED_BY(mu_);  // null once finished
  std::shared_ptr<ClientCall> client_call_ BATON_GUARDED_BY(mu_);
  std::shared_ptr<IoTimer> deadline_ BATON_GUARDED_BY(mu_);
  bool waiting_ BATON_GUARDED_BY(mu_) = false;
  int64_t attempt_ BATON_GUARDED_BY(mu_) = 0;
  int64_t fruitless_ BATON_GUARDED_BY(mu_) = 0;  // attempts in a row without a token
  std::optional<WorkerIndex> decode_ BATON_GUARDED_BY(mu_);
  std::optional<WorkerIndex> prefill_ BATON_GUARDED_BY(mu_);
  std::optional<WorkerIndex> decode_last_ BATON_GUARDED_BY(mu_);  // the last one that was left
  std::string epoch_ BATON_GUARDED_BY(mu_);                       // of the decode worker
  std::string fingerprint_ BATON_GUARDED_BY(mu_);  // of the model that began the stream
  std::set<WorkerIndex> full_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::server

#endif  // BATON_SERVER_REMOTE_CALL_H_
