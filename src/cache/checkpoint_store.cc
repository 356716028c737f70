#include "cache/checkpoint_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace baton {

Checkpoint::Checkpoint(PoolSet pools,
                       Seal seal,
                       std::optional<SlotHandle> slot,
                       std::vector<std::vector<BlockHandle>> blocks,
                       std::vector<std::vector<Digest128>> block_digests)
    : pools_(std::move(pools)),
      seal_(std::move(seal)),
      slot_(slot),
      blocks_(std::move(blocks)),
      block_digests_(std::move(block_digests)) {}

Checkpoint::~Checkpoint() {
  auto report = [](const Status& s) {
    if (!s.ok()) LogError("releasing a checkpoint: " + std::string(s.message()));
  };
  if (slot_.has_value()) report(pools_.slots->Free(*slot_));
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (BlockHandle block : blocks_[g]) report(pools_.blocks[g]->DropReference(block));
}

void CheckpointStore::Insert(std::shared_ptr<const Checkpoint> checkpoint) {
  const Sha256 key = checkpoint->seal().identity.Key();
  if (auto it = entries_.find(key); it != entries_.end()) Erase(it);
  recency_.push_front(key);
  entries_.emplace(key, Entry{std::move(checkpoint), recency_.begin()});
}

std::shared_ptr<const Checkpoint> CheckpointStore::Use(Map::iterator it) {
  ++counters_.hits;
  recency_.splice(recency_.begin(), recency_, it->second.recency);
  return it->second.checkpoint;
}

std::shared_ptr<const Checkpoint> CheckpointStore::Find(const ContentIdentity& identity) {
  ++counters_.lookups;
  auto it = entries_.find(identity.Key());
  return it == entries_.end() ? nullptr : Use(it);
}

std::shared_ptr<const Checkpoint> CheckpointStore::FindDeepest(const IdentityBase& base,
                                                               std::span<const Sha256> block_hashes,
                                                               uint64_t max_boundary) {
  ++counters_.lookups;
  if (entries_.empty()) return nullptr;
  const uint64_t deepest = std::min<uint64_t>(block_hashes.size(), max_boundary / kBlockTokens);
  for (uint64_t n = deepest; n > 0; --n) {
    const ContentIdentity identity = base.At(block_hashes[n - 1], n * kBlockTokens);
    if (auto it = entries_.find(identity.Key()); it != entries_.end()) return Use(it);
  }
  return nullptr;
}

bool CheckpointStore::EvictOne() {
  if (recency_.empty()) return false;
  ++counters_.evictions;
  Erase(entries_.find(recency_.back()));
  return true;
}

size_t CheckpointStore::Revoke(absl::flat_hash_set<StateId>* ids) {
  size_t dropped = 0;
  for (bool more = true; more;) {
    more = false;
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto here = it++;
      const Seal& seal = here->second.checkpoint->seal();
      if (!ids->contains(seal.state_id) && !ids->contains(seal.parent)) continue;
      ids->insert(seal.state_id);
      Erase(here);
      ++dropped;
      more = true;
    }
  }
  return dropped;
}

bool CheckpointStore::Holds(const Checkpoint& checkpoint) const {
  const auto it = entries_.find(checkpoint.seal().identity.Key());
  return it != entries_.end() && it->second.checkpoint.get() == &checkpoint;
}

void CheckpointStore::Remove(const Checkpoint& checkpoint) {
  auto it = entries_.find(checkpoint.seal().identity.Key());
  if (it != entries_.end() && it->second.checkpoint.get() == &checkpoint) Erase(it);
}

void CheckpointStore::Erase(Map::iterator it) {
  recency_.erase(it->second.recency);
  entries_.erase(it);
}

}  // namespace baton
