// Payloads of the hand-off's frames (docs/format/wire.md). Decoders are total: bytes from a peer
// give a value or an error with a reason, never a crash, an over-read, or an allocation that the
// bytes received do not justify. Thread rule: free functions.
#ifndef BATON_HANDOFF_WIRE_H_
#define BATON_HANDOFF_WIRE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "connector/connector.h"
#include "handoff/ask.h"
#include "handoff/checks.h"
#include "handoff/verify.h"
#include "identity/seal.h"

namespace baton {

// What a node says of itself. `digest_probe` is a digest of fixed bytes with the node's algorithm
// and key: equal exactly if digests of the two can be compared.
struct Hello {
  uint32_t protocol = 0;
  NodeId node;
  Epoch epoch;
  Sha256 model;
  Sha256 layout;
  uint8_t algorithm = 0;
  Digest128 digest_probe;
  std::string layout_summary;  // for the message only: "12 state parts, 1 KV groups, ..."
  friend bool operator==(const Hello&, const Hello&) = default;
};

Hello HelloOf(const LocalIdentity& self);
Frame EncodeHello(const Hello& hello);
StatusOr<Hello> DecodeHello(const Frame& frame);
// Ok if the two can hand over to each other; else kProtocolVersion, kDigestAlgorithm,
// kLayoutMismatch or kModelMismatch with both values.
Status MatchHello(const Hello& mine, const Hello& theirs);

Frame EncodeAsk(const Ask& ask);
// kMalformed beside what the header says: boundary off the grid or 0, tokens not `boundary` many.
StatusOr<Ask> DecodeAsk(const Frame& frame);

struct OfferPart {
  PartKey key;
  ExtentAddress address;
  friend bool operator==(const OfferPart& a, const OfferPart& b) {
    return a.key == b.key && a.address.region == b.address.region &&
           a.address.offset == b.address.offset && a.address.bytes == b.address.bytes;
  }
};

struct Offer {
  BundleClaim claim;      // attempt echoed, epoch, state-id, seal, block digests
  uint64_t lease_ms = 0;  // how long the source keeps the parts for this peer; a duration
  std::vector<OfferPart> parts;
  // Tokens of the bundle the source did not compute for this ask. For usage counters only.
  uint64_t reused_tokens = 0;
};

// Checksum at the end of an offer's payload, over everything before it.
uint64_t OfferHash(ByteSpan body);

Frame EncodeOffer(const Offer& offer);
// kMalformed, kDigestAlgorithm or kProtocolVersion as DecodeSeal.
StatusOr<Offer> DecodeOffer(const Frame& frame);

// Blocks that are sealed while the rest of their bundle is still computed. Only an offer: they
// count if the bundle's offer names the same state-id and its digests are those of the landed
// bytes.
struct BlockOffer {
  struct Block {
    PartKey key;
    Digest128 digest;
    ExtentAddress address;
  };
  Attempt attempt;
  Epoch epoch;
  StateId state_id;  // that the bundle will have; never zero
  uint64_t lease_ms = 0;
  std::vector<Block> blocks;  // 1..kOfferedBlocksMax
};
inline constexpr size_t kOfferedBlocksMax = 65536;
Frame EncodeBlocks(const BlockOffer& offer);
// kMalformed.
StatusOr<BlockOffer> DecodeBlocks(const Frame& frame);

Frame EncodeJoin(const JoinKey& key);
// kMalformed, also for the zero key.
StatusOr<JoinKey> DecodeJoin(const Frame& frame);

Frame ReleaseFrame();
Frame NextFrame();
Frame JoinedFrame();

}  // namespace baton

#endif  // BATON_HANDOFF_WIRE_H_
