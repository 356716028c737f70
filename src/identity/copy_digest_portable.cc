// Plain C++: the reference the vector kernels are compared with, and what other CPUs run.
#include <cstring>

#include "identity/copy_digest_kernels.h"

namespace baton::digest_internal {

// Checked against the library's own by the tests.
const uint64_t kSecret[kSecretBytes / 8] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
    0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
    0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
    0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

namespace {

// Sign bits of the elements of a 64-bit word that are not finite. Lanes are kept apart: the sum
// of a masked element and `one` does not leave its lane.
inline uint64_t NonFinite(uint64_t word, const ScanPattern& scan) {
  return (word & scan.mask) + scan.one;
}

void Scramble(uint64_t* acc) {
  for (size_t i = 0; i < 8; ++i) {
    uint64_t a = acc[i];
    a ^= a >> 47;
    a ^= kSecret[kSecretBytes / 8 - 8 + i];
    acc[i] = a * kPrime32_1;
  }
}

}  // namespace

bool StripesPortable(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan) {
  uint64_t found = 0;
  uint32_t stripe = run.stripe;
  for (size_t s = 0; s < run.count; ++s) {
    // Through an array of its own, so that each byte of the source is read once.
    uint64_t words[8];
    std::memcpy(words, run.src + s * kStripeBytes, kStripeBytes);
    asm volatile("" : "+m"(words));
    if (store != Store::kNone) std::memcpy(run.dst + s * kStripeBytes, words, kStripeBytes);
    for (size_t i = 0; i < 8; ++i) {
      const uint64_t key = words[i] ^ kSecret[stripe + i];
      acc[i ^ 1] += words[i];
      acc[i] += (key & 0xffffffffu) * (key >> 32);
      found |= NonFinite(words[i], scan);
    }
    if (s + 1 == run.count) std::memcpy(run.last, words, kStripeBytes);
    if (++stripe == kStripesPerBlock) {
      Scramble(acc);
      stripe = 0;
    }
  }
  return (found & scan.signs) != 0;
}

#if !defined(__x86_64__)
void StreamBytes(std::byte* dst, const std::byte* src, size_t bytes) {
  std::memcpy(dst, src, bytes);
}
void StreamFence() {}
#endif

}  // namespace baton::digest_internal
