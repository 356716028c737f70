// The receiver's units of one pull and how far each has come: RESERVED -> LANDING -> LANDED ->
// VERIFIED, or back to FREE. It owns the obligation that no unit is left in between: Abort, or the
// destructor, gives everything back. A unit whose writer failed can be replaced by a fresh one.
// Internal to the client. Thread rule: one thread.
#ifndef BATON_HANDOFF_DESTINATION_H_
#define BATON_HANDOFF_DESTINATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "handoff/client.h"
#include "handoff/parts.h"
#include "handoff/quarantine.h"
#include "identity/layout.h"
#include "memory/pool.h"

namespace baton {

namespace destination_internal {

enum class Stage { kReserved, kLanding, kLanded, kVerified };
template <class Kind>
struct Unit {
  UnitPool<Kind>* pool;
  UnitHandle<Kind> handle;
  Stage stage = Stage::kReserved;
  PlacementStamp stamp;  // as Land saw it
  UnitLease<Kind> lease;
  bool suspect = false;
  std::string connector;  // that may still write
  std::shared_ptr<WritersLeft> writers;
};

}  // namespace destination_internal

class Destination {
 public:
  // All referenced objects outlive this.
  Destination(const BundlePools& pools,
              const Layout& layout,
              const PullRequest& request,
              Quarantine* quarantine);
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // InvalidArgument if handles and pools do not have the shape of (layout, boundary).
  Status CheckShape() const;
  // RESERVED -> LANDING for all, and leases for the connector to write through. Repeatable.
  Status Land();
  // Where a part goes; between Land and Landed, and for reading between Landed and Commit.
  MutableByteSpan BytesOf(const BundlePart& part) const;
  // The part's unit was given to a writer that may still touch it. It must be renewed, or the pull
  // given up: until then Landed refuses.
  void Suspect(const BundlePart& part,
               const std::string& connector,
               std::shared_ptr<WritersLeft> writers);
  // For tests with Check::kFreshMemory off: the same memory again.
  void Trust(const BundlePart& part);
  // Between Land and Landed: other LANDING units in place of the parts', none of them one of the
  // old. Those are free then, or quarantined if suspect. kNoCapacity, and nothing has changed, if
  // there are not enough. Parts that share a unit may all be named.
  Status Renew(const std::vector<BundlePart>& parts);
  // Ends the writing leases; LANDING -> LANDED for all; leases for verification.
  Status Landed();
  // Ok if each handle still names the life that Land saw. kStaleHandle.
  Status CheckHandles() const;
  // LANDED -> VERIFIED for all, or none stays VERIFIED.
  Status Commit();
  // Every unit to FREE; suspect ones to QUARANTINED. After Commit it does nothing.
  void Abort();

  // How many units went into quarantine.
  uint64_t quarantined() const { return quarantined_; }
  // The units as they are now.
  std::vector<std::vector<BlockHandle>> blocks() const;
  std::optional<SlotHandle> slot() const;

 private:
  using Stage = destination_internal::Stage;
  template <class Kind>
  using Unit = destination_internal::Unit<Kind>;

  template <class Fn>
  Status ForEach(const Fn& fn);
  template <class Fn>
  auto WithUnit(const BundlePart& part, const Fn& fn);
  template <class Kind>
  Status LandUnit(Unit<Kind>* unit);
  template <class Kind>
  StatusOr<UnitHandle<Kind>> ReserveFor(const Unit<Kind>& unit);
  template <class Kind>
  Status Replace(Unit<Kind>* unit, UnitHandle<Kind> fresh);
  template <class Kind>
  void GiveBack(Unit<Kind>* unit);

  const BundlePools& pools_;
  const Layout& layout_;
  const PullRequest& request_;
  Quarantine* const quarantine_;
  std::vector<std::vector<Unit<BlockKind>>> blocks_;
  std::optional<Unit<SlotKind>> slot_;
  bool landing_ = false;
  uint64_t quarantined_ = 0;
  bool done_ = false;
};

}  // namespace baton

#endif  // BATON_HANDOFF_DESTINATION_H_
