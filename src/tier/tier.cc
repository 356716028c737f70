#include "tier/tier.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tier/tier_impl.h"

namespace baton::tier_internal {

namespace {

// `bytes` from the start, fewer if the object ends before.
StatusOr<std::vector<std::byte>> ReadStart(ObjectReader* reader, uint64_t bytes) {
  std::vector<std::byte> out;
  bytes = std::min(bytes, reader->size());
  out.reserve(bytes);
  while (out.size() < bytes) {
    BATON_ASSIGN_OR_RETURN(const ByteSpan piece, reader->Read(out.size(), bytes - out.size()));
    if (piece.empty()) break;
    out.insert(out.end(), piece.begin(), piece.end());
  }
  return out;
}

}  // namespace

StatusOr<ObjectHeader> ReadObjectHeader(ObjectReader* reader) {
  BATON_ASSIGN_OR_RETURN(std::vector<std::byte> record, ReadStart(reader, kObjectAlign));
  BATON_ASSIGN_OR_RETURN(const uint64_t bytes, PeekObjectHeaderBytes(record));
  if (bytes > record.size()) {
    if (bytes > reader->size())  // before anything of that length is allocated
      return Reject(Reason::kShortTransfer,
                    absl::StrCat("state object: header of ", bytes, " bytes in ", reader->size()));
    BATON_ASSIGN_OR_RETURN(record, ReadStart(reader, bytes));
  }
  return DecodeObjectHeader(record);
}

// What lay in the store when it was opened.
class TierImpl::Inventory {
 public:
  Inventory(TierImpl* tier, TierStats* stats) : tier_(*tier), stats_(*stats) {}

  void Take() {
    uint64_t foreign = 0;
    std::vector<StoredObject> found = tier_.store_->Found(&foreign);
    stats_.found_foreign = foreign;
    std::stable_sort(found.begin(), found.end(), [](const StoredObject& a, const StoredObject& b) {
      return a.age_rank < b.age_rank;
    });
    for (const StoredObject& object : found) Classify(object);
  }

  std::vector<Doomed> unindexed;
  std::vector<std::pair<BundlePtr, std::vector<Sha256>>> bundles;
  absl::flat_hash_map<Sha256, SegmentPtr> segments;

 private:
  void Classify(const StoredObject& object) {
    StatusOr<std::unique_ptr<ObjectReader>> reader =
        tier_.store_->Open(object.name, ReadAhead::kNone);
    StatusOr<ObjectHeader> header = reader.ok() ? ReadObjectHeader(reader->get()) : reader.status();
    if (!header.ok()) {
      if (ReasonOf(header.status()) == Reason::kProtocolVersion) {
        ++stats_.found_newer;
        unindexed.push_back({object.name, object.bytes});
      } else {
        Bad(object, header.status().ToString());
      }
      return;
    }
    if (header->Name() != object.name) return Bad(object, "holds " + header->Name().FileName());
    if (header->ObjectBytes() != object.bytes)
      return Bad(object, absl::StrCat(object.bytes, " bytes, expected ", header->ObjectBytes()));
    if (header->identity.model != tier_.options_.model ||
        header->identity.layout != tier_.options_.layout->fingerprint() ||
        header->algorithm != tier_.options_.digester->algorithm() ||
        // Whoever promises the same bits does not touch what gave them up.
        (header->encoding != RestEncoding::kSame &&
         tier_.options_.rest_encoding == RestEncoding::kSame)) {
      ++stats_.found_other;
      unindexed.push_back({object.name, object.bytes});
      return;
    }
    header->kind == ObjectKind::kBundle ? AddBundle(*header) : AddSegment(*header);
  }

  void Bad(const StoredObject& object, const std::string& why) {
    if (stats_.found_bad++ < kLogged)
      LogWarning(absl::StrCat("tier ", std::string(tier_.store_->name()), ": ",
                              object.name.FileName(), " is left alone and not used: ", why));
  }

  void AddBundle(const ObjectHeader& header) {
    auto bundle = std::make_shared<Bundle>();
    bundle->identity = header.identity;
    bundle->key = header.Name().key;
    bundle->state_id = header.seal.state_id;
    bundle->parent = header.seal.parent;
    bundle->bytes = header.ObjectBytes();
    bundles.emplace_back(std::move(bundle), header.segments);
  }

  void AddSegment(const ObjectHeader& header) {
    auto segment = std::make_shared<Segment>();
    segment->key = header.Name().key;
    segment->root = tier_.options_.digester->BlockRoot(header.block_digests);
    segment->bytes = header.ObjectBytes();
    segments[segment->key] = std::move(segment);
  }

