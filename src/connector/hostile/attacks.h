// Ready-made lies for a HostileConnector, one function per fault of a receiver's transport. Those
// on bytes act after the honest connector has landed everything, and report full success.
// Thread rule: the attacks returned are immutable.
#ifndef BATON_CONNECTOR_HOSTILE_ATTACKS_H_
#define BATON_CONNECTOR_HOSTILE_ATTACKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "connector/hostile/hostile_connector.h"
#include "handoff/wire.h"

namespace baton {

// Which parts an attack touches; empty: all.
using PartFilter = std::function<bool(PartKey)>;
inline bool IsStatePart(PartKey key) { return key.value >> 32 == 0; }

// F01, F03, F19: lands the captured payload instead of the asked one, under the asked metadata.
Attack SubstitutePayload(std::shared_ptr<const CapturedPull> captured, PartFilter filter = {});
// F06: exchanges the landed bytes of two parts of equal size.
Attack SwapParts(PartKey a, PartKey b);
// F07: one part is zeros, as if its component had never been sent.
Attack ZeroPart(PartKey part);
// F07: one part is missing from the offer.
Attack DropOfferedPart(PartKey part);
// F08: moves nothing. Reports every byte landed, or none, and success either way.
Attack MoveNothing(bool report_landed);
// F09: reports completion when only the first half of a part has arrived.
Attack TearPart(PartKey part);
// F10: flips `mask` in `bytes` bytes of a part from `offset` on (clipped to the part): 1 byte with
// mask 1 is a bit, 64 a cache line, 4096 a page.
Attack FlipBytes(PartKey part, uint64_t offset, uint64_t bytes, uint8_t mask);
// F29: writes a quiet NaN (f32) over the first element of a part.
Attack InjectNaN(PartKey part);
// Says that it cannot prove quiet.
Attack NeverQuiet();

// F10: flips one bit of the offer as it comes in. `fix_checksum` hides it from the offer's own
// checksum, so that what lies deeper has to notice.
Attack FlipOfferBit(uint64_t bit, bool fix_checksum);
// F10: flips one bit of the seal inside the offer, hidden from the offer's checksum.
Attack FlipSealBit(uint64_t bit);
// Rewrites the offer and all its checksums: a peer that lies consistently (F19, F21, F28).
Attack RewriteOffer(std::function<void(Offer*)> change);
// F19, F21: replays the offer of an earlier hand-off; `change` may adapt it.
Attack ReplayOffer(std::shared_ptr<const CapturedPull> captured,
                   std::function<void(Offer*)> change = {});
// F30: overwrites raw bytes of the offer at `offset`, checksum fixed.
Attack PatchOffer(uint64_t offset, std::vector<uint8_t> bytes);

// Runs `act` at one point of the hand-off: to cancel, to let a lease run out, to restart a peer.
Attack OnOffer(std::function<void()> act);
// `ignore_deadline`: then pulls late, as a connector would that keeps no time (F04).
Attack BeforePull(std::function<void()> act, bool ignore_deadline = false);
Attack AfterPull(std::function<void()> act);

// Byte position of the seal's length field in an offer's payload.
inline constexpr uint64_t kOfferSealLengthAt = 8 + 16 + 16 + 8;

}  // namespace baton

#endif  // BATON_CONNECTOR_HOSTILE_ATTACKS_H_
