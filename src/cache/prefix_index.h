// Which prefixes of token histories are held, and which were seen: a radix tree over full blocks,
// keyed by their chain hashes, with states (checkpoints) hanging on nodes. Bookkeeping only: it
// owns no memory, does no I/O, reads no clock, and decides nothing; cache/checkpoint_policy.h says
// where states are worth making, cache/eviction.h which one goes first.
//
//   seen      a block that some request had; remembered without memory behind it, bounded by
//             Options::max_seen_blocks (the least recently seen ends of paths go first)
//   resident  a block with a state at or below it: its KV is held once, however many states share
//             it. Blocks that lose their last state are merely seen from then on: KV and states
//             leave together.
//   usable    the deepest boundary of a path with a state. A state is added as a whole bundle, so
//             every group's blocks are held there; it is never the maximum over groups.
//
// Every path starts at a root, one per model, layout and tenant (RootOf); chain hashes are rooted
// in the tenant's scope as well. A path under one root never meets one under another.
//
// Bytes: a state owns `own_bytes` (slot, and blocks of window groups, which it shares with nobody
// here); each resident block counts Options::block_bytes once.
//
// `now` in Add and Touch never falls; its unit is the caller's (cache/eviction.h).
//
// Thread rule: one thread at a time.
#ifndef BATON_CACHE_PREFIX_INDEX_H_
#define BATON_CACHE_PREFIX_INDEX_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/content_identity.h"

namespace baton {

// A history as the index sees it. `blocks` are PrefixChain::BlockHashes rooted in the same scope.
struct PrefixPath {
  Sha256 root;
  std::span<const Sha256> blocks;

  PrefixPath First(size_t n) const { return {root, blocks.first(n)}; }
};

// The root of all histories of one model, layout and tenant.
Sha256 RootOf(const IdentityBase& base);

// Name of a state in one index; never used twice.
using IndexedState = StrongInt<struct IndexedStateTag, uint64_t>;

class PrefixIndex {
 public:
  struct Options {
    int64_t block_tokens = kBlockTokens;
    uint64_t block_bytes = 0;  // KV of one block over the groups that keep the whole history
    uint64_t max_seen_blocks = uint64_t{1} << 18;  // 32 bytes each and their nodes
    size_t max_pending = 4096;
  };

  // What is known about a path at one moment.
  struct Sight {
    int64_t known = 0;  // tokens of it that earlier requests had
    // Its blocks go on after `known`, where no request went: a branch point, if others went on
    // elsewhere. `leavers` requests have left known paths exactly there, this one included.
    bool leaves = false;
    uint32_t leavers = 0;
    std::optional<IndexedState> usable;  // at usable_boundary <= the limit asked for
    int64_t usable_boundary = 0;
    std::vector<int64_t> states;  // boundaries of all states on the path, ascending
  };

  // A state as eviction sees it.
  struct StateView {
    IndexedState state;
    int64_t boundary = 0;
    int64_t base = 0;    // boundary of the deepest state above it, or 0
    uint64_t freed = 0;  // bytes that leave with it: its own and blocks nobody else needs
    int branches = 0;    // ways on from it that lead to states
    // Requests that started from it or, before it was made, from the state above it, if no way but
    // its own led on from there: an end of a conversation inherits what its earlier turns proved.
    uint32_t hits = 0;
    double last_use = 0;      // of Add or Touch
    uint64_t last_order = 0;  // the same as a count, without ties
  };

  explicit PrefixIndex(const Options& options) : options_(options) {}

  // Looks a path up and changes nothing.
  Sight Look(const PrefixPath& path, int64_t max_boundary) const;
  // The same, and remembers the path: once per request.
  Sight See(const PrefixPath& path, int64_t max_boundary);

  // Adds a state at the end of `path` (not empty). kAlreadyExists if there is one.
  StatusOr<IndexedState> Add(const PrefixPath& path, uint64_t own_bytes, double now);
  // A request started from it. It must exist.
  void Touch(IndexedState state, double now);
  // Bytes that left with it. It must exist.
  uint64_t Remove(IndexedState state);
  std::optional<IndexedState> At(const PrefixPath& path) const;
  bool Contains(IndexedState state) const { return states_.contains(state); }
  // The state must exist. Costs the nodes between it and the state above.
  StateView View(IndexedState state) const;
  template <class Fn>
  void ForEachState(Fn&& fn) const {
    for (const auto& [id, state] : states_) fn(View(id, state));
  }

  // Some state below the first n blocks of `path` with n as large as possible: its bundle holds
  // those blocks already. {state, n}; n = 0 if nothing is shared.
  std::pair<std::optional<IndexedState>, size_t> Sharer(const PrefixPath& path) const;

