// XXH3-128 of the host's best instruction set, private to this module: on x86-64 the library's
// run-time dispatch (include this, never <xxhash.h>), elsewhere the plain entry points.
#ifndef BATON_IDENTITY_XXH_H_
#define BATON_IDENTITY_XXH_H_

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // redirects XXH3_128bits and XXH3_128bits_update
#endif

#include "base/types.h"

namespace baton {

// The canonical (big-endian) form: Hex() is what `xxh128sum` prints.
inline Digest128 CanonicalXxh(XXH128_hash_t h) {
  XXH128_canonical_t c;
  XXH128_canonicalFromHash(&c, h);
  Digest128 d;
  static_assert(sizeof(c.digest) == Digest128::kSize);
  for (size_t i = 0; i < Digest128::kSize; ++i) d.bytes[i] = c.digest[i];
  return d;
}

}  // namespace baton

#endif  // BATON_IDENTITY_XXH_H_
