// The receiver's units of one pull and how far each has come: RESERVED -> LANDING -> LANDED ->
// VERIFIED, or back to FREE. It owns the obligation that no unit is left in between: Abort, or the
// destructor, gives everything back. Internal to the client.
// Thread rule: one thread.
#ifndef BATON_HANDOFF_DESTINATION_H_
#define BATON_HANDOFF_DESTINATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "handoff/client.h"
#include "handoff/parts.h"
#include "identity/layout.h"
#include "memory/pool.h"

namespace baton {

class Destination {
 public:
  // All referenced objects outlive this.
  Destination(const BundlePools& pools, const Layout& layout, const PullRequest& request);
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // InvalidArgument if handles and pools do not have the shape of (layout, boundary).
  Status CheckShape() const;
  // RESERVED -> LANDING for all, and leases for the connector to write through.
  Status Land();
  // Where a part goes; between Land and Landed, and for reading between Landed and Commit.
  MutableByteSpan BytesOf(const BundlePart& part) const;
  // Ends the writing leases; LANDING -> LANDED for all; leases for verification.
  Status Landed();
  // Ok if each handle still names the life that Land saw. kStaleHandle.
  Status CheckHandles() const;
  // LANDED -> VERIFIED for all, or none stays VERIFIED.
  Status Commit();
  // Every unit to FREE; those of a LANDING stage to QUARANTINED unless `quiet`. Returns how many
  // were quarantined. After Commit it does nothing.
  uint64_t Abort(bool quiet);

 private:
  enum class Stage { kReserved, kLanding, kLanded, kVerified };
  template <class Kind>
  struct Unit {
    UnitPool<Kind>* pool;
    UnitHandle<Kind> handle;
    Stage stage = Stage::kReserved;
    PlacementStamp stamp;  // as Land saw it
  };

  template <class Fn>
  Status ForEach(const Fn& fn);
  Status Lease(LeaseFor purpose);
  void DropLeases();

  const BundlePools& pools_;
  const Layout& layout_;
  const PullRequest& request_;
  std::vector<std::vector<Unit<BlockKind>>> blocks_;
  std::optional<Unit<SlotKind>> slot_;
  std::vector<BlockLeaseSet> block_leases_;
  StateLease slot_lease_;
  bool done_ = false;
};

}  // namespace baton

#endif  // BATON_HANDOFF_DESTINATION_H_
