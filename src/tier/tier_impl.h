// Private to this module: the tier's lock, index and store, and the steps that Put and Restore
// share. put.cc and restore.cc are built on it. Thread rule: thread-safe.
#ifndef BATON_TIER_TIER_IMPL_H_
#define BATON_TIER_TIER_IMPL_H_

#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "tier/tier.h"
#include "tier/tier_index.h"

namespace baton::tier_internal {

class TierImpl {
 public:
  TierImpl(TierOptions options, std::unique_ptr<ObjectStore> store)
      : options_(std::move(options)), store_(std::move(store)) {}

  // tier.cc
  void TakeInventory();
  bool RemoveBundle(const ContentIdentity& identity);
  size_t Revoke(const StateId& id);
  Status EvictTo(uint64_t bytes, uint64_t reserve);

  // put.cc
  Status Put(const BundleSource& source, const CancelToken& cancel);
  // restore.cc
  StatusOr<RestoredBundle> Restore(const RestoreRequest& request, const CancelToken& cancel);

  Verifier MakeVerifier() const {
    return {options_.layout, options_.digester, options_.device, nullptr, options_.checks};
  }

  const TierOptions options_;
  const std::unique_ptr<ObjectStore> store_;

  mutable Mutex mu_;
  CondVar idle_;  // some name is no longer busy
  TierIndex index_ BATON_GUARDED_BY(mu_);
  TierStats stats_ BATON_GUARDED_BY(mu_);
  // Names being written or removed. No name is both busy and in the index.
  absl::flat_hash_set<ObjectName> busy_ BATON_GUARDED_BY(mu_);
  uint64_t doomed_bytes_ BATON_GUARDED_BY(mu_) = 0;  // still counted, about to be free

  // Marks doomed names busy. Call in the critical section that doomed them.
  void MarkDoomed(const std::vector<Doomed>& doomed) BATON_REQUIRES(mu_);
  // Removes them from the store, then gives back name and bytes.
  void RemoveDoomed(const std::vector<Doomed>& doomed) BATON_EXCLUDES(mu_);
  void WaitWhileBusy(const ObjectName& name) BATON_REQUIRES(mu_);
  void EndBusy(const ObjectName& name) BATON_REQUIRES(mu_);

 private:
  class Inventory;
  void EvictByScore(uint64_t bytes, uint64_t reserve) BATON_EXCLUDES(mu_);
};

// The header of an open object, fully checked as a record; its size is not.
StatusOr<ObjectHeader> ReadObjectHeader(ObjectReader* reader);

}  // namespace baton::tier_internal

#endif  // BATON_TIER_TIER_IMPL_H_
