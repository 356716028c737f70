// Any bytes as an OFFER, under a checksum that holds too, and an offer that decodes with bytes
// patched and both checksums made right: DecodeOffer answers or refuses with a reason; what it
// accepts is no larger than the bytes that came and encodes to the same bytes again.
#include <algorithm>
#include <cstring>

#include "base/sha256.h"
#include "handoff/testing/fuzz_frames.h"

namespace baton {
namespace {

constexpr size_t kSealAt = 8 + 16 + 16 + 8;  // length of the seal record, and it

void Try(const std::vector<uint8_t>& payload) {
  const Frame frame{FrameType::kOffer, payload};
  const StatusOr<Offer> offer = DecodeOffer(frame);
  fuzz::CheckRoundTrip(frame, offer, EncodeOffer);
  if (!offer.ok()) return;
  size_t digests = offer->claim.seal.state_digests.size();
  for (const auto& group : offer->claim.block_digests) digests += group.size();
  BATON_CHECK(digests * sizeof(Digest128) + offer->parts.size() * 28 <= payload.size());
}

// Makes the SHA-256 at the end of the seal inside `body` right, if a seal fits there.
void Reseal(std::vector<uint8_t>* body) {
  if (body->size() < kSealAt + 4) return;
  uint32_t length = 0;
  std::memcpy(&length, body->data() + kSealAt, sizeof length);
  if (length < 32 || length > body->size() - kSealAt - 4) return;
  uint8_t* const seal = body->data() + kSealAt + 4;
  const Sha256 sum = Sha256Of(AsBytes(*body).subspan(kSealAt + 4, length - 32));
  std::memcpy(seal + length - 32, sum.bytes.data(), 32);
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
  std::vector<uint8_t> body = EncodeOffer(offer).payload;
  body.resize(body.size() - sizeof(uint64_t));
  return body;
}

// The input as patches of (u16 position, u8 value) to a good offer; checksums made right.
void TryPatched(ByteSpan patches) {
  static const std::vector<uint8_t> good = GoodOffer();
  std::vector<uint8_t> body = good;
  ByteReader r(patches);
  while (r.remaining() >= 3) {
    const size_t at = r.Get<uint16_t>() % body.size();
    body[at] = r.Get<uint8_t>();
  }
  Try(fuzz::WithHash(body));
  Reseal(&body);
  Try(fuzz::WithHash(body));
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  std::vector<uint8_t> payload(data, data + size);
  Try(payload);
  // The last 8 bytes taken for a checksum, so that a real offer stays one when patched.
  if (size >= 8) payload.resize(size - 8);
  Try(fuzz::WithHash(payload));
  Reseal(&payload);
  Try(fuzz::WithHash(payload));
  TryPatched(std::as_bytes(std::span(data, size)));
  return 0;
}
