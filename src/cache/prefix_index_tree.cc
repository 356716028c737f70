// The tree behind PrefixIndex: growing, splitting, joining and forgetting runs of blocks.
#include <algorithm>

#include "cache/prefix_index.h"

namespace baton {

PrefixIndex::NodeId PrefixIndex::NewNode(NodeId parent, std::span<const Sha256> run) {
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (free_.empty()) {
    BATON_CHECK(id != kNone);
    nodes_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
    nodes_[id] = Node();
  }
  Node& node = nodes_[id];
  node.parent = parent;
  node.run.assign(run.begin(), run.end());
  node.last_seen = order_;
  if (parent != kNone) {
    node.end = nodes_[parent].end + run.size();
    node.root = nodes_[parent].root;
    nodes_[parent].children.emplace(run.front(), id);
    seen_blocks_ += run.size();
  }
  return id;
}

PrefixIndex::NodeId PrefixIndex::Grow(const PrefixPath& path, const Place& from) {
  NodeId node = from.node;
  if (node == kNone) {
    node = NewNode(kNone, {});
    nodes_[node].root = path.root;
    roots_.emplace(path.root, node);
  }
  if (from.matched == path.blocks.size()) return node;  // also inside a run
  if (from.inside < nodes_[node].run.size()) node = SplitAt(node, from.inside);
  Unlist(node);
  Node& end = nodes_[node];
  // The end of a path that was merely seen grows in place.
  if (end.parent != kNone && end.children.empty() && end.state.value == 0 && end.states == 0) {
    const auto rest = path.blocks.subspan(from.matched);
    end.run.insert(end.run.end(), rest.begin(), rest.end());
    end.end += rest.size();
    seen_blocks_ += rest.size();
    List(node);
    return node;
  }
  const NodeId leaf = NewNode(node, path.blocks.subspan(from.matched));
  List(leaf);
  return leaf;
}

PrefixIndex::NodeId PrefixIndex::SplitAt(NodeId node, size_t inside) {
  BATON_CHECK(inside > 0 && inside < nodes_[node].run.size());
  const std::vector<Sha256> run = std::move(nodes_[node].run);
  const NodeId parent = nodes_[node].parent;
  const auto cut = run.begin() + static_cast<ptrdiff_t>(inside);
  const std::vector<Sha256> upper_run(run.begin(), cut);
  nodes_[parent].children.erase(run.front());
  const NodeId upper = NewNode(parent, upper_run);
  seen_blocks_ -= upper_run.size();  // nothing new: counted with the whole run
  Node& lower = nodes_[node];
  lower.run.assign(cut, run.end());
  lower.parent = upper;
  nodes_[upper].states = lower.states;
  nodes_[upper].last_seen = lower.last_seen;
  nodes_[upper].children.emplace(lower.run.front(), node);
  return upper;
}

void PrefixIndex::JoinWithChild(NodeId node) {
  Node& upper = nodes_[node];
  if (upper.parent == kNone || upper.state.value != 0 || upper.children.size() != 1) return;
  const NodeId child = upper.children.begin()->second;
  Node& lower = nodes_[child];
  if (lower.states != upper.states) return;
  upper.run.insert(upper.run.end(), lower.run.begin(), lower.run.end());
  lower.run = std::move(upper.run);
  lower.parent = upper.parent;
  nodes_[upper.parent].children[lower.run.front()] = child;
  upper = Node();
  free_.push_back(node);
}

void PrefixIndex::CountStates(NodeId node, int64_t by) {
  for (NodeId n = node; n != kNone; n = nodes_[n].parent) {
    Node& at = nodes_[n];
    const bool was = at.states > 0;
    Unlist(n);
    at.states = static_cast<uint64_t>(static_cast<int64_t>(at.states) + by);
    List(n);
    if (was == (at.states > 0)) continue;
    if (was) {
      resident_blocks_ -= at.run.size();
      seen_blocks_ += at.run.size();
    } else {
      resident_blocks_ += at.run.size();
      seen_blocks_ -= at.run.size();
    }
  }
}

void PrefixIndex::Unlist(NodeId node) { forgettable_.erase({nodes_[node].last_seen, node}); }

void PrefixIndex::List(NodeId node) {
  const Node& at = nodes_[node];
  if (at.parent != kNone && at.states == 0 && at.children.empty())
    forgettable_.emplace(at.last_seen, node);
}

void PrefixIndex::DropSeen(NodeId node) {
  Unlist(node);
  const NodeId parent = nodes_[node].parent;
  seen_blocks_ -= nodes_[node].run.size();
  nodes_[parent].children.erase(nodes_[node].run.front());
  nodes_[node] = Node();
  free_.push_back(node);
  if (nodes_[parent].parent != kNone) {
    List(parent);
    JoinWithChild(parent);
  } else if (nodes_[parent].children.empty()) {
    roots_.erase(nodes_[parent].root);
    nodes_[parent] = Node();
    free_.push_back(parent);
  }
}

void PrefixIndex::TrimSeen() {
  while (seen_blocks_ > options_.max_seen_blocks && !forgettable_.empty())
    DropSeen(forgettable_.begin()->second);
}

void PrefixIndex::CheckInvariants() const {
  uint64_t resident = 0, seen = 0, states = 0, own = 0;
  std::vector<bool> is_free(nodes_.size(), false);
  for (const NodeId n : free_) is_free[n] = true;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    if (is_free[n]) continue;
    const Node& node = nodes_[n];
    uint64_t below = node.state.value != 0 ? 1 : 0;
    for (const auto& [hash, child] : node.children) {
      const Node& c = nodes_[child];
      BATON_CHECK(!is_free[child] && c.parent == n && c.run.front() == hash);
      BATON_CHECK(c.root == node.root && c.end == node.end + c.run.size());
      below += c.states;
    }
    BATON_CHECK(below == node.states);
    BATON_CHECK((node.parent == kNone) == node.run.empty());
    if (node.parent == kNone) BATON_CHECK(roots_.at(node.root) == n);
    (node.states > 0 ? resident : seen) += node.run.size();
    if (node.state.value != 0) {
      ++states;
      BATON_CHECK(states_.at(node.state).node == n);
      own += states_.at(node.state).own_bytes;
    }
    const bool leaf = node.parent != kNone && node.states == 0 && node.children.empty();
    BATON_CHECK(leaf == forgettable_.contains({node.last_seen, n}));
  }
  BATON_CHECK(resident == resident_blocks_ && seen == seen_blocks_);
  BATON_CHECK(states == states_.size() && own == own_bytes_);
  BATON_CHECK(seen_blocks_ <= options_.max_seen_blocks);
}

}  // namespace baton
