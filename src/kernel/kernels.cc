#include "kernel/kernels.h"

#include "kernel/reference/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton::kernel {
namespace {

bool CpuHasFma() {
#if defined(BATON_KERNEL_REFERENCE_FMA)
  static const bool has = __builtin_cpu_supports("fma") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace

const ScalarFunctions& ReferenceFunctions() {
#if defined(BATON_KERNEL_REFERENCE_FMA)
  if (CpuHasFma()) return reference_fma::kScalar;
#endif
  return reference_portable::kScalar;
}

const Kernels& ReferenceKernels() {
#if defined(BATON_KERNEL_REFERENCE_FMA)
  if (CpuHasFma()) return reference_fma::kTable;
#endif
  return reference_portable::kTable;
}

void SetCanonicalFpMode() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 1u << 15;
  constexpr unsigned kDenormalsAreZero = 1u << 6;
  constexpr unsigned kRounding = 3u << 13;
  constexpr unsigned kAllMasked = 0x1f80;
  _mm_setcsr((_mm_getcsr() & ~(kFlushToZero | kDenormalsAreZero | kRounding)) | kAllMasked);
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  // FZ, rounding mode, FZ16.
  fpcr &= ~((uint64_t{1} << 24) | (uint64_t{3} << 22) | (uint64_t{1} << 19));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

}  // namespace baton::kernel
