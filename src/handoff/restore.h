// A bundle that this process holds elsewhere (parked, or in a tier) goes back into pool memory: the
// receiving half of a hand-off whose peer is a copy. Same life cycle, same verification; whole or
// nothing. Thread rule: free function; blocks as long as the source does.
#ifndef BATON_HANDOFF_RESTORE_H_
#define BATON_HANDOFF_RESTORE_H_

#include <functional>
#include <vector>

#include "handoff/client.h"
#include "handoff/parts.h"

namespace baton {

// Where the bundle goes, while the units are LANDING and leased to the restore alone.
struct RestorePlace {
  std::function<MutableByteSpan(const BundlePart&)> bytes;  // exactly part.bytes
  // Ok if each unit is still the life that the restore began with.
  std::function<Status()> check_handles;
};

// Fills every part and proves by VerifyBundle, over the bytes where they lie, that they are the
// bundle that the caller derived from its own tokens; notes seal, digests and bytes in `report`.
// Nothing writes there once it has returned.
using FillVerified = std::function<Status(const RestorePlace& place, PullReport* report)>;

// As HandoffClient::Pull: on ok the units of `request` are VERIFIED, else every one is FREE.
// Uses request.ask.expected.boundary and .attempt, slot and blocks. Errors: the filler's.
PullResult RestoreBundle(const BundlePools& pools,
                         const Layout& layout,
                         const PullRequest& request,
                         const FillVerified& fill);

}  // namespace baton

#endif  // BATON_HANDOFF_RESTORE_H_
