#include "kernel/reference/functions-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {
namespace {

float Widen(uint16_t bits, DType dtype) {
  if (dtype == DType::kBF16) return FromBits(static_cast<uint32_t>(bits) << 16);
  return FromBits(F16ToF32Bits(bits));
}

}  // namespace

void Matmul(const MatmulArgs& a) {
  const int64_t k_count = a.w->cols();
  const DType dtype = a.w->dtype();
  for (int64_t p = a.panel_begin; p < a.panel_end; ++p) {
    const int64_t base = p * k_count * kLanes;
    const auto* w32 = static_cast<const float*>(a.w->data()) + base;
    const auto* w16 = static_cast<const uint16_t*>(a.w->data()) + base;
    const int64_t left = a.w->rows() - p * kLanes;
    const int width = static_cast<int>(left < kLanes ? left : kLanes);
    for (int64_t m = 0; m < a.rows; ++m) {
      const float* x = a.x + m * a.ldx;
      float* y = a.y + m * a.ldy + p * kLanes;
      float acc[kLanes] = {};
      if (a.accumulate)
        for (int j = 0; j < width; ++j) acc[j] = y[j];
      for (int64_t k = 0; k < k_count; ++k) {
        for (int j = 0; j < kLanes; ++j) {
          const int64_t i = k * kLanes + j;
          const float w = dtype == DType::kF32 ? w32[i] : Widen(w16[i], dtype);
          acc[j] = Fma(x[k], w, acc[j]);
        }
      }
      for (int j = 0; j < width; ++j) y[j] = acc[j];
    }
  }
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
