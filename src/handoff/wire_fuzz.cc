// Any bytes as any frame of the hand-off, and any bytes under checksums that hold: every decoder
// answers or refuses with a reason, and what it accepts encodes to the same bytes again.
#include <cstring>

#include "connector/frame.h"
#include "handoff/wire.h"

namespace baton {
namespace {

void Same(const Frame& a, const Frame& b) {
  BATON_CHECK(a.type == b.type && a.payload == b.payload);
}

template <class T, class Encode>
void Check(const Frame& frame, const StatusOr<T>& decoded, const Encode& encode) {
  if (!decoded.ok()) {
    BATON_CHECK(ReasonOf(decoded.status()).has_value());
    return;
  }
  Same(frame, encode(*decoded));
}

void TryPayload(FrameType type, const std::vector<uint8_t>& payload) {
  const Frame frame{type, payload};
  switch (type) {
    case FrameType::kHello: {
      const auto hello = DecodeHello(frame);
      if (hello.ok() && hello->protocol == kHandoffProtocolVersion)
        Same(frame, EncodeHello(*hello));
      return;
    }
    case FrameType::kAsk:
      return Check(frame, DecodeAsk(frame), EncodeAsk);
    case FrameType::kOffer:
      return Check(frame, DecodeOffer(frame), EncodeOffer);
    case FrameType::kBlocks:
      return Check(frame, DecodeBlocks(frame), EncodeBlocks);
    case FrameType::kJoin:
      return Check(frame, DecodeJoin(frame), EncodeJoin);
    case FrameType::kError:
      BATON_CHECK(!DecodeError(frame).ok());
      return;
    default:
      return Check(frame, DecodeRanges(type, frame),
                   [type](const std::vector<PartRange>& r) { return EncodeRanges(type, r); });
  }
}

// An offer that decodes, to be patched: random bytes alone never get past the seal's SHA-256.
std::vector<uint8_t> GoodOffer() {
  Offer offer;
  Seal& seal = offer.claim.seal;
  seal.identity.boundary = 32;
  seal.state_id.bytes[0] = 1;
  seal.block_root.bytes[0] = 1;
  seal.block_count = 2;
  seal.state_digests.resize(2);
  for (Digest128& digest : seal.state_digests) digest.bytes[0] = 1;
  offer.claim.state_id = seal.state_id;
  offer.claim.block_digests = {seal.state_digests};
  offer.parts.resize(4);
  return EncodeOffer(offer).payload;
}

// The input as patches of (u16 position, u8 value) to a good offer; checksum made right.
void TryPatchedOffer(ByteSpan patches) {
  static const std::vector<uint8_t> good = GoodOffer();
  std::vector<uint8_t> payload(good.begin(), good.end() - sizeof(uint64_t));
  ByteReader r(patches);
  while (r.remaining() >= 3) {
    const size_t at = r.Get<uint16_t>() % payload.size();
    payload[at] = r.Get<uint8_t>();
  }
  const uint64_t hash = OfferHash(AsBytes(payload));
  const auto* p = reinterpret_cast<const uint8_t*>(&hash);
  payload.insert(payload.end(), p, p + sizeof hash);
  TryPayload(FrameType::kOffer, payload);
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  if (size == 0) return 0;
  constexpr FrameType kTypes[] = {FrameType::kHello,  FrameType::kAsk,  FrameType::kOffer,
                                  FrameType::kError,  FrameType::kRead, FrameType::kData,
                                  FrameType::kBlocks, FrameType::kJoin};
  const FrameType type = kTypes[data[0] % std::size(kTypes)];
  std::vector<uint8_t> payload(data + 1, data + size);
  TryPayload(type, payload);
  if (type == FrameType::kOffer || type == FrameType::kBlocks) {
    const uint64_t hash = OfferHash(AsBytes(payload));
    const auto* p = reinterpret_cast<const uint8_t*>(&hash);
    payload.insert(payload.end(), p, p + sizeof hash);
    TryPayload(type, payload);
  }
  TryPatchedOffer(std::as_bytes(std::span(data + 1, size - 1)));
  if (size > kFrameHeaderBytes) {
    FrameHeaderBytes header;
    std::memcpy(header.data(), data + 1, header.size());
    const auto decoded = DecodeFrameHeader(header);
    if (decoded.ok())
      (void)CheckFramePayload(*decoded, AsBytes(payload));
    else
      BATON_CHECK(ReasonOf(decoded.status()) == Reason::kMalformed);
  }
  return 0;
}
