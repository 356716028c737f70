// Checkpoints: sealed bundles kept for reuse, found by content identity or by prefix. The store
// owns references to slots and blocks and does no I/O; whoever reuses a checkpoint forks it by a
// digest-checked copy and never gets the checkpoint itself. What lies where is the prefix index's
// (prefix_index.h), what goes first eviction's (eviction.h).
//
// Thread rule: the store belongs to one thread (the engine's); a Checkpoint is immutable, may be
// shared, and may be destroyed on any thread.
#ifndef BATON_CACHE_CHECKPOINT_STORE_H_
#define BATON_CACHE_CHECKPOINT_STORE_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "cache/eviction.h"
#include "cache/prefix_index.h"
#include "identity/content_identity.h"
#include "identity/seal.h"
#include "memory/pool.h"

namespace baton {

// Pools a checkpoint's memory belongs to. They outlive every checkpoint.
struct PoolSet {
  SlotPool* slots = nullptr;       // null: the layout has no state
  std::vector<BlockPool*> blocks;  // one per KV group
};

// A sealed bundle at rest in memory. Owns one SEALED slot and one reference per block.
class Checkpoint {
 public:
  Checkpoint(PoolSet pools,
             Seal seal,
             std::optional<SlotHandle> slot,
             std::vector<std::vector<BlockHandle>> blocks,
             std::vector<std::vector<Digest128>> block_digests);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const Seal& seal() const { return seal_; }
  uint64_t boundary() const { return seal_.identity.boundary; }
  const std::optional<SlotHandle>& slot() const { return slot_; }
  const std::vector<std::vector<BlockHandle>>& blocks() const { return blocks_; }
  const std::vector<std::vector<Digest128>>& block_digests() const { return block_digests_; }

 private:
  PoolSet pools_;
  Seal seal_;
  std::optional<SlotHandle> slot_;
  std::vector<std::vector<BlockHandle>> blocks_;  // per group, ascending from Layout::FirstBlock
  std::vector<std::vector<Digest128>> block_digests_;
};

class CheckpointStore {
 public:
  struct Options {
    PrefixIndex::Options index;
    EvictionOptions eviction;
    uint64_t slot_bytes = 0;  // of a checkpoint's own slot
    // Per KV group, of a block that counts as the checkpoint's own: those of windows; 0 for groups
    // that keep the whole history. Empty: no windows.
    std::vector<uint64_t> window_block_bytes;
    // Memory that checkpoints may come to fill; the unit of eviction's time.
    uint64_t capacity_bytes = 1;
  };
  struct Counters {
    uint64_t lookups = 0;
    uint64_t hits = 0;
    uint64_t evictions = 0;
  };

  CheckpointStore() : CheckpointStore(Options{}) {}
  explicit CheckpointStore(const Options& options) : options_(options), index_(options.index) {}

  // `block_hashes`: its history's, one per full block up to its boundary. Replaces an equal
  // identity (the newer seal wins). A checkpoint off the grid or with a seal of another history is
  // logged and dropped: nobody could find it, and a seal may come from a disk.
  void Insert(std::shared_ptr<const Checkpoint> checkpoint, std::span<const Sha256> block_hashes);

  // The checkpoint of exactly this identity, or null. Counts as a use.
  std::shared_ptr<const Checkpoint> Find(const ContentIdentity& identity);

  // The deepest checkpoint whose history is a prefix of the tokens behind `block_hashes`
  // (PrefixChain::BlockHashes of them, rooted in base.scope), at a boundary <= max_boundary; or
  // null.
  std::shared_ptr<const Checkpoint> FindDeepest(const IdentityBase& base,
                                                std::span<const Sha256> block_hashes,
                                                uint64_t max_boundary);

  // A stored checkpoint that holds the first n blocks of that history, n being as large as
  // possible: equal blocks that another sequence computed can be given back for these. Null with 0
  // if there is none. No use of it.
  struct Sharing {
    std::shared_ptr<const Checkpoint> checkpoint;
    size_t blocks = 0;
  };
  Sharing FindSharing(const IdentityBase& base, std::span<const Sha256> block_hashes) const;

  // Drops the checkpoint worth least. Its memory is free once nobody else holds it. False if the
  // store is empty.
  bool EvictOne();
  // Drops every checkpoint whose state-id or parent is in `ids`, adds its state-id to them, and so
  // on until nothing more comes from a revoked one. How many.
  size_t Revoke(absl::flat_hash_set<StateId>* ids);
  // True if exactly this checkpoint is stored. No use of it.
  bool Holds(const Checkpoint& checkpoint) const;
  // Drops this checkpoint, if it is still the one stored: it failed verification.
  void Remove(const Checkpoint& checkpoint);

  // For what requests have been seen and what is being computed. States are added and removed
  // through the store only.
  PrefixIndex& index() { return index_; }
  size_t size() const { return entries_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  struct Entry {
    std::shared_ptr<const Checkpoint> checkpoint;
    IndexedState state;
  };
  using Map = absl::flat_hash_map<Sha256, Entry>;
  void Erase(Map::iterator it);
  std::shared_ptr<const Checkpoint> Use(Map::iterator it);
  double Now() const;

  const Options options_;
  PrefixIndex index_;
  Map entries_;  // by ContentIdentity::Key
  absl::flat_hash_map<IndexedState, Sha256> keys_;
  Counters counters_;
};

}  // namespace baton

#endif  // BATON_CACHE_CHECKPOINT_STORE_H_
