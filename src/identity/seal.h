// The seal of a bundle: content identity, names, producer and part digests in one checksummed
// record. The seal says what the bytes must be; it is compared with what the receiver derived and
// never believed on its own. docs/format/seal.md has every byte.
// Thread rule: plain values.
#ifndef BATON_IDENTITY_SEAL_H_
#define BATON_IDENTITY_SEAL_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/content_identity.h"
#include "identity/digest.h"
#include "identity/layout.h"

namespace baton {

struct Seal {
  ContentIdentity identity;
  StateId state_id;  // never zero
  StateId parent;    // the bundle this one was extended from; zero: computed from token 0
  NodeId producer;
  Epoch epoch;  // of the producer
  DigestAlgorithm algorithm = DigestAlgorithm::kXxh3_128;
  std::vector<Digest128> state_digests;  // one per state part, in layout order
  Digest128 block_root;                  // Digester::BlockRoot over all block digests
  uint32_t block_count = 0;              // over all groups

  friend bool operator==(const Seal&, const Seal&) = default;
};

inline constexpr uint16_t kSealVersion = 1;
// No seal is longer: what a reader may have to buffer.
inline constexpr size_t kMaxSealBytes = 272 + 16 * Layout::kMaxParts;

std::vector<uint8_t> EncodeSeal(const Seal& seal);

// Reads a record from a peer or a file. Counts are believed only after they agree with the
// record's length, so a hostile one allocates nothing. Fails with
//   kMalformed         too short or long, bad magic, checksum, length, reserved bytes, counts, zero
//   state-id kProtocolVersion   a version this build does not know (both printed) kDigestAlgorithm
//   unknown algorithm, or a digest that is absent (all zero)
StatusOr<Seal> DecodeSeal(ByteSpan record);

// Ok if the seal has exactly the parts that `layout` has at the seal's boundary. Fails with
// kLayoutMismatch (other fingerprint), kMissingPart or kUnknownPart.
Status MatchSealToLayout(const Seal& seal, const Layout& layout);

}  // namespace baton

#endif  // BATON_IDENTITY_SEAL_H_