  // `owner` is computing towards a state at the end of `path`; others with that prefix may wait for
  // it. False (and no mark) if someone else is, or at the bound.
  bool MarkPending(const PrefixPath& path, OwnerId owner);
  // Every mark of `owner`: it has stored its states, or has given up.
  void ClearPending(OwnerId owner);
  // Deepest boundary <= max_boundary of `path` that somebody other than `self` is computing, above
  // `better_than`; 0 if there is none.
  struct Pending {
    int64_t boundary = 0;
    OwnerId owner;
  };
  Pending DeepestPending(const PrefixPath& path,
                         int64_t better_than,
                         int64_t max_boundary,
                         OwnerId self) const;

  size_t state_count() const { return states_.size(); }
  uint64_t resident_blocks() const { return resident_blocks_; }
  uint64_t seen_blocks() const { return seen_blocks_; }
  size_t node_count() const { return nodes_.size() - free_.size(); }
  size_t pending_count() const { return pending_.size(); }
  // Of all that was ever added: each state's own and each block that became resident by it.
  uint64_t admitted_bytes() const { return admitted_bytes_; }
  uint64_t bytes() const { return own_bytes_ + resident_blocks_ * options_.block_bytes; }
  const Options& options() const { return options_; }

  // For tests: recounts everything from the nodes; a CHECK fails on the first difference.
  void CheckInvariants() const;

 private:
  using NodeId = uint32_t;
  static constexpr NodeId kNone = 0xffffffff;

  // A run of blocks without a fork or a state inside. States hang on the end of a run.
  struct Node {
    NodeId parent = kNone;    // kNone: a root, with no blocks
    std::vector<Sha256> run;  // empty in roots and free nodes only
    size_t end = 0;           // blocks from the root to the end of the run
    IndexedState state;       // 0: none
    uint64_t states = 0;      // at or below this node
    uint64_t last_seen = 0;
    uint32_t leavers = 0;  // requests that left known paths at the end of the run
    Sha256 root;
    absl::flat_hash_map<Sha256, NodeId> children;  // by their run's first block
  };
  struct State {
    NodeId node = kNone;
    uint64_t own_bytes = 0;
    uint32_t hits = 0;
    double last_use = 0;
    uint64_t last_order = 0;
  };
  // Where a path leaves the tree: `matched` blocks end `inside` blocks into `node`'s run, or at its
  // end.
  struct Place {
    NodeId node = kNone;  // kNone: not even the root
    size_t inside = 0;
    size_t matched = 0;
  };
  struct PendingKey {
    Sha256 root, hash;
    friend bool operator==(const PendingKey&, const PendingKey&) = default;
    template <class H>
    friend H AbslHashValue(H h, const PendingKey& k) {
      return H::combine(std::move(h), k.root, k.hash);
    }
  };

  StateView View(IndexedState id, const State& state) const;
  Place Walk(const PrefixPath& path, Sight* sight, int64_t max_boundary) const;
  // Adds what is missing of the path. The node that holds its last block, which is that node's last
  // one if anything was missing.
  NodeId Grow(const PrefixPath& path, const Place& from);
  NodeId NewNode(NodeId parent, std::span<const Sha256> run);
  NodeId SplitAt(NodeId node, size_t inside);  // the new upper half
  void JoinWithChild(NodeId node);             // where neither fork nor state asks for a border
  void DropSeen(NodeId node);                  // a leaf that is merely seen
  void TrimSeen();
  void Unlist(NodeId node);  // from / into the order of leaves that may be forgotten
  void List(NodeId node);
  void CountStates(NodeId node, int64_t by);
  uint32_t InheritedHits(NodeId node) const;
  int64_t Tokens(size_t blocks) const {
    return static_cast<int64_t>(blocks) * options_.block_tokens;
  }

  const Options options_;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_;
  absl::flat_hash_map<Sha256, NodeId> roots_;
  absl::flat_hash_map<IndexedState, State> states_;
  absl::flat_hash_map<PendingKey, OwnerId> pending_;
  std::set<std::pair<uint64_t, NodeId>> forgettable_;  // leaves merely seen, by last_seen
  uint64_t next_state_ = 1;
  uint64_t order_ = 0;
  uint64_t own_bytes_ = 0;
  uint64_t admitted_bytes_ = 0;
  uint64_t resident_blocks_ = 0;
  uint64_t seen_blocks_ = 0;
};

}  // namespace baton

#endif  // BATON_CACHE_PREFIX_INDEX_H_
