// Randomness. Entropy (names, epochs) comes from the OS; everything that influences tokens is a
// pure function of (seed, position), see CounterUniform. Thread rule: pure functions.
#ifndef BATON_BASE_RNG_H_
#define BATON_BASE_RNG_H_

#include <cstdint>

#include "base/types.h"

namespace baton {

// Fills `n` bytes from getrandom(2). CHECK-fails only if the kernel has no entropy source.
void FillRandom(void* dst, size_t n);

template <class Bytes>
Bytes RandomBytes() {
  Bytes b;
  FillRandom(b.bytes.data(), Bytes::kSize);
  return b;
}

// Philox4x32-10 (Salmon et al., SC 2011) on counter (position, lane) and key (seed): 64 random bits.
uint64_t CounterBits(uint64_t seed, uint64_t position, uint64_t lane);

// Uniform in [0, 1) with 53 bits, a function of (seed, position, lane) alone.
double CounterUniform(uint64_t seed, uint64_t position, uint64_t lane);

// A small sequential generator for tests, weights of generated models and jitter: SplitMix64.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n), n > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace baton

#endif  // BATON_BASE_RNG_H_
