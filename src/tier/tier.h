// A tier: sealed bundles at rest in host memory or on disk, found by content identity. A restore is
// a hand-off whose peer is a disk: it is verified by VerifyClaim and VerifyBundle against what the
// caller derived from its own tokens, over the bytes where they landed, and adopts nothing of the
// object. KV blocks shared by the turns of a session are stored once, in segments
// (docs/format/state_object.md).
//
// It owns no pool memory, changes no life-cycle state and starts no thread: Put and Restore block
// on the medium and are called from the caller's background threads; lookups answer from memory in
// microseconds. It does not decide what is worth keeping, only what goes first when it is full.
//
// Thread rule: thread-safe. No lock is held during I/O or while a caller's function runs.
#ifndef BATON_TIER_TIER_H_
#define BATON_TIER_TIER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/status.h"
#include "handoff/checks.h"
#include "handoff/parts.h"
#include "handoff/verify.h"
#include "identity/content_identity.h"
#include "identity/digest.h"
#include "identity/layout.h"
#include "identity/prefix_chain.h"
#include "identity/seal.h"
#include "memory/device.h"
#include "tier/object_store.h"
#include "tier/state_object.h"

namespace baton {

// Bytes of one part under a lease that lives as long as `pin`. A null pin: the caller keeps them in
// place until Put has returned.
struct PinnedBytes {
  ByteSpan bytes;  // exactly the part's extent
  std::shared_ptr<const void> pin = nullptr;
};

// A sealed bundle somewhere in pool memory. What it points to outlives the Put.
struct BundleSource {
  const Seal* seal = nullptr;
  // Of the sealed history, at least to the boundary.
  const PrefixChain* chain = nullptr;
  // Per group, one digest per block of the bundle, ascending.
  const std::vector<std::vector<Digest128>>* block_digests = nullptr;
  // Called once per part that must be written, on the thread of Put. An error ends the Put.
  std::function<StatusOr<PinnedBytes>(const BundlePart&)> bytes;
};

// Where one part of a restored bundle goes: exactly part.bytes long, in memory that the caller
// holds (LANDING) and nobody else touches.
struct RestoreTarget {
  BundlePart part;
  MutableByteSpan bytes;
};

struct RestoreRequest {
  // Derived from the caller's own tokens; attempt and epoch stay unset.
  Expectation expected;
  // One per part of BundleParts(layout, boundary), in that order.
  std::vector<RestoreTarget> targets;
  // Ok if every destination is still this caller's; called once, after all bytes have landed. May
  // be null where there are no handles.
  std::function<Status()> check_handles = nullptr;
};

struct RestoredBundle {
  // The sealed one; after a restore from fewer bits a new one over what landed, made here, whose
  // parent is the sealed one.
  Seal seal;
  std::vector<std::vector<Digest128>> block_digests;  // per group, ascending
  uint64_t bytes = 0;                                 // landed
  RestEncoding encoding = RestEncoding::kSame;        // other than kSame: not bit-equal
};

// A bundle at rest, as an eviction policy sees it.
struct TierEntry {
  ContentIdentity identity;
  StateId state_id;
  uint64_t own_bytes = 0;     // of the bundle object
  uint64_t shared_bytes = 0;  // of its segments, each divided by the bundles that need it
  uint64_t last_use = 0;      // larger is more recent; counts puts and restores of this tier
  uint64_t uses = 0;          // restores
};

struct TierOptions {
  Sha256 model;                    // this process's; other objects are not indexed
  const Layout* layout = nullptr;  // outlives the tier, as do digester and device
  const Digester* digester = nullptr;
  const Device* device = nullptr;
  uint64_t budget_bytes = 0;  // objects with headers and padding
  // The entry with the lowest score goes first. Null: least recently used.
  std::function<double(const TierEntry&)> score = nullptr;
  // How F32 state parts of new objects rest; each object says its own. Anything but kSame gives up
  // bit-equality: what is restored is close to what was sealed, and sealed anew by `node`, `epoch`.
  RestEncoding rest_encoding = RestEncoding::kSame;
  NodeId node;
  Epoch epoch;
  Checks checks;
};

struct TierStats {
  uint64_t budget_bytes = 0;
  uint64_t bytes = 0;  // objects counted against the budget
  uint64_t bundles = 0, segments = 0;
  uint64_t puts = 0, put_bytes = 0;          // written
  uint64_t puts_present = 0;                 // bundle was there already
  uint64_t segments_shared = 0;              // needed by a Put and there already
  uint64_t puts_no_room = 0;                 // medium or budget full
  uint64_t puts_refused = 0;                 // what was to be put does not verify
  uint64_t puts_failed = 0;                  // the medium failed, or cancelled
  uint64_t restores = 0, restore_bytes = 0;  // verified
  uint64_t misses = 0;                       // Restore of what is not there
  uint64_t restores_failed = 0;              // the medium failed, or cancelled
  std::map<Reason, uint64_t> rejects;        // objects that did not verify; removed
  // Largest relative error (root mean square) that fewer bits made in the state of one bundle put.
  double encoding_error_max = 0;
  uint64_t evictions = 0;  // bundles
  // Found at start.
  uint64_t found_bundles = 0, found_segments = 0;
  uint64_t found_bad = 0;         // damaged: left alone
  uint64_t found_foreign = 0;     // not ours: left alone
  uint64_t found_other = 0;       // of another model, layout or digest: kept, first to go
  uint64_t found_newer = 0;       // of a version this build does not read: kept, first to go
  uint64_t found_incomplete = 0;  // bundles without a segment, segments without a bundle: removed
};

namespace tier_internal {
class TierImpl;
}

class Tier {
 public:
  // Takes inventory of the store. InvalidArgument without layout, digester or device, or with no
  // budget.
  static StatusOr<std::unique_ptr<Tier>> Open(TierOptions options,
                                              std::unique_ptr<ObjectStore> store);
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // "host", "disk".
  std::string_view name() const;

