// The engine without threads: sequences, memory, checkpoints, and the step. Everything happens in
// the caller's thread; Engine (engine.h) is the shell that gives it one. It does no I/O: pulls are
// handed to `start_pull` and come back through OnPulled.
// Thread rule: one thread.
#ifndef BATON_ENGINE_CORE_H_
#define BATON_ENGINE_CORE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cache/checkpoint_policy.h"
#include "cache/checkpoint_store.h"
#include "engine/node_memory.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/tiering.h"
#include "handoff/client.h"
#include "identity/digest.h"
#include "model/model.h"

namespace baton::engine {

struct EngineOptions {
  int threads = 1;
  int64_t max_num_seqs = 64;   // sequences holding memory at once
  int64_t max_waiting = 1024;  // beyond it Start fails with kResourceExhausted
  int64_t token_budget = 256;  // rows per step, prefill and decode together
  bool prefix_caching = true;
  // Where states are made, besides the end of the prompt and of the output; and what goes first.
  PolicyOptions checkpoint_policy = {.max_new_states = 2};
  EvictionOptions eviction = {.order = EvictionOrder::kFlopAware, .cost = {}};
  int handoff_retries = 1;             // further tries after the first, each into fresh memory
  bool fail_on_reject = false;         // else recompute from tokens
  bool serve_from_cache_only = false;  // decode role: never compute for a peer
  // Share of the hits on checkpoints that are computed again and compared, and the share of those
  // computed from token 0 rather than from an earlier checkpoint.
  double audit_share = 0;
  double audit_zero_share = 0.25;
  // While requests run, an audit gets one block of tokens every so many steps.
  int64_t audit_every_steps = 32;
  // Endpoints a peer's hint may name: exact, or a prefix ending in '*'. Others are ignored: a peer
  // does not choose where this process connects.
  std::vector<std::string> hint_peers;
  Duration handoff_timeout = std::chrono::seconds(120);
  int pull_threads = 16;
  // Compaction of elastic memory: bytes moved per turn while nothing runs, and per step while
  // something does. What an admission needs is moved on demand in any case. 0: none.
  uint64_t idle_compact_bytes = uint64_t{8} << 20;
  uint64_t step_compact_bytes = 0;
  // Host memory outside the pools for bundles of preempted sequences; one that does not fit is
  // computed again from its tokens. 0: none.
  uint64_t park_bytes = uint64_t{512} << 20;
  // This node's hand-off endpoint for a peer's reverse pull, chosen by the peer's scheme:
  // {"tcp", "tcp:..."}; empty: none.
  std::vector<std::pair<std::string, std::string>> own_endpoints;
};

// Counters for metrics and tests. Written by the engine's thread, read by any.
struct EngineStats {
  std::atomic<int64_t> running{0}, waiting{0}, pulling{0};
  std::atomic<uint64_t> steps{0}, prompt_tokens{0}, generated_tokens{0};
  std::atomic<uint64_t> computed_rows{0};      // tokens run through the model
  std::atomic<uint64_t> recomputed_tokens{0};  // because a hand-off failed
  std::atomic<uint64_t> preemptions{0};
  std::atomic<uint64_t> parked{0}, resumed{0}, park_rejects{0};  // of the preempted
  std::atomic<uint64_t> parked_bytes{0};                         // at rest now
  std::atomic<uint64_t> waits_for_prefix{0};  // admissions put off for a state being computed
  std::atomic<uint64_t> prefix_queries{0}, prefix_hits{0};  // in tokens
  std::atomic<uint64_t> checkpoints_made{0}, checkpoint_rejects{0};
  std::atomic<uint64_t> restores{0}, restore_rejects{0};  // from tiers
  std::atomic<uint64_t> audits{0}, audits_from_zero{0}, audits_skipped{0}, audit_mismatches{0};
  std::atomic<uint64_t> jobs_served{0}, jobs_from_cache{0};
  std::atomic<uint64_t> hints_ignored{0};  // named a peer that is not configured
  std::atomic<int64_t> checkpoints_held{0};
  std::atomic<int64_t> longest_step_rows{0};
};

// What the pull threads need; `done` posts the result back to the engine's thread.
struct PullTask {
  OwnerId owner;
  PullRequest request;
  CancelToken cancel;
  std::optional<size_t> tier;  // a restore from it; else a hand-off
};

// Owners of audits: after every request, so that these are always served first.
inline constexpr uint64_t kAuditOwner = uint64_t{1} << 62;

struct CoreDeps {
  const model::Model* model = nullptr;
  NodeMemory* memory = nullptr;
  LocalIdentity self;
  Checks checks;  // of bundles that come back to compute; all on
  // Hostile memory, in tests and the drill: sees every bundle that has just been parked.
  std::function<void(ParkedBundle*)> on_parked;
  Tiering* tiers = nullptr;                  // null: none
  bool can_pull = false;                     // from peers
  std::function<void(PullTask)> start_pull;  // pulls and restores
  // Gives quarantined memory back that is proven quiet by now. True if that was some, or if more
  // may come: whoever is short of memory is asked to try again. Null: never.
  std::function<bool()> reclaim;
};

class Core {
 public:
  Core(CoreDeps deps, EngineOptions options);
  ~Core();

