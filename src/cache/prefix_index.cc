// Nodes live in one vector and name each other by index: the tree can be as deep as a history has
// checkpoints, and no operation recurses.
#include "cache/prefix_index.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/sha256.h"

namespace baton {

Sha256 RootOf(const IdentityBase& base) {
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span("baton.index.root")));  // the NUL too
  w.Put(base.model);
  w.Put(base.layout);
  w.Put(base.scope);
  return Sha256Of(AsBytes(w.data()));
}

PrefixIndex::Place PrefixIndex::Walk(const PrefixPath& path,
                                     Sight* sight,
                                     int64_t max_boundary) const {
  const auto root = roots_.find(path.root);
  if (root == roots_.end()) return {};
  Place at{root->second, 0, 0};
  while (at.matched < path.blocks.size()) {
    const auto& children = nodes_[at.node].children;
    const auto child = children.find(path.blocks[at.matched]);
    if (child == children.end()) return at;
    const Node& node = nodes_[child->second];
    const size_t most = std::min(node.run.size(), path.blocks.size() - at.matched);
    size_t n = 1;
    while (n < most && node.run[n] == path.blocks[at.matched + n]) ++n;
    at = {child->second, n, at.matched + n};
    if (n < node.run.size()) return at;
    if (sight != nullptr && node.state.value != 0) {
      sight->states.push_back(Tokens(node.end));
      if (Tokens(node.end) <= max_boundary) {
        sight->usable = node.state;
        sight->usable_boundary = Tokens(node.end);
      }
    }
  }
  return at;
}

PrefixIndex::Sight PrefixIndex::Look(const PrefixPath& path, int64_t max_boundary) const {
  Sight sight;
  const Place at = Walk(path, &sight, max_boundary);
  sight.known = Tokens(at.matched);
  sight.leaves = at.matched > 0 && at.matched < path.blocks.size();
  if (!sight.leaves) return sight;
  const Node& node = nodes_[at.node];
  if (at.inside == node.run.size()) {
    // At the end of everything known there is no fork: the history just goes on.
    sight.leaves = !node.children.empty();
    sight.leavers = node.leavers;
  }
  if (sight.leaves) ++sight.leavers;
  return sight;
}

PrefixIndex::Sight PrefixIndex::See(const PrefixPath& path, int64_t max_boundary) {
  Sight sight = Look(path, max_boundary);
  ++order_;
  if (path.blocks.empty()) return sight;
  NodeId node = Grow(path, Walk(path, nullptr, 0));
  if (sight.leaves) nodes_[nodes_[node].parent].leavers = sight.leavers;
  for (; node != kNone; node = nodes_[node].parent) {
    Unlist(node);
    nodes_[node].last_seen = order_;
    List(node);
  }
  TrimSeen();
  return sight;
}

StatusOr<IndexedState> PrefixIndex::Add(const PrefixPath& path, uint64_t own_bytes, double now) {
  BATON_CHECK(!path.blocks.empty());
  const Place at = Walk(path, nullptr, 0);
  NodeId node = at.node;
  if (at.matched < path.blocks.size() || at.node == kNone) {
    node = Grow(path, at);
  } else if (at.inside < nodes_[node].run.size()) {
    node = SplitAt(node, at.inside);
  }
  if (nodes_[node].state.value != 0)
    return absl::AlreadyExistsError("the index has a state at this boundary of this history");
  const IndexedState id(next_state_++);
  nodes_[node].state = id;
  states_.emplace(id, State{node, own_bytes, 0, now, ++order_});
  const uint64_t before = bytes();
  own_bytes_ += own_bytes;
  CountStates(node, 1);
  admitted_bytes_ += bytes() - before;
  states_.at(id).hits = InheritedHits(node);
  TrimSeen();
  return id;
}

uint32_t PrefixIndex::InheritedHits(NodeId node) const {
  for (NodeId n = nodes_[node].parent; n != kNone; n = nodes_[n].parent) {
    // Children without states count too: others went that way and may again.
    if (nodes_[n].children.size() > 1) return 0;
    if (nodes_[n].state.value != 0) return states_.at(nodes_[n].state).hits;
  }
  return 0;
}