  static constexpr uint64_t kLogged = 10;  // lines; the rest is counted
  TierImpl& tier_;
  TierStats& stats_;
};

void TierImpl::TakeInventory() {
  TierStats found;
  Inventory inventory(this, &found);
  inventory.Take();
  std::vector<Doomed> doomed;
  {
    MutexLock lock(&mu_);
    for (const Doomed& object : inventory.unindexed) index_.AddUnindexed(object);
    for (auto& [key, segment] : inventory.segments) {
      index_.Reserve(segment->bytes);
      index_.AddSegment(segment);  // one reference while bundles are added
    }
    for (auto& [bundle, keys] : inventory.bundles) {
      index_.Reserve(bundle->bytes);
      for (const Sha256& key : keys) {
        const auto it = inventory.segments.find(key);
        if (it == inventory.segments.end()) break;
        bundle->segments.push_back(it->second);
      }
      const bool whole = bundle->segments.size() == keys.size();
      for (const SegmentPtr& segment : bundle->segments) index_.Reference(segment);
      index_.AddBundle(bundle);
      if (whole) {
        ++found.found_bundles;
      } else {
        ++found.found_incomplete;
        index_.EraseBundle(bundle, &doomed);
      }
    }
    for (auto& [key, segment] : inventory.segments) {
      index_.Release(segment, &doomed);
      segment->gone ? ++found.found_incomplete : ++found.found_segments;
    }
    MarkDoomed(doomed);
    stats_ = found;
  }
  RemoveDoomed(doomed);
  EvictTo(options_.budget_bytes, 0).IgnoreError();  // the budget may be smaller than it was
}

void TierImpl::MarkDoomed(const std::vector<Doomed>& doomed) {
  for (const Doomed& object : doomed) {
    busy_.insert(object.name);
    doomed_bytes_ += object.bytes;
  }
}

void TierImpl::RemoveDoomed(const std::vector<Doomed>& doomed) {
  if (doomed.empty()) return;
  for (const Doomed& object : doomed) {
    const Status removed = store_->Remove(object.name);
    if (!removed.ok())  // it may come back at the next start, and is verified like any other
      LogWarning(absl::StrCat("tier ", std::string(store_->name()), ": ", object.name.FileName(),
                              " could not be removed: ", removed.ToString()));
    MutexLock lock(&mu_);
    index_.Unreserve(object.bytes);
    doomed_bytes_ -= object.bytes;
    EndBusy(object.name);
  }
}

void TierImpl::WaitWhileBusy(const ObjectName& name) {
  while (busy_.contains(name)) idle_.Wait(&mu_);
}

void TierImpl::EndBusy(const ObjectName& name) {
  busy_.erase(name);
  idle_.NotifyAll();
}

// Makes room for `reserve` bytes more within `bytes`, and reserves them.
Status TierImpl::EvictTo(uint64_t bytes, uint64_t reserve) {
  if (reserve > bytes)
    return Reject(Reason::kNoCapacity,
                  absl::StrCat("tier ", std::string(store_->name()), ": an object of ", reserve,
                               " bytes, budget ", bytes, "; raise the budget"));
  if (options_.score != nullptr) EvictByScore(bytes, reserve);
  while (true) {
    std::vector<Doomed> doomed;
    {
      MutexLock lock(&mu_);
      if (index_.bytes() <= bytes - reserve) {
        index_.Reserve(reserve);
        return absl::OkStatus();
      }
      if (index_.bytes() - doomed_bytes_ <= bytes - reserve) {  // another thread is at it
        idle_.Wait(&mu_);
        continue;
      }
      const size_t before = index_.bundles();
      if (!index_.EvictOne(&doomed))
        return Reject(
            Reason::kNoCapacity,
            absl::StrCat("tier ", std::string(store_->name()), ": ", index_.bytes(), " of ", bytes,
                         " bytes in use by restores and writes, ", reserve, " more asked for"));
      stats_.evictions += before - index_.bundles();
      MarkDoomed(doomed);
    }
    RemoveDoomed(doomed);
  }
}

// Policies are the caller's code: they run on a copy, without the lock.
void TierImpl::EvictByScore(uint64_t bytes, uint64_t reserve) {
  std::vector<std::pair<double, BundlePtr>> order;
  std::vector<std::pair<BundlePtr, TierEntry>> entries;
  {
    MutexLock lock(&mu_);
    if (index_.HasUnindexed() || index_.bytes() + reserve <= bytes) return;
    for (const BundlePtr& bundle : index_.Evictable())
      entries.emplace_back(bundle, TierIndex::EntryOf(*bundle));
  }
  for (const auto& [bundle, entry] : entries) order.emplace_back(options_.score(entry), bundle);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [score, bundle] : order) {
    std::vector<Doomed> doomed;
    {
      MutexLock lock(&mu_);
      if (index_.bytes() + reserve <= bytes) return;
      if (bundle->gone || bundle->readers > 0) continue;
      index_.EraseBundle(bundle, &doomed);
      ++stats_.evictions;
      MarkDoomed(doomed);
    }
    RemoveDoomed(doomed);
  }
}

