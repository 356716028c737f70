#include "base/rng.h"

#include <sys/random.h>

#include <cstdio>
#include <cstdlib>

namespace baton {

void FillRandom(void* dst, size_t n) {
  auto* p = static_cast<uint8_t*>(dst);
  while (n > 0) {
    const ssize_t got = getrandom(p, n, 0);
    if (got < 0) {
      std::perror("getrandom");
      std::abort();
    }
    p += got;
    n -= static_cast<size_t>(got);
  }
}

uint64_t CounterBits(uint64_t seed, uint64_t position, uint64_t lane) {
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                   static_cast<uint32_t>(lane), static_cast<uint32_t>(lane >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<uint32_t>(p1);
    c[3] = static_cast<uint32_t>(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (uint64_t{c[1]} << 32) | c[0];
}

double CounterUniform(uint64_t seed, uint64_t position, uint64_t lane) {
  return static_cast<double>(CounterBits(seed, position, lane) >> 11) * 0x1.0p-53;
}

}  // namespace baton
