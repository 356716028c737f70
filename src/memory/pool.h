// SlotPool and BlockPool: units of memory with a checked life cycle, addressed by virtual id and
// generation, translated to bytes only under a lease. The table is drawn in pool_core.h.
//
// A slot holds every recurrent layer's state of one sequence and is never shared. A block holds
// kBlockTokens tokens of one KV group; SEALED blocks are shared by reference count, and
// copy-on-write (Reserve + CopyInto) is the caller's. There is one BlockPool per KV group.
//
// Errors: a handle of another pool, of a past life or out of range is Reason::kStaleHandle; an edge
// that the table does not have is kFailedPrecondition and names from and to; a full pool is
// Reason::kNoCapacity. No call clamps, defaults or guesses.
//
// Thread rule: thread-safe. Leases must not outlive their pool.
#ifndef BATON_MEMORY_POOL_H_
#define BATON_MEMORY_POOL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "memory/handle.h"
#include "memory/pool_core.h"

namespace baton {

template <class Kind>
class UnitPool;
class ElasticMemory;

// A move-only pin on one unit: while it is held the unit is neither moved nor reused, and the span
// stays valid even if the unit is freed meanwhile (its handle is stale at once, its memory is not
// given out). Destroying the lease ends it. May be destroyed on any thread.
template <class Kind>
class [[nodiscard]] UnitLease {
 public:
  UnitLease() = default;  // holds nothing
  UnitLease(UnitLease&& o) noexcept
      : core_(std::exchange(o.core_, nullptr)), pin_(std::move(o.pin_)) {}
  UnitLease& operator=(UnitLease&& o) noexcept {
    if (this != &o) {
      Release();
      core_ = std::exchange(o.core_, nullptr);
      pin_ = std::move(o.pin_);
    }
    return *this;
  }
  ~UnitLease() { Release(); }

  bool held() const { return core_ != nullptr; }
  // The unit's bytes; writing is allowed for kCompute on a LIVE unit and for kLand.
  MutableByteSpan bytes() const { return held() ? pin_.bytes : MutableByteSpan(); }
  // Where they start in the arena: what a shared-memory connector offers.
  uint64_t arena_offset() const { return pin_.offset; }
  const PlacementStamp& stamp() const { return pin_.stamp; }
  UnitHandle<Kind> handle() const {
    return {pin_.stamp.pool, pin_.stamp.index, pin_.stamp.generation};
  }
  void Release() {
    if (core_ != nullptr) std::exchange(core_, nullptr)->UnpinAll(std::span(&pin_, 1));
  }

 private:
  friend class UnitPool<Kind>;
  memory_internal::PoolCore* core_ = nullptr;
  memory_internal::Pin pin_;
};

// Many leases taken and ended under one lock each: what a running step holds.
template <class Kind>
class [[nodiscard]] UnitLeaseSet {
 public:
  UnitLeaseSet() = default;
  UnitLeaseSet(UnitLeaseSet&& o) noexcept
      : core_(std::exchange(o.core_, nullptr)),
        pins_(std::move(o.pins_)),
        pointers_(std::move(o.pointers_)) {
    o.pins_.clear();
    o.pointers_.clear();
  }
  UnitLeaseSet& operator=(UnitLeaseSet&& o) noexcept {
    if (this != &o) {
      Release();
      core_ = std::exchange(o.core_, nullptr);
      pins_ = std::move(o.pins_);
      pointers_ = std::move(o.pointers_);
    }
    return *this;
  }
  ~UnitLeaseSet() { Release(); }

  size_t size() const { return pins_.size(); }
  MutableByteSpan bytes(size_t i) const { return {pointers_[i], core_->stride()}; }
  uint64_t arena_offset(size_t i) const {
    return static_cast<uint64_t>(pointers_[i] - core_->options().arena->data());
  }
  // Base of each unit in the order asked for: the form model::BatchItem::blocks takes.
  std::span<std::byte* const> pointers() const { return pointers_; }
  void Release() {
    if (core_ != nullptr) std::exchange(core_, nullptr)->UnpinMany(pins_);
    pins_.clear();
    pointers_.clear();
  }

 private:
  friend class UnitPool<Kind>;
  memory_internal::PoolCore* core_ = nullptr;
  std::vector<memory_internal::SlimPin> pins_;
  std::vector<std::byte*> pointers_;
};

template <class Kind>
class UnitPool {
 public:
  using Handle = UnitHandle<Kind>;
  using Lease = UnitLease<Kind>;
  using LeaseSet = UnitLeaseSet<Kind>;
  UnitPool(const UnitPool&) = delete;
  UnitPool& operator=(const UnitPool&) = delete;

  // Carves units * unit_bytes out of the arena. kInvalidArgument on a zero or overflowing size,
  // kResourceExhausted if the arena has no room.
  static StatusOr<std::unique_ptr<UnitPool>> Create(const PoolOptions& options) {
    auto core = memory_internal::PoolCore::Create(options, Kind::kName, Kind::kComputeReadsSealed);
    if (!core.ok()) return core.status();
    return std::unique_ptr<UnitPool>(new UnitPool(std::move(*core)));
  }

