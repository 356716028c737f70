// Which instruction sets are compiled: the baseline (which runs the reference), AVX2 and AVX-512.
// Include first in every simd/*.cc.
#ifndef BATON_KERNEL_SIMD_TARGETS_H_
#define BATON_KERNEL_SIMD_TARGETS_H_

// SSSE3 and SSE4 have no FMA and would only be further copies of the fallback.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)

#endif  // BATON_KERNEL_SIMD_TARGETS_H_
