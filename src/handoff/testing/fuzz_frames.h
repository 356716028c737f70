// What the fuzzers of the hand-off's frames share. Thread rule: free functions.
#ifndef BATON_HANDOFF_TESTING_FUZZ_FRAMES_H_
#define BATON_HANDOFF_TESTING_FUZZ_FRAMES_H_

#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "handoff/wire.h"

namespace baton::fuzz {

inline void Same(const Frame& a, const Frame& b) {
  BATON_CHECK(a.type == b.type && a.payload == b.payload);
}

// A refusal has a reason; what decodes encodes to the same bytes again.
template <class T, class Encode>
void CheckRoundTrip(const Frame& frame, const StatusOr<T>& decoded, const Encode& encode) {
  if (!decoded.ok()) {
    BATON_CHECK(ReasonOf(decoded.status()).has_value());
    return;
  }
  Same(frame, encode(*decoded));
}

// Puts the checksum that ends an OFFER or BLOCKS behind `body`.
inline std::vector<uint8_t> WithHash(std::vector<uint8_t> body) {
  const uint64_t hash = OfferHash(AsBytes(body));
  const auto* p = reinterpret_cast<const uint8_t*>(&hash);
  body.insert(body.end(), p, p + sizeof hash);
  return body;
}

}  // namespace baton::fuzz

#endif  // BATON_HANDOFF_TESTING_FUZZ_FRAMES_H_