void PrefixIndex::Touch(IndexedState state, double now) {
  State& s = states_.at(state);
  ++s.hits;
  s.last_use = now;
  s.last_order = ++order_;
}

uint64_t PrefixIndex::Remove(IndexedState state) {
  const auto it = states_.find(state);
  BATON_CHECK(it != states_.end());
  const uint64_t before = bytes();
  const NodeId node = it->second.node;
  own_bytes_ -= it->second.own_bytes;
  states_.erase(it);
  nodes_[node].state = {};
  CountStates(node, -1);
  const uint64_t freed = before - bytes();
  JoinWithChild(node);
  TrimSeen();
  return freed;
}

std::optional<IndexedState> PrefixIndex::At(const PrefixPath& path) const {
  const Place at = Walk(path, nullptr, 0);
  if (at.node == kNone || at.matched < path.blocks.size()) return std::nullopt;
  const Node& node = nodes_[at.node];
  if (at.inside < node.run.size() || node.state.value == 0) return std::nullopt;
  return node.state;
}

PrefixIndex::StateView PrefixIndex::View(IndexedState state) const {
  return View(state, states_.at(state));
}

PrefixIndex::StateView PrefixIndex::View(IndexedState id, const State& s) const {
  const Node& own = nodes_[s.node];
  StateView view;
  view.state = id;
  view.boundary = Tokens(own.end);
  view.freed = s.own_bytes;
  view.hits = s.hits;
  view.last_use = s.last_use;
  view.last_order = s.last_order;
  if (own.states > 1) {
    for (const auto& [unused, child] : own.children) view.branches += nodes_[child].states > 0;
  }
  uint64_t alone = 0;  // blocks above it that no other state needs
  for (NodeId n = s.node; n != kNone; n = nodes_[n].parent) {
    if (n != s.node && nodes_[n].state.value != 0) {
      view.base = Tokens(nodes_[n].end);
      break;
    }
    if (nodes_[n].states == 1) alone += nodes_[n].run.size();
  }
  view.freed += alone * options_.block_bytes;
  return view;
}

std::pair<std::optional<IndexedState>, size_t> PrefixIndex::Sharer(const PrefixPath& path) const {
  Place at = Walk(path, nullptr, 0);
  if (at.node == kNone) return {};
  // Up to what is resident, then down to any state.
  while (nodes_[at.node].states == 0) {
    at.matched = nodes_[at.node].end - nodes_[at.node].run.size();
    at.node = nodes_[at.node].parent;
    if (at.node == kNone) return {};
  }
  if (at.matched == 0) return {};
  NodeId n = at.node;
  while (nodes_[n].state.value == 0) {
    for (const auto& [unused, child] : nodes_[n].children) {
      if (nodes_[child].states == 0) continue;
      n = child;
      break;
    }
  }
  return {nodes_[n].state, at.matched};
}

bool PrefixIndex::MarkPending(const PrefixPath& path, OwnerId owner) {
  BATON_CHECK(!path.blocks.empty());
  const PendingKey key{path.root, path.blocks.back()};
  if (const auto it = pending_.find(key); it != pending_.end()) return it->second == owner;
  if (pending_.size() >= options_.max_pending) return false;
  pending_.emplace(key, owner);
  return true;
}

void PrefixIndex::ClearPending(OwnerId owner) {
  absl::erase_if(pending_, [&](const auto& mark) { return mark.second == owner; });
}

PrefixIndex::Pending PrefixIndex::DeepestPending(const PrefixPath& path,
                                                 int64_t better_than,
                                                 int64_t max_boundary,
                                                 OwnerId self) const {
  if (pending_.empty() || max_boundary <= 0) return {};
  const size_t deepest =
      std::min(path.blocks.size(), static_cast<size_t>(max_boundary / options_.block_tokens));
  for (size_t n = deepest; n > 0 && Tokens(n) > better_than; --n) {
    const auto it = pending_.find({path.root, path.blocks[n - 1]});
    if (it != pending_.end() && it->second != self) return {Tokens(n), it->second};
  }
  return {};
}

}  // namespace baton
