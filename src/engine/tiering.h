// The tiers behind one engine: checkpoints go down in the background as they are made, and come
// back up into pool memory when a prompt finds a deeper one here than in memory. Every tier gets
// every checkpoint (write-through), so that evicting one from memory loses nothing.
//
// It owns one thread that demotes; restores run on the caller's thread. A queued checkpoint keeps
// its memory: the queue is short, and Shed gives that memory back.
// Thread rule: thread-safe, except Stop.
#ifndef BATON_ENGINE_TIERING_H_
#define BATON_ENGINE_TIERING_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/mutex.h"
#include "cache/checkpoint_store.h"
#include "handoff/client.h"
#include "tier/tier.h"

namespace baton::engine {

class Tiering {
 public:
  struct Options {
    std::vector<std::unique_ptr<Tier>> tiers;  // fastest first; may be empty
    size_t queue_max = 64;                     // checkpoints waiting to go down
  };
  struct Found {
    size_t tier = 0;
    int64_t boundary = 0;
  };

  // `on_released` is called, on any thread, when a queued checkpoint has let go of its memory.
  Tiering(Options options, const Layout* layout, PoolSet pools, std::function<void()> on_released);
  ~Tiering();  // Stop()

  // The deepest bundle at rest whose history is a prefix of the tokens behind `hashes`; of equally
  // deep ones that of the fastest tier. A hint. Microseconds.
  std::optional<Found> FindDeepest(const IdentityBase& base,
                                   std::span<const Sha256> hashes,
                                   int64_t max_boundary) const;
  // Blocks. As RestoreBundle, from that tier; request.ask.tokens are the history.
  PullResult Restore(size_t tier, const PullRequest& request, const CancelToken& cancel);

  // Puts the checkpoint into every tier, later; `chain` is its history. Drops the oldest that waits
  // if the queue is full.
  void Demote(std::shared_ptr<const Checkpoint> checkpoint, PrefixChain chain);
  // Lets go of everything that waits. True if there was anything.
  bool Shed();
  // A demotion holds memory at this moment.
  bool Holding() const { return holding_.load() != 0; }
  // Waits until nothing waits or runs; for tests and a clean end.
  void Flush();
  // Drops every bundle of these state-ids and what comes from them, also what is on its way down.
  size_t Revoke(const absl::flat_hash_set<StateId>& ids);
  // Ends the thread; what waits is dropped.
  void Stop();

  size_t count() const { return tiers_.size(); }
  const Tier& tier(size_t i) const { return *tiers_[i]; }
  Tier& tier_for_testing(size_t i) { return *tiers_[i]; }
  uint64_t demotions_dropped() const { return dropped_.load(); }
  size_t queued() const BATON_EXCLUDES(mu_);

 private:
  struct Job {
    std::shared_ptr<const Checkpoint> checkpoint;
    PrefixChain chain;
  };
  void Main();
  bool IsRevoked(const Checkpoint& checkpoint) BATON_EXCLUDES(mu_);
  void Put(const Job& job);

  std::vector<std::unique_ptr<Tier>> tiers_;
  const size_t queue_max_;
  const Layout* const layout_;
  const PoolSet pools_;
  const std::function<void()> on_released_;
  std::atomic<uint64_t> dropped_{0};
  std::atomic<int64_t> holding_{0};  // queued or running
  CancelSource cancel_;
  mutable Mutex mu_;
  CondVar wake_;
  CondVar idle_;
  std::deque<Job> queue_ BATON_GUARDED_BY(mu_);
  bool busy_ BATON_GUARDED_BY(mu_) = false;
  bool stop_ BATON_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<StateId> revoked_ BATON_GUARDED_BY(mu_);  // by audits: few in a lifetime
  std::vector<bool> full_;  // by tier, the thread's own: it has said so since a put succeeded
  std::thread thread_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_TIERING_H_
