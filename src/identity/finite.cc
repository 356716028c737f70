#include "identity/finite.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstring>

#include "identity/element_f8.h"

namespace baton {
namespace {

// What is left after the vector loop, `all` being what the loop has gathered.
template <class Lane>
bool Tail(const std::byte* p, size_t n, Lane mask, Lane one, Lane all) {
  for (size_t i = 0; i < n; i += sizeof(Lane)) {
    Lane x;
    std::memcpy(&x, p + i, sizeof(x));
    all |= static_cast<Lane>((x & mask) + one);
  }
  return (all >> (8 * sizeof(Lane) - 1)) == 0;
}

// 16-byte vectors: SSE2, NEON.
template <class Lane>
bool ScanBase(const std::byte* p, size_t n, Lane mask, Lane one) {
  typedef Lane V __attribute__((vector_size(16)));
  V acc0 = {};
  V acc1 = {};
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    V x0;
    V x1;
    std::memcpy(&x0, p + i, 16);
    std::memcpy(&x1, p + i + 16, 16);
    acc0 |= (x0 & mask) + one;
    acc1 |= (x1 & mask) + one;
  }
  acc0 |= acc1;
  Lane all = 0;
  for (size_t j = 0; j < 16 / sizeof(Lane); ++j) all |= acc0[j];
  return Tail<Lane>(p + i, n - i, mask, one, all);
}

#if defined(__x86_64__)
// Intrinsics, because g++ splits a 32-byte generic vector before it inlines it into an AVX2
// function, and the loop is then four times slower.
template <class Lane>
__attribute__((target("avx2"))) bool ScanAvx2(const std::byte* p, size_t n, Lane mask, Lane one) {
  constexpr bool kWide = sizeof(Lane) == 4;
  const __m256i m = kWide ? _mm256_set1_epi32(static_cast<int>(mask))
                          : _mm256_set1_epi16(static_cast<int16_t>(mask));
  const __m256i o = kWide ? _mm256_set1_epi32(static_cast<int>(one))
                          : _mm256_set1_epi16(static_cast<int16_t>(one));
  __m256i acc0 = _mm256_setzero_si256();
  __m256i acc1 = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const auto* v = reinterpret_cast<const __m256i*>(p + i);
    const __m256i x0 = _mm256_and_si256(_mm256_loadu_si256(v), m);
    const __m256i x1 = _mm256_and_si256(_mm256_loadu_si256(v + 1), m);
    acc0 = _mm256_or_si256(acc0, kWide ? _mm256_add_epi32(x0, o) : _mm256_add_epi16(x0, o));
    acc1 = _mm256_or_si256(acc1, kWide ? _mm256_add_epi32(x1, o) : _mm256_add_epi16(x1, o));
  }
  acc0 = _mm256_or_si256(acc0, acc1);
  Lane lanes[32 / sizeof(Lane)];
  std::memcpy(lanes, &acc0, sizeof(lanes));
  Lane all = 0;
  for (Lane lane : lanes) all |= lane;
  return Tail<Lane>(p + i, n - i, mask, one, all);
}
#endif

template <class Lane>
bool Scan(ByteSpan bytes, Lane mask, Lane one) {
  if (bytes.size() % sizeof(Lane) != 0) return false;
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return ScanAvx2<Lane>(bytes.data(), bytes.size(), mask, one);
#endif
  return ScanBase<Lane>(bytes.data(), bytes.size(), mask, one);
}

}  // namespace

namespace {

// Bytes whose other bits are all one are NaN; the sums do not leave their byte.
bool ScanBytes(ByteSpan bytes) {
  uint64_t all = 0;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t x;
    std::memcpy(&x, bytes.data() + i, sizeof(x));
    all |= (x & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
  }
  for (; i < bytes.size(); ++i)
    all |= (std::to_integer<uint64_t>(bytes[i]) & 0x7f) + 1;
  return (all & 0x8080808080808080u) == 0;
}

}  // namespace

bool AllFinite(ElementType dtype, ByteSpan bytes) {
  if (dtype == kElementF8E4M3) return ScanBytes(bytes);
  switch (dtype) {
    case ElementType::kF32:
      return Scan<uint32_t>(bytes, 0x7f800000u, 0x00800000u);
    case ElementType::kBF16:
      return Scan<uint16_t>(bytes, 0x7f80, 0x0080);
    case ElementType::kF16:
      return Scan<uint16_t>(bytes, 0x7c00, 0x0400);
  }
  return false;
}

}  // namespace baton
