#include "identity/finite.h"

#include <cstring>

namespace baton {
namespace {

// Four accumulators of kWidth bytes each hide the latency of the load. The generic vector type
// compiles to what the target has: SSE2 by default, AVX2 in the function marked so.
template <class Lane, size_t kWidth>
struct Vec {
  typedef Lane Type __attribute__((vector_size(kWidth)));
};

template <class Lane, size_t kWidth>
[[gnu::always_inline]] inline bool ScanVector(const std::byte* p, size_t n, Lane mask, Lane one) {
  using V = typename Vec<Lane, kWidth>::Type;
  constexpr size_t kStep = 4 * kWidth;
  V acc[4] = {};
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    V x[4];
    std::memcpy(x, p + i, kStep);
    for (int j = 0; j < 4; ++j) acc[j] |= (x[j] & mask) + one;
  }
  acc[0] |= acc[1] | acc[2] | acc[3];
  Lane all = 0;
  for (size_t j = 0; j < kWidth / sizeof(Lane); ++j) all |= acc[0][j];
  for (; i < n; i += sizeof(Lane)) {
    Lane x;
    std::memcpy(&x, p + i, sizeof(x));
    all |= static_cast<Lane>((x & mask) + one);
  }
  return (all >> (8 * sizeof(Lane) - 1)) == 0;
}

template <class Lane>
bool ScanBase(const std::byte* p, size_t n, Lane mask, Lane one) {
  return ScanVector<Lane, 16>(p, n, mask, one);
}

#if defined(__x86_64__)
template <class Lane>
__attribute__((target("avx2"))) bool ScanAvx2(const std::byte* p, size_t n, Lane mask, Lane one) {
  return ScanVector<Lane, 32>(p, n, mask, one);
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

bool AllFinite(ElementType dtype, ByteSpan bytes) {
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
