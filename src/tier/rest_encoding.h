// F32 state parts at rest in fewer bits (docs/format/state_object.md). What comes back is not what
// was sealed; how far off it is, is measured when it is stored. Only plain arithmetic on host
// memory; which parts are encoded and what that means for a seal is put.cc's and restore.cc's.
// Thread rule: pure functions.
#ifndef BATON_TIER_REST_ENCODING_H_
#define BATON_TIER_REST_ENCODING_H_

#include <cstdint>

#include "base/bytes.h"
#include "identity/digest.h"
#include "identity/layout.h"
#include "tier/state_object.h"

namespace baton {

// Whether a part of this dtype changes under the encoding: F32 under all but kSame.
bool Encodes(RestEncoding encoding, ElementType dtype);

// Bytes of `part` at rest; `part.dtype` is F32.
uint64_t EncodedBytes(RestEncoding encoding, const StatePart& part);

// Squares summed over elements: of the values, and of what encoding does to them.
struct EncodingLoss {
  double values = 0;
  double errors = 0;
};

// `from` holds part.bytes of finite F32, `to` EncodedBytes. Values beyond f16 become its largest.
// Must hold: encoding is not kSame.
EncodingLoss EncodeRest(RestEncoding encoding,
                        const StatePart& part,
                        ByteSpan from,
                        MutableByteSpan to);
// The inverse up to the loss. Any bytes decode to something; it may be non-finite.
void DecodeRest(RestEncoding encoding, const StatePart& part, ByteSpan from, MutableByteSpan to);

// Seed of the digest over the bytes at rest. Its dtype is BF16 or F16 for a part of such elements;
// for int8 the finite check means nothing and is made after decoding.
DigestSeed RestSeed(RestEncoding encoding, const DigestSeed& live);

}  // namespace baton

#endif  // BATON_TIER_REST_ENCODING_H_
