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

// Bytes admitted, in capacities: memory turns over once per unit.
double CheckpointStore::Now() const {
  return static_cast<double>(index_.admitted_bytes()) /
         static_cast<double>(options_.capacity_bytes);
}

void CheckpointStore::Insert(std::shared_ptr<const Checkpoint> checkpoint,
                             std::span<const Sha256> block_hashes) {
  const ContentIdentity& identity = checkpoint->seal().identity;
  if (block_hashes.empty() || block_hashes.size() * kBlockTokens != identity.boundary ||
      block_hashes.back() != identity.prefix) {
    LogError("checkpoint not kept: its seal (" + identity.ToString() +
             ") is not of the history it is stored for");
    return;
  }
  const Sha256 key = identity.Key();
  if (auto it = entries_.find(key); it != entries_.end()) {
    index_.Touch(it->second.state, Now());
    it->second.checkpoint = std::move(checkpoint);
    return;
  }
  const IdentityBase base{identity.model, identity.layout, identity.scope};
  uint64_t own_bytes = checkpoint->slot().has_value() ? options_.slot_bytes : 0;
  const auto& blocks = checkpoint->blocks();
  for (size_t g = 0; g < std::min(blocks.size(), options_.window_block_bytes.size()); ++g)
    own_bytes += blocks[g].size() * options_.window_block_bytes[g];
  const StatusOr<IndexedState> state = index_.Add({RootOf(base), block_hashes}, own_bytes, Now());
  BATON_CHECK(state.ok());  // one state per identity
  keys_.emplace(*state, key);
  entries_.emplace(key, Entry{std::move(checkpoint), *state});
}

std::shared_ptr<const Checkpoint> CheckpointStore::Use(Map::iterator it) {
  ++counters_.hits;
  index_.Touch(it->second.state, Now());
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
  const PrefixIndex::Sight sight =
      index_.Look({RootOf(base), block_hashes}, static_cast<int64_t>(max_boundary));
  if (!sight.usable.has_value()) return nullptr;
  return Use(entries_.find(keys_.at(*sight.usable)));
}

CheckpointStore::Sharing CheckpointStore::FindSharing(const IdentityBase& base,
                                                      std::span<const Sha256> block_hashes) const {
  const auto [state, blocks] = index_.Sharer({RootOf(base), block_hashes});
  if (!state.has_value()) return {};
  return {entries_.at(keys_.at(*state)).checkpoint, blocks};
}

bool CheckpointStore::EvictOne() {
  const std::optional<IndexedState> victim = ChooseVictim(options_.eviction, index_);
  if (!victim.has_value()) return false;
  ++counters_.evictions;
  Erase(entries_.find(keys_.at(*victim)));
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
  // Not by its key: the seal may be what is damaged.
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.checkpoint.get() != &checkpoint) continue;
    Erase(it);
    return;
  }
}

void CheckpointStore::Erase(Map::iterator it) {
  index_.Remove(it->second.state);
  keys_.erase(it->second.state);
  entries_.erase(it);
}

}  // namespace baton
