// Prefill and decode workers in this process, over one model, that can be torn down and made again
// while they are used. Thread rule: thread-safe; Restart and Retire on one thread.
#ifndef BATON_TEST_SOAK_FLEET_H_
#define BATON_TEST_SOAK_FLEET_H_

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/rng.h"
#include "engine/worker.h"
#include "soak/dying_connector.h"
#include "soak/findings.h"

namespace baton::soak {

struct FleetOptions {
  size_t workers = 2;  // of each role
  // Elastic memory as large as these shares; `fixed`: just these.
  uint32_t slots = 10;
  uint32_t blocks = 60;
  uint32_t prefill_blocks = 60;
  bool fixed = false;
  bool compact_each_step = false;
  bool early_blocks = true;
  bool ucx = false;  // too
  int64_t token_budget = 64;
  Hostility hostility;
  uint64_t seed = 1;
};

enum class Role { kPrefill, kDecode };

class Fleet {
 public:
  // Both outlive it.
  Fleet(const model::Model* model, FleetOptions options, Findings* findings);
  ~Fleet();

  // Whoever holds it may use it; it may be stopped meanwhile, and answers so.
  std::shared_ptr<engine::Worker> Any(Role role, SplitMix64* rng) BATON_EXCLUDES(mu_);
  // Stops one, expects it to let go of everything, and puts a new one in its place, half of the
  // time at the same endpoints.
  void Restart(Role role, SplitMix64* rng) BATON_EXCLUDES(mu_);
  // When all requests have ended: expects that nothing is left, and ends all workers.
  void Retire() BATON_EXCLUDES(mu_);
  // For a run that hangs.
  std::string Text() BATON_EXCLUDES(mu_);

 private:
  using WorkerPtr = std::shared_ptr<engine::Worker>;
  StatusOr<WorkerPtr> Make(Role role, std::vector<std::string> endpoints);
  void Add(const engine::Worker& worker);
  std::vector<WorkerPtr>& Of(Role role) BATON_REQUIRES(mu_) {
    return role == Role::kPrefill ? prefill_ : decode_;
  }

  const model::Model* const model_;
  const FleetOptions options_;
  Findings* const findings_;
  InprocHub hub_;
  uint64_t made_ = 0;
  Mutex mu_;
  std::vector<WorkerPtr> prefill_ BATON_GUARDED_BY(mu_);
  std::vector<WorkerPtr> decode_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_FLEET_H_
