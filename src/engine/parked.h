// A preempted sequence's bundle at rest in host memory outside the pools: the one bundle that may
// lie off the grid, and that goes back into the same process only. It is sealed like any other and
// verified like any other when it comes back; it owns bytes, no units.
//
// Thread rule: one thread. The budget outlives every bundle charged to it.
#ifndef BATON_ENGINE_PARKED_H_
#define BATON_ENGINE_PARKED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "handoff/parts.h"
#include "handoff/verify.h"
#include "identity/seal.h"

namespace baton::engine {

// Bytes of parked bundles together.
struct ParkBudget {
  uint64_t max = 0;
  uint64_t used = 0;
};

class ParkedBundle {
 public:
  // Copies the parts of the sealed bundle out of memory: `bytes_of` gives each one's bytes under a
  // lease, at least part.bytes of them. kNoCapacity, and nothing is copied, beyond the budget.
  static StatusOr<std::unique_ptr<ParkedBundle>> Take(
      const Layout& layout,
      Seal seal,
      std::vector<std::vector<Digest128>> block_digests,
      const std::function<ByteSpan(const BundlePart&)>& bytes_of,
      ParkBudget* budget);
  ~ParkedBundle();
  ParkedBundle(const ParkedBundle&) = delete;
  ParkedBundle& operator=(const ParkedBundle&) = delete;

  const Seal& seal() const { return seal_; }
  uint64_t boundary() const { return seal_.identity.boundary; }
  uint64_t bytes() const { return size_; }
  const std::vector<std::vector<Digest128>>& block_digests() const { return block_digests_; }

  // What a verification compares with the receiver's own derivation.
  BundleClaim Claim() const;
  // Copies each part where `place` says and lists them; a part that this bundle has not is left
  // out, so that verification finds it missing.
  std::vector<LandedPart> CopyTo(const Layout& layout,
                                 const std::function<MutableByteSpan(const BundlePart&)>& place);

  // What lies behind the slot off the grid (NodeMemoryOptions::slot_tail_bytes), no part of the
  // layout and so digested by itself. Charged to the budget; kNoCapacity beyond it.
  Status KeepTail(ByteSpan tail, const Digest128& digest);
  ByteSpan tail() const { return tail_; }
  const Digest128& tail_digest() const { return tail_digest_; }

  // For fault injection: the part's bytes here; empty if it has none.
  MutableByteSpan BytesForTesting(PartKey key) { return BytesOf(key); }
  void DropPartForTesting(PartKey key);
  MutableByteSpan TailForTesting() { return tail_; }

 private:
  MutableByteSpan BytesOf(PartKey key);
  struct Piece {
    PartKey key;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  ParkedBundle(Seal seal, std::vector<std::vector<Digest128>> digests, ParkBudget* budget);

  Seal seal_;
  std::vector<std::vector<Digest128>> block_digests_;
  std::vector<Piece> pieces_;
  std::unique_ptr<std::byte[]> data_;
  uint64_t size_ = 0;
  std::vector<std::byte> tail_;
  Digest128 tail_digest_;
  ParkBudget* budget_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_PARKED_H_