  // FREE -> RESERVED, filled as asked. kNoCapacity if no unit is free.
  StatusOr<Handle> Reserve(const ReserveOptions& options) {
    auto ref = core_->Reserve(options);
    if (!ref.ok()) return ref.status();
    return Handle{ref->pool, ref->index, ref->generation};
  }
  // RESERVED (zero-filled or copied into) or VERIFIED -> LIVE.
  Status Activate(Handle h) { return core_->Activate(Ref(h)); }
  // RESERVED -> LANDING, stamped with the receiver's attempt. kNoCapacity at the quarantine cap.
  Status Land(Handle h, Attempt attempt) { return core_->Land(Ref(h), attempt); }
  // LANDING -> LANDED: every writer has reported all its bytes. Fails while a lease is held.
  Status Landed(Handle h) { return core_->Landed(Ref(h)); }
  // LANDED -> VERIFIED: called by the verification routine only.
  Status Verified(Handle h) { return core_->Verified(Ref(h)); }
  // LIVE, VERIFIED or RESERVED (copied into) -> SEALED, with one reference. Fails while a LIVE unit
  // is leased for compute: a running step could still change it. kInternal if a guard band was
  // overwritten.
  Status Seal(Handle h) { return core_->Seal(Ref(h)); }
  // RESERVED, LIVE, LANDED, VERIFIED or SEALED (with one reference) -> FREE. The handle is stale at
  // once; if leased, the memory is reused only after the last lease ends. A LANDING unit cannot be
  // freed, since a writer may still touch it: Quarantine it. kInternal names an overwritten guard
  // band; the unit is FREE all the same.
  Status Free(Handle h) { return core_->Free(Ref(h)); }
  // LANDING -> QUARANTINED. The handle stays good for ProvenQuiet and nothing else.
  Status Quarantine(Handle h) { return core_->Quarantine(Ref(h)); }
  // QUARANTINED -> FREE: no writer that ever held the range can touch it. Fails while leased.
  Status ProvenQuiet(Handle h) { return core_->ProvenQuiet(Ref(h)); }

  // One more / one less holder of a SEALED block; the last one frees it.
  Status AddReference(Handle h)
    requires(Kind::kComputeReadsSealed)
  {
    return core_->AddReference(Ref(h));
  }
  Status DropReference(Handle h)
    requires(Kind::kComputeReadsSealed)
  {
    return core_->DropReference(Ref(h));
  }

  // Copies a LIVE or SEALED unit into a RESERVED one of this pool (fork, checkpoint,
  // copy-on-write): source and destination digests must agree, else kDigestMismatch. Then Activate
  // or Seal the destination. The source may be leased for reading; a step must not be writing it.
  Status CopyInto(Handle src, Handle dst) { return core_->CopyInto(Ref(src), Ref(dst)); }

  // Moves an unleased LIVE or SEALED unit to another free physical place; kFailedPrecondition if
  // leased or in another state, kNoCapacity if none is free. Handles stay valid. The copy's digest
  // is compared before the table flips. A Lease asked for meanwhile waits for the copy.
  Status Move(Handle h) { return core_->Move(Ref(h)); }
  // One step of compaction: moves the movable unit with the highest physical index to the lowest
  // free one. False if nothing is left to gain.
  StatusOr<bool> CompactOne() { return core_->CompactOne(); }

  StatusOr<Lease> Acquire(Handle h, LeaseFor purpose) {
    Lease lease;
    BATON_RETURN_IF_ERROR(core_->PinOne(Ref(h), purpose, &lease.pin_));
    lease.core_ = core_.get();
    return lease;
  }
  // All of them or none.
  StatusOr<LeaseSet> AcquireAll(std::span<const Handle> handles, LeaseFor purpose) {
    std::vector<memory_internal::UnitRef> refs;
    refs.reserve(handles.size());
    for (const Handle& h : handles) refs.push_back(Ref(h));
    LeaseSet set;
    BATON_RETURN_IF_ERROR(core_->PinMany(refs, purpose, &set.pins_, &set.pointers_));
    set.core_ = core_.get();
    return set;
  }

  StatusOr<UnitState> StateOf(Handle h) const { return core_->StateOf(Ref(h)); }
  StatusOr<uint32_t> ReferencesOf(Handle h) const { return core_->ReferencesOf(Ref(h)); }
  StatusOr<PlacementStamp> StampOf(Handle h) const { return core_->StampOf(Ref(h)); }
  // Ok if the stamp is exactly the unit's present one; kEpochMismatch, kAttemptMismatch or
  // kStaleHandle otherwise. The source checks it when translating and when releasing.
  Status CheckStamp(const PlacementStamp& stamp) const { return core_->CheckStamp(stamp); }
  PoolStats Stats() const { return core_->Stats(); }
  // Bytes of one unit, rounded up to the alignment.
  uint64_t unit_bytes() const { return core_->stride(); }
  uint32_t pool_id() const { return core_->options().pool_id; }
  // For tests: kInternal naming the first broken invariant.
  Status CheckInvariants() const { return core_->CheckInvariants(); }

 private:
  friend class ElasticMemory;
  explicit UnitPool(std::unique_ptr<memory_internal::PoolCore> core) : core_(std::move(core)) {}
  static memory_internal::UnitRef Ref(Handle h) { return {h.pool, h.index, h.generation}; }
  std::unique_ptr<memory_internal::PoolCore> core_;
};

using SlotPool = UnitPool<SlotKind>;
using BlockPool = UnitPool<BlockKind>;
using StateLease = UnitLease<SlotKind>;
using BlockLease = UnitLease<BlockKind>;
using BlockLeaseSet = UnitLeaseSet<BlockKind>;

}  // namespace baton

#endif  // BATON_MEMORY_POOL_H_
