// One simulated deployment: several prefill and decode workers and the router, all production code;
// requests that arrive, are cancelled and must be answered; machines that die and come back;
// compaction that never rests. world.cc lets it live, world_checks.cc compares it with the truth.
// Thread rule: fibers of one scheduler; one World at a time.
#ifndef BATON_TEST_SIM_WORLD_H_
#define BATON_TEST_SIM_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/worker.h"
#include "server/active_calls.h"
#include "server/remote_generator.h"
#include "sim/faults.h"
#include "sim/http.h"
#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/run.h"
#include "sim/scheduler.h"
#include "sim/trace.h"

namespace baton::sim {

// One worker process: this incarnation, and how to make the next.
struct Node {
  size_t index = 0;
  std::string name;
  bool prefill = false;
  MachinePtr machine;
  std::unique_ptr<engine::Worker> worker;
  std::shared_ptr<server::ActiveCalls> calls;
  bool restarting = false;
  std::vector<SlotHandle> stale;  // handles whose life is over
};

class World {
 public:
  World(const RunOptions& options, Scheduler* scheduler);
  void Main();
  RunResult Result() const;
  void Violation(const std::string& text);

 private:
  class Sink;
  struct Request {
    size_t index = 0;
    engine::GenerateRequest request;
    std::vector<TokenId> answer;
    std::vector<TokenId> got;
    std::optional<engine::GenerateResult> result;
    std::shared_ptr<engine::Generation> generation;
    bool cancelled = false;
  };

  void StartNode(Node* node);
  void Restart(size_t index);
  void RestartMain(Node* node);
  void StartRouter();
  engine::GenerateRequest NewRequest(size_t index);
  void Submit();
  void Cancel(Request* request);
  void CheckAnswer(const Request& request);
  bool Quarantined() const;
  void Committed(const Session& session);
  void Compact();
  void Audit();
  void CheckNode(Node* node);
  void Probe(Node* node);
  void AwaitAnswers();
  void AwaitQuiet();
  void Drain();
  void CheckQuiet(Node* node);
  uint64_t Rejects(const Node& node) const;

  const RunOptions options_;
  Scheduler* const scheduler_;
  Trace trace_;
  FaultPlan plan_;
  SplitMix64 rng_;  // of the workload
  Oracle oracle_;
  SimModel model_;
  std::unique_ptr<Network> net_;
  std::unique_ptr<SimHttp> http_;
  std::unique_ptr<server::IoPool> io_;
  std::unique_ptr<server::RemoteGenerator> router_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<std::vector<TokenId>> openings_;  // prompts begin with one of these
  uint32_t slots_ = 14;  // of every machine; with a border that moves: the same bytes
  uint32_t blocks_ = 48;
  bool elastic_ = false;
  int64_t token_budget_ = 48;
  std::string connectors_ = "sim";  // of every hand-off, as route's flag says it
  bool compacting_ = true;
  bool auditing_ = true;
  size_t open_ = 0;
  RunResult result_;
};
}  // namespace baton::sim

#endif  // BATON_TEST_SIM_WORLD_H_