  // Queues a generation; its identity's scope is the request's cache_salt.
  void Add(std::unique_ptr<Sequence> sequence);
  // Queues a prefill job for a peer, under the identity the peer asked for.
  void AddJob(std::unique_ptr<Sequence> sequence, const IdentityBase& base);
  void Cancel(OwnerId owner);
  void OnPulled(OwnerId owner, PullResult result);
  void OnRestored(OwnerId owner, PullResult result);

  // Gives memory to waiting sequences, oldest first: fork of a checkpoint, start of a pull, or a
  // fresh slot.
  void Admit();
  // One pass over all running sequences. No-op if none is runnable.
  void Step();
  // One bounded piece of compaction. True if there is more to do.
  bool Compact(uint64_t bytes_max);
  // Something outside has ended that may have held memory: a preempted sequence may try again.
  void MemoryMayBeFree() {
    preempted_ = false;
    stalled_ = false;
  }
  // What one call of a sequence's stream to Withdraw offered has been let go by the peer.
  void BlocksReleased() { --withdrawing_; }
  bool HasWaiting() const { return !waiting_.empty(); }
  bool HasRunnable() const { return (!running_.empty() && !stalled_) || AuditMayStart(); }
  bool Empty() const { return waiting_.empty() && running_.empty() && pulling_.empty(); }
  // Ends every sequence with `status`. Pulls in flight are cancelled and end through OnPulled.
  void AbortAll(const Status& status);
  // The stored checkpoint of exactly this identity, or null.
  std::shared_ptr<const Checkpoint> FindCheckpoint(const ContentIdentity& identity) {
    return store_.Find(identity);
  }
  // Drops the checkpoint of this state-id and everything sealed from it, and ends the sequences
  // that go on from any of them with kAuditMismatch. How many.
  size_t Revoke(const StateId& id);
  size_t checkpoints() const { return store_.size(); }
  // Drops every checkpoint; for tests that count memory.
  void DropCheckpoints();

  EngineStats& stats() { return stats_; }
  // Context: the model's, or what the KV blocks hold if that is less; blocks of windows hold any.
  int64_t max_model_len() const;
  IdentityBase BaseOf(const std::string& cache_salt) const;
  const EngineOptions& options() const { return options_; }
  const Layout& layout() const { return deps_.model->layout(); }

 private:
  using SequencePtr = std::unique_ptr<Sequence>;
  // One planned chunk with the leases it computes under.
  struct Row {
    Sequence* s = nullptr;
    int64_t tokens = 0;
    bool sample = false;
    bool score = false;       // logits of every row are wanted, for the prompt's scores
    float* logits = nullptr;  // of the last row, or [tokens][vocab]
    StateLease slot;
    std::vector<BlockLeaseSet> blocks;
    // Of groups whose first blocks are gone: null for those.
    std::vector<std::vector<std::byte*>> tables;
  };

  // admission.cc
  enum class Start { kDone, kNoMemory, kWaits };
  Start TryStart(SequencePtr* sequence);
  bool ComingSoon(const Sequence& s, int64_t held, int64_t limit);
  bool StartPull(SequencePtr* sequence, std::shared_ptr<const Checkpoint> best);
  bool StartRestore(SequencePtr* sequence, const Tiering::Found& found);
  Status KeepRestored(Sequence* s, PullResult pulled);
  SequencePtr TakePulling(OwnerId owner);
  static void NoteRefused(Sequence* s, const char* from, int64_t boundary, const Status& why);
  Status Fork(Sequence* s, std::shared_ptr<const Checkpoint> checkpoint);
  Status StartFresh(Sequence* s);
  void PlanCheckpoints(Sequence* s);
  void Run(SequencePtr sequence);
  bool MakeRoom(OwnerId owner);
  StatusOr<SlotHandle> ReserveSlot(OwnerId owner, FillMode fill);
  StatusOr<BlockHandle> ReserveBlock(size_t group, OwnerId owner, FillMode fill);
  void ReleaseMemory(Sequence* s);
  // The sequence's memory holds the blocks of a bundle at `boundary`.
  void SetFirstBlocks(Sequence* s, int64_t boundary) const;
  // Gives back blocks that no later token sees.
  Status DropPassedBlocks(Sequence* s);
  // Those of a bundle at `boundary`, as many as are held.
  std::vector<std::vector<Digest128>> DigestsAt(const Sequence& s, int64_t boundary) const;
  bool NothingComesBack() const;
  void Preempt(Sequence* s);
  void AfterFailedPull(SequencePtr sequence, const Status& status);

