// Rows of f32 to narrow state and back, and products of rows.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/narrow.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

template <StateDType kType>
void NarrowRows(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) NarrowRow<kType>(a, row, a.wide + row * a.width);
}

template <StateDType kType>
void WidenRows(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const V m = Splat(Scaled<kType>(1.0f, a.scales, row));
    ForVectors(a.width, [&](int64_t i, auto part) HWY_ATTR {
      const int64_t at = row * a.width + i;
      Store(part, hn::Mul(m, Element<kType>(part, a.narrow, at)), a.wide + at);
    });
  }
}

}  // namespace

void Narrow(const NarrowArgs& a) {
  switch (a.dtype) {
    case StateDType::kBF16:
      return NarrowRows<StateDType::kBF16>(a);
    case StateDType::kF16:
      return NarrowRows<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return NarrowRows<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}

void Widen(const NarrowArgs& a) {
  switch (a.dtype) {
    case StateDType::kBF16:
      return WidenRows<StateDType::kBF16>(a);
    case StateDType::kF16:
      return WidenRows<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return WidenRows<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}

void Dots(
    const float* a, const float* const* b, int64_t offset, int64_t count, int64_t n, float* out) {
  for (int64_t j = 0; j < count; ++j) {
    Lanes sum = ZeroLanes();
    const float* bj = b[j] + offset;
    ForLanes(n, [&](int64_t i, int lane, auto part) HWY_ATTR {
      const V next = hn::MulAdd(Load(part, a + i), Load(part, bj + i), sum.v[lane]);
      sum.v[lane] = Select(part, next, sum.v[lane]);
    });
    out[j] = SumLanes(sum);
  }
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