bool TierImpl::RemoveBundle(const ContentIdentity& identity) {
  std::vector<Doomed> doomed;
  {
    MutexLock lock(&mu_);
    const BundlePtr bundle = index_.Find(identity);
    if (bundle == nullptr) return false;
    index_.EraseBundle(bundle, &doomed);
    MarkDoomed(doomed);
  }
  RemoveDoomed(doomed);
  return true;
}

size_t TierImpl::Revoke(const StateId& id) {
  std::vector<Doomed> doomed;
  size_t count = 0;
  {
    MutexLock lock(&mu_);
    std::vector<StateId> revoked = {id};
    for (size_t i = 0; i < revoked.size(); ++i) {
      for (const BundlePtr& bundle : index_.All()) {
        if (bundle->state_id != revoked[i] && bundle->parent != revoked[i]) continue;
        if (bundle->state_id != revoked[i]) revoked.push_back(bundle->state_id);
        index_.EraseBundle(bundle, &doomed);
        ++count;
      }
    }
    MarkDoomed(doomed);
  }
  RemoveDoomed(doomed);
  return count;
}

}  // namespace baton::tier_internal

namespace baton {

using tier_internal::BundlePtr;
using tier_internal::TierImpl;
using tier_internal::TierIndex;

Tier::Tier(std::unique_ptr<TierImpl> impl) : impl_(std::move(impl)) {}
Tier::~Tier() = default;

StatusOr<std::unique_ptr<Tier>> Tier::Open(TierOptions options,
                                           std::unique_ptr<ObjectStore> store) {
  if (options.layout == nullptr || options.digester == nullptr || options.device == nullptr ||
      store == nullptr)
    return absl::InvalidArgumentError("tier: layout, digester, device and store must be given");
  if (options.budget_bytes < kObjectAlign)
    return absl::InvalidArgumentError(absl::StrCat("tier ", std::string(store->name()),
                                                   ": budget of ", options.budget_bytes,
                                                   " bytes, expected at least ", kObjectAlign));
  auto impl = std::make_unique<TierImpl>(std::move(options), std::move(store));
  impl->TakeInventory();
  return std::unique_ptr<Tier>(new Tier(std::move(impl)));
}

std::string_view Tier::name() const { return impl_->store_->name(); }

Status Tier::Put(const BundleSource& source, const CancelToken& cancel) {
  return impl_->Put(source, cancel);
}

StatusOr<RestoredBundle> Tier::Restore(const RestoreRequest& request, const CancelToken& cancel) {
  return impl_->Restore(request, cancel);
}

bool Tier::Contains(const ContentIdentity& identity) const {
  MutexLock lock(&impl_->mu_);
  return impl_->index_.Find(identity) != nullptr;
}

std::optional<uint64_t> Tier::FindDeepest(const IdentityBase& base,
                                          std::span<const Sha256> block_hashes,
                                          uint64_t max_boundary) const {
  MutexLock lock(&impl_->mu_);
  return impl_->index_.FindDeepest(block_hashes, base, max_boundary);
}

bool Tier::Remove(const ContentIdentity& identity) { return impl_->RemoveBundle(identity); }
size_t Tier::Revoke(const StateId& id) { return impl_->Revoke(id); }
void Tier::EvictTo(uint64_t bytes) { impl_->EvictTo(bytes, 0).IgnoreError(); }

std::vector<TierEntry> Tier::Entries() const {
  MutexLock lock(&impl_->mu_);
  std::vector<TierEntry> out;
  for (const BundlePtr& bundle : impl_->index_.All()) out.push_back(TierIndex::EntryOf(*bundle));
  return out;
}

TierStats Tier::Stats() const {
  MutexLock lock(&impl_->mu_);
  TierStats stats = impl_->stats_;
  stats.budget_bytes = impl_->options_.budget_bytes;
  stats.bytes = impl_->index_.bytes();
  stats.bundles = impl_->index_.bundles();
  stats.segments = impl_->index_.segments();
  return stats;
}

uint64_t Tier::budget_bytes() const { return impl_->options_.budget_bytes; }

Status Tier::CheckInvariants() const {
  MutexLock lock(&impl_->mu_);
  if (!impl_->busy_.empty())
    return absl::InternalError(absl::StrCat(impl_->busy_.size(), " names are busy"));
  return impl_->index_.CheckInvariants();
}

}  // namespace baton