  // Copies the bundle in. Every byte written is digested as it is copied and compared with the
  // seal before the object counts as present: what does not verify is never stored. Ok also if the
  // bundle is there already. Errors: InvalidArgument (off the grid, boundary 0), the rejection of
  // seal or bytes, kBlockDigestMismatch if a segment of the same history is there with other
  // digests, kNoCapacity if it cannot fit, kCancelled, kPeerUnavailable if the medium fails.
  Status Put(const BundleSource& source, const CancelToken& cancel = {});

  // Whether a bundle of exactly this identity is at rest here.
  bool Contains(const ContentIdentity& identity) const;
  // The deepest boundary <= max_boundary of a bundle whose history is a prefix of the tokens behind
  // `block_hashes` (PrefixChain::BlockHashes, rooted in base.scope). A hint: Restore decides.
  std::optional<uint64_t> FindDeepest(const IdentityBase& base,
                                      std::span<const Sha256> block_hashes,
                                      uint64_t max_boundary) const;

  // Fills the targets and verifies them. On an error their bytes are worth nothing and the caller
  // gives the memory back. NotFound: not here, not an error to log. A rejection (ReasonOf): the
  // object was bad, has been removed, counted and logged; compute from tokens. Reasons of the
  // caller's own (kStaleHandle, kCancelled) and of the medium (kPeerUnavailable) remove nothing.
  StatusOr<RestoredBundle> Restore(const RestoreRequest& request, const CancelToken& cancel = {});

  // Drops a bundle and the segments that only it needed, say after a failed audit. False if it was
  // not there.
  bool Remove(const ContentIdentity& identity);
  // Drops every bundle whose state-id or parent is `id`, and so on: the descendants of a checkpoint
  // that has been revoked. How many.
  size_t Revoke(const StateId& id);
  // Evicts until at most `bytes` are used.
  void EvictTo(uint64_t bytes);

  std::vector<TierEntry> Entries() const;
  TierStats Stats() const;
  uint64_t budget_bytes() const;
  // OK, or what is inconsistent in the index; for tests.
  Status CheckInvariants() const;

 private:
  explicit Tier(std::unique_ptr<tier_internal::TierImpl> impl);
  const std::unique_ptr<tier_internal::TierImpl> impl_;
};

}  // namespace baton

#endif  // BATON_TIER_TIER_H_
