#include "tier/tier_index.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::tier_internal {

BundlePtr TierIndex::Find(const ContentIdentity& identity) const {
  const auto it = bundles_.find(identity.prefix);
  if (it == bundles_.end() || it->second->identity != identity) return nullptr;
  return it->second;
}

SegmentPtr TierIndex::FindSegment(const Sha256& key) const {
  const auto it = segments_.find(key);
  return it == segments_.end() ? nullptr : it->second;
}

std::optional<uint64_t> TierIndex::FindDeepest(std::span<const Sha256> block_hashes,
                                               const IdentityBase& base,
                                               uint64_t max_boundary) const {
  constexpr auto kBlock = static_cast<uint64_t>(kBlockTokens);
  const uint64_t deepest = std::min(max_boundary, deepest_) / kBlock;
  for (size_t b = std::min<uint64_t>(block_hashes.size(), deepest); b > 0; --b) {
    const auto it = bundles_.find(block_hashes[b - 1]);
    if (it != bundles_.end() && it->second->identity == base.At(block_hashes[b - 1], b * kBlock))
      return b * kBlock;
  }
  return std::nullopt;
}

void TierIndex::AddSegment(const SegmentPtr& segment) {
  segment->references = 1;
  segments_[segment->key] = segment;
}

void TierIndex::Release(const SegmentPtr& segment, std::vector<Doomed>* doomed) {
  BATON_CHECK(segment->references > 0);
  if (--segment->references > 0 || segment->gone) return;
  segment->gone = true;
  segments_.erase(segment->key);
  doomed->push_back({{ObjectKind::kSegment, segment->key}, segment->bytes});
}

void TierIndex::AddBundle(const BundlePtr& bundle) {
  bundle->last_use = ++clock_;
  bundle->recency = recency_.insert(recency_.end(), bundle);
  bundles_[bundle->identity.prefix] = bundle;
  deepest_ = std::max(deepest_, bundle->identity.boundary);
}

void TierIndex::EraseBundle(const BundlePtr& bundle, std::vector<Doomed>* doomed) {
  if (bundle->gone) return;
  bundle->gone = true;
  recency_.erase(bundle->recency);
  bundles_.erase(bundle->identity.prefix);
  doomed->push_back({{ObjectKind::kBundle, bundle->key}, bundle->bytes});
  for (const SegmentPtr& segment : bundle->segments) Release(segment, doomed);
}

void TierIndex::EraseBadSegment(const SegmentPtr& segment, std::vector<Doomed>* doomed) {
  if (segment->gone) return;
  segment->gone = true;
  segments_.erase(segment->key);
  doomed->push_back({{ObjectKind::kSegment, segment->key}, segment->bytes});
  for (const BundlePtr& bundle : All())
    if (std::find(bundle->segments.begin(), bundle->segments.end(), segment) !=
        bundle->segments.end())
      EraseBundle(bundle, doomed);
}

void TierIndex::Touch(const BundlePtr& bundle) {
  if (bundle->gone) return;
  bundle->last_use = ++clock_;
  recency_.splice(recency_.end(), recency_, bundle->recency);
}

void TierIndex::AddUnindexed(const Doomed& object) {
  unindexed_.push_back(object);
  bytes_ += object.bytes;
}

void TierIndex::ForgetUnindexed(const ObjectName& name) {
  for (auto it = unindexed_.begin(); it != unindexed_.end(); ++it) {
    if (it->name != name) continue;
    bytes_ -= it->bytes;
    unindexed_.erase(it);
    return;
  }
}

bool TierIndex::EvictOne(std::vector<Doomed>* doomed) {
  if (!unindexed_.empty()) {
    doomed->push_back(unindexed_.front());
    unindexed_.pop_front();
    return true;
  }
  for (const BundlePtr& bundle : recency_) {
    if (bundle->readers > 0) continue;
    EraseBundle(BundlePtr(bundle), doomed);
    return true;
  }
  return false;
}

std::vector<BundlePtr> TierIndex::Evictable() const {
  std::vector<BundlePtr> out;
  for (const BundlePtr& bundle : recency_)
    if (bundle->readers == 0) out.push_back(bundle);
  return out;
}

std::vector<BundlePtr> TierIndex::All() const { return {recency_.begin(), recency_.end()}; }

TierEntry TierIndex::EntryOf(const Bundle& bundle) {
  TierEntry entry;
  entry.identity = bundle.identity;
  entry.state_id = bundle.state_id;
  entry.own_bytes = bundle.bytes;
  for (const SegmentPtr& segment : bundle.segments)
    entry.shared_bytes += segment->bytes / std::max<uint64_t>(segment->references, 1);
  entry.last_use = bundle.last_use;
  entry.uses = bundle.uses;
  return entry;
}

Status TierIndex::CheckInvariants() const {
  absl::flat_hash_map<Sha256, uint64_t> references;
  uint64_t bytes = 0;
  for (const BundlePtr& bundle : recency_) {
    if (bundle->gone || Find(bundle->identity) != bundle)
      return absl::InternalError(bundle->identity.ToString() + ": in recency, not in the map");
    bytes += bundle->bytes;
    for (const SegmentPtr& segment : bundle->segments) {
      if (FindSegment(segment->key) != segment)
        return absl::InternalError(bundle->identity.ToString() + ": its segment is not there");
      ++references[segment->key];
    }
  }
  if (recency_.size() != bundles_.size()) return absl::InternalError("recency and map differ");
  for (const auto& [key, segment] : segments_) {
    bytes += segment->bytes;
    if (segment->references != references[key])
      return absl::InternalError(absl::StrCat("segment ", key.Hex(), ": ", segment->references,
                                              " references, needed by ", references[key]));
  }
  for (const Doomed& object : unindexed_) bytes += object.bytes;
  if (bytes != bytes_)
    return absl::InternalError(absl::StrCat(bytes_, " bytes counted, ", bytes, " there"));
  return absl::OkStatus();
}

}  // namespace baton::tier_internal
