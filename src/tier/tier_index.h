// What a tier holds: bundles by content identity, segments by key with the number of bundles that
// need them, recency, and bytes against the budget. It does no I/O: what must go from the store is
// returned to the caller. A hint like every index; the objects decide.
// Thread rule: none of its own; guarded by the tier's lock.
#ifndef BATON_TIER_TIER_INDEX_H_
#define BATON_TIER_TIER_INDEX_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "tier/tier.h"

namespace baton::tier_internal {

struct Segment {
  Sha256 key;
  Digest128 root;  // over the digests of its blocks
  uint64_t bytes = 0;
  uint64_t references = 0;  // bundles, and Puts on their way
  bool gone = false;        // erased as bad while referenced
};
using SegmentPtr = std::shared_ptr<Segment>;

struct Bundle {
  ContentIdentity identity;
  Sha256 key;
  StateId state_id;
  StateId parent;
  uint64_t bytes = 0;
  std::vector<SegmentPtr> segments;  // one reference each
  uint64_t readers = 0;              // restores under way: not evicted
  uint64_t last_use = 0;
  uint64_t uses = 0;
  bool gone = false;
  std::list<std::shared_ptr<Bundle>>::iterator recency;
};
using BundlePtr = std::shared_ptr<Bundle>;

// An object that is no longer in the index; its bytes count until Removed.
struct Doomed {
  ObjectName name;
  uint64_t bytes = 0;
};

class TierIndex {
 public:
  BundlePtr Find(const ContentIdentity& identity) const;
  SegmentPtr FindSegment(const Sha256& key) const;
  std::optional<uint64_t> FindDeepest(std::span<const Sha256> block_hashes,
                                      const IdentityBase& base,
                                      uint64_t max_boundary) const;

  // With one reference, the caller's. Its bytes have been reserved.
  void AddSegment(const SegmentPtr& segment);
  void Reference(const SegmentPtr& segment) { ++segment->references; }
  // Drops one reference; the last dooms the segment.
  void Release(const SegmentPtr& segment, std::vector<Doomed>* doomed);
  // Takes over one reference per segment. Most recently used. Its bytes have been reserved.
  void AddBundle(const BundlePtr& bundle);
  void EraseBundle(const BundlePtr& bundle, std::vector<Doomed>* doomed);
  // Erases the segment and every bundle that needs it.
  void EraseBadSegment(const SegmentPtr& segment, std::vector<Doomed>* doomed);
  void Touch(const BundlePtr& bundle);
  // A well-formed object that is not this process's; older ones first.
  void AddUnindexed(const Doomed& object);
  // An object of that name is about to be replaced.
  void ForgetUnindexed(const ObjectName& name);

  // What goes first: unindexed objects, then bundles without readers, least recently used first.
  // False if nothing can go.
  bool EvictOne(std::vector<Doomed>* doomed);
  // Candidates for a policy: bundles without readers.
  std::vector<BundlePtr> Evictable() const;
  bool HasUnindexed() const { return !unindexed_.empty(); }

  void Reserve(uint64_t bytes) { bytes_ += bytes; }
  void Unreserve(uint64_t bytes) { bytes_ -= bytes; }
  uint64_t bytes() const { return bytes_; }

  size_t bundles() const { return bundles_.size(); }
  size_t segments() const { return segments_.size(); }
  std::vector<BundlePtr> All() const;  // least recently used first
  static TierEntry EntryOf(const Bundle& bundle);
  Status CheckInvariants() const;

 private:
  absl::flat_hash_map<Sha256, BundlePtr> bundles_;  // by prefix hash: model and layout are one
  absl::flat_hash_map<Sha256, SegmentPtr> segments_;
  std::list<BundlePtr> recency_;  // most recent last
  std::list<Doomed> unindexed_;
  uint64_t bytes_ = 0;
  uint64_t clock_ = 0;
  uint64_t deepest_ = 0;  // no bundle was ever deeper
};

}  // namespace baton::tier_internal

#endif  // BATON_TIER_TIER_INDEX_H_
