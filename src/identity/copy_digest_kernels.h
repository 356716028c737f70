// Private to this module: the inner loops behind copy_digest.h, one per instruction set.
// Notation of the XXH3 specification: a stripe is 64 bytes, a block 16 stripes, after which the
// eight accumulators are scrambled. Thread rule: pure functions.
#ifndef BATON_IDENTITY_COPY_DIGEST_KERNELS_H_
#define BATON_IDENTITY_COPY_DIGEST_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace baton::digest_internal {

inline constexpr size_t kStripeBytes = 64;
inline constexpr uint32_t kStripesPerBlock = 16;
inline constexpr size_t kSecretBytes = 192;
// The specification's default secret, 64-bit words.
extern const uint64_t kSecret[kSecretBytes / 8];
inline constexpr uint32_t kPrime32_1 = 0x9E3779B1u;

enum class Store { kNone, kPlain, kStream };

// An element x is not finite exactly if ((x & mask) + one) carries into its sign bit (finite.h).
struct ScanPattern {
  bool wide = true;  // elements of 32 bits, else 16 or 8 (whose sums do not leave their byte)
  uint64_t mask = 0;
  uint64_t one = 0;
  uint64_t signs = 0;
};

struct StripeRun {
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;  // unless Store::kNone; for kStream 32-byte aligned
  size_t count = 0;
  uint32_t stripe = 0;  // place of the first within its block; 0..15
  // The register that is hashed is the one that is stored, also of the last stripe.
  std::byte* last = nullptr;
};

// Mixes `run.count` > 0 stripes into acc[8] (64-byte aligned), scrambling after each block.
// Returns nonzero sign bits where an element was not finite.
using StripesFn = bool (*)(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern&);

bool StripesPortable(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan);
// The ends of a copy, past the caches where dst is 16-byte aligned: a plain store there would fetch
// its line first, and on a small part that is felt.
void StreamBytes(std::byte* dst, const std::byte* src, size_t bytes);
// Orders all streaming stores before what follows: once, after the last of a copy.
void StreamFence();

#if defined(__x86_64__)
bool StripesAvx2(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan);
bool StripesAvx512(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan);
#endif

}  // namespace baton::digest_internal

#endif  // BATON_IDENTITY_COPY_DIGEST_KERNELS_H_
