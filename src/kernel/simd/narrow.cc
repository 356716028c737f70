// Narrow state, for now by the reference: the same bits, slowly.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/narrow.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/target-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
void Mamba2Narrow(const Mamba2NarrowArgs& a) { ReferenceKernels().mamba2_narrow(a); }
void Narrow(const NarrowArgs& a) { ReferenceKernels().narrow(a); }
void Widen(const NarrowArgs& a) { ReferenceKernels().widen(a); }
void Dots(const float* a,
          const float* const* b,
          int64_t offset,
          int64_t count,
          int64_t n,
          float* out) {
  ReferenceKernels().dots(a, b, offset, count, n, out);
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