  // checkpoints.cc
  Status VerifyCheckpoint(const Checkpoint& checkpoint,
                          const ContentIdentity& expected,
                          const PrefixChain& chain);
  StatusOr<Seal> MakeSeal(const Sequence& s, int64_t boundary, std::optional<SlotHandle> slot);
  Status SealFullBlocks(Sequence* s);
  Status StreamBlocks(Sequence* s);
  void WithdrawBlocks(Sequence* s);
  StatusOr<std::optional<SlotHandle>> CopyOfSlot(Sequence* s);
  StatusOr<std::shared_ptr<const Checkpoint>> StoreCheckpoint(Sequence* s,
                                                              std::optional<SlotHandle> slot,
                                                              int64_t boundary);
  void TakeCheckpoint(Sequence* s);
  void RollCheckpoint(Sequence* s);
  void KeepRolling(Sequence* s);
  void DropRolling(Sequence* s);
  Status SealJob(Sequence* s);

  // audit.cc
  void MaybeAudit(const Sequence& s, const std::shared_ptr<const Checkpoint>& checkpoint);
  bool AuditMayStart() const;
  void StartAudit();
  Sequence* AuditRunning();
  int64_t AuditTokens(bool alone);
  bool DropAudit();
  void FinishAudit(Sequence* s);

  // park.cc
  Status Park(Sequence* s);
  StatusOr<std::unique_ptr<ParkedBundle>> SealAndCopyOut(Sequence* s);
  Status Unpark(Sequence* s);
  uint64_t TailBytes(int64_t boundary) const;
  Digest128 TailDigest(const Sha256& key, ByteSpan tail) const;
  Status PutTailBack(Sequence* s, const ParkedBundle& parked);
  Status ReserveBundle(Sequence* s, int64_t boundary);

  // core.cc
  Status EnsureBlocks(Sequence* s, int64_t end);
  std::vector<Row> PlanRows();
  bool GiveBlocks(Sequence* s, int64_t end);
  Sequence* Victim();
  Status Lease(Row* row);
  Status Forward(std::vector<Row>* rows);
  void Absorb(Row* row);
  bool ScoreRows(const Row& row);
  void SampleRow(Row* row);
  void Finish(Sequence* s, FinishReason reason, Status error = absl::OkStatus());
  void Notify(Sequence* s, FinishReason reason, Status error);
  void RemoveFinished();
  bool IsFinished(const Sequence* s) const;
  void UpdateGauges();

  CoreDeps deps_;
  EngineOptions options_;
  EngineStats stats_;
  PoolSet pools_;
  ThreadPool thread_pool_;
  model::Workspace workspace_;
  SamplerScratch scratch_;
  CheckpointStore store_;
  std::deque<SequencePtr> waiting_;
  std::list<SequencePtr> running_;  // order of arrival
  std::vector<SequencePtr> pulling_;
  std::vector<const Sequence*> finished_;  // of running_, dropped at the end of the step
  std::vector<float> logits_;
  uint64_t next_attempt_ = 1;
  ParkBudget parking_;
  std::deque<SequencePtr> audits_;  // not begun
  uint64_t audit_hits_ = 0;
  uint64_t audits_begun_ = 0;
  int64_t audit_wait_ = 0;
  // A sequence gave way. Before anything has been given back, admitting it again would only take it
  // to the same end: the engine would go round at full speed while a pull or a peer holds memory.
  bool preempted_ = false;
  // Withdrawn blocks that peers still read: their memory comes back without anybody else giving
  // way.
  int64_t withdrawing_ = 0;
  // All that runs waits for that memory; nothing to do before something else happens.
  bool stalled_ = false;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_CORE_H_
