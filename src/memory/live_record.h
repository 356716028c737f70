// What a live slot really holds: the rolling prefix hash and boundary, kept beside the slot and
// advanced in the same call that advances the state. Sealing compares it with what the request
// claims, so a source does not lie by accident. It cannot see a kernel that wrote the wrong slot;
// replay audit does.
//
// A layout without state has no slot; the engine then keeps a LiveRecord beside the block table.
// Thread rule: a LiveRecord belongs to one thread at a time; LiveTable is thread-safe.
#ifndef BATON_MEMORY_LIVE_RECORD_H_
#define BATON_MEMORY_LIVE_RECORD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/content_identity.h"
#include "identity/prefix_chain.h"
#include "memory/handle.h"

namespace baton {

class LiveRecord {
 public:
  // A new sequence at boundary 0.
  explicit LiveRecord(const IdentityBase& base) : base_(base), chain_(base.scope) {}
  // A sequence that continues a verified or copied bundle at chain.boundary(). The chain is the
  // receiver's own, derived from its tokens, and rooted in base.scope.
  LiveRecord(const IdentityBase& base, PrefixChain chain);

  // The state has absorbed `tokens`. Call it where the step that wrote the state returns.
  void Advance(std::span<const TokenId> tokens) { chain_.Append(tokens); }
  // A step failed half way: nobody knows what the slot holds. Every claim fails from now on.
  void Invalidate() { valid_ = false; }

  bool valid() const { return valid_; }
  uint64_t boundary() const { return chain_.boundary(); }
  const IdentityBase& base() const { return base_; }
  const PrefixChain& chain() const { return chain_; }
  ContentIdentity Identity() const { return base_.At(chain_); }
  // Identity at the end of full block `block`, for that block's digest.
  ContentIdentity BlockIdentity(size_t block) const { return base_.AtBlockEnd(chain_, block); }

  // Ok if `claim` is what the slot holds; else the first differing field (MatchIdentity), or
  // kIdentityMismatch after Invalidate.
  Status ClaimMatches(const ContentIdentity& claim) const;

 private:
  IdentityBase base_;
  PrefixChain chain_;
  bool valid_ = true;
};

// Records by slot handle. A handle of a past life finds nothing: kStaleHandle.
class LiveTable {
 public:
  // The slot has become LIVE. kFailedPrecondition if this life of the slot already has a record; a
  // record of an earlier life is replaced.
  Status Start(SlotHandle slot, LiveRecord record) BATON_EXCLUDES(mu_);
  Status Advance(SlotHandle slot, std::span<const TokenId> tokens) BATON_EXCLUDES(mu_);
  Status Invalidate(SlotHandle slot) BATON_EXCLUDES(mu_);
  Status ClaimMatches(SlotHandle slot, const ContentIdentity& claim) const BATON_EXCLUDES(mu_);
  StatusOr<LiveRecord> Get(SlotHandle slot) const BATON_EXCLUDES(mu_);
  // The slot was sealed or freed.
  Status Drop(SlotHandle slot) BATON_EXCLUDES(mu_);
  size_t size() const BATON_EXCLUDES(mu_);

 private:
  struct Key {
    uint32_t pool;
    uint32_t index;
    friend bool operator==(const Key&, const Key&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.pool, k.index);
    }
  };
  struct Entry {
    uint64_t generation;
    LiveRecord record;
  };
  StatusOr<Entry*> Find(SlotHandle slot) BATON_REQUIRES(mu_);

  mutable Mutex mu_;
  absl::flat_hash_map<Key, Entry> entries_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_MEMORY_LIVE_RECORD_H_
