// Scalar elementary functions: the definition of the bits (docs/numerics.md). The vector forms in
// simd/functions-inl.h do the same operations in the same order.
//
// This file is compiled several times (with and without FMA instructions), each time in its own
// namespace, so everything here is static and nothing may come from the standard library's inline
// functions: a copy compiled for FMA must never be the one the linker keeps for everybody.
#ifndef BATON_KERNEL_REFERENCE_FUNCTIONS_INL_H_
#define BATON_KERNEL_REFERENCE_FUNCTIONS_INL_H_

#include <cstdint>
#include <cstring>

#include "kernel/polynomials.h"

#define BATON_INLINE static inline __attribute__((always_inline))

namespace baton::kernel::BATON_REFERENCE_NS {

// One rounding: an instruction where compiled for FMA, the C library's exact form elsewhere.
BATON_INLINE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
BATON_INLINE double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

BATON_INLINE uint32_t Bits(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  return u;
}
BATON_INLINE float FromBits(uint32_t u) {
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}
BATON_INLINE uint64_t Bits(double v) {
  uint64_t u;
  std::memcpy(&u, &v, 8);
  return u;
}
BATON_INLINE double FromBits(uint64_t u) {
  double v;
  std::memcpy(&v, &u, 8);
  return v;
}
BATON_INLINE float Abs(float x) { return FromBits(Bits(x) & 0x7fffffffu); }

// Horner, highest coefficient last in the table.
template <class T, int N>
BATON_INLINE T Horner(const T (&c)[N], T x) {
  T p = c[N - 1];
  for (int i = N - 2; i >= 0; --i) p = Fma(p, x, c[i]);
  return p;
}

// 2^n for n in [-126, 127].
BATON_INLINE float Pow2(int32_t n) { return FromBits(static_cast<uint32_t>(n + 127) << 23); }

BATON_INLINE float ExpOf(float x) {
  if (x != x) return x;
  float c = x < kExpMax ? x : kExpMax;
  c = c > kExpMin ? c : kExpMin;
  const float t = Fma(c, kLog2E, kRoundMagic);  // c / ln 2 rounded to an integer, in low bits
  const int32_t n = static_cast<int32_t>(Bits(t) - Bits(kRoundMagic));
  const float nf = t - kRoundMagic;
  float r = Fma(nf, -kLn2Hi, c);
  r = Fma(nf, -kLn2Lo, r);
  const float p = 1.0f + Fma(r * r, Horner(kExpPoly, r), r);
  // In two steps, so that subnormal results are rounded once and overflow gives infinity.
  const int32_t half = n >> 1;
  return p * Pow2(half) * Pow2(n - half);
}

// log1p(f) + k ln 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1].
BATON_INLINE float LogTail(float f, float k) {
  const float f2 = f * f;
  float t = Fma(f, Horner(kLog1pPoly, f), -0.5f);
  t = Fma(f2, t, k * kLn2LogLo);
  return Fma(k, kLn2LogHi, f + t);
}

BATON_INLINE float LogOf(float x) {
  if (x != x) return x;
  if (x < 0.0f) return FromBits(kNanBits);
  if (x == 0.0f) return -FromBits(kInfBits);
  if (Bits(x) == kInfBits) return x;
  float bias = 0.0f;
  if (x < 0x1p-126f) {  // subnormal
    x *= 0x1p25f;
    bias = -25.0f;
  }
  const int32_t k = static_cast<int32_t>(Bits(x) - kSqrtHalfBits) >> 23;
  const float m = FromBits(Bits(x) - (static_cast<uint32_t>(k) << 23));
  return LogTail(m - 1.0f, static_cast<float>(k) + bias);
}

// For finite x > -1, or NaN.
BATON_INLINE float Log1pCore(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);  // what the addition rounded away
  const uint32_t iu = Bits(u);
  const int32_t k = static_cast<int32_t>(iu - kSqrtHalfBits) >> 23;
  const uint32_t shift = static_cast<uint32_t>(k) << 23;
  const float m = FromBits(iu - shift);
  const float inv = FromBits(0x3f800000u - shift);  // 2^-k
  return LogTail(Fma(lost, inv, m - 1.0f), static_cast<float>(k));
}

BATON_INLINE float Log1pOf(float x) {
  if (Bits(x) == kInfBits) return x;
  if (x == -1.0f) return -FromBits(kInfBits);
  if (x < -1.0f) return FromBits(kNanBits);
  return x == 0.0f ? x : Log1pCore(x);  // keeps the sign of zero
}

BATON_INLINE float SigmoidOf(float x) {
  const float e = ExpOf(-Abs(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

BATON_INLINE float SiluOf(float x) { return x * SigmoidOf(x); }

BATON_INLINE float SoftplusOf(float x) {
  const float m = x > 0.0f ? x : 0.0f;
  return Log1pCore(ExpOf(-Abs(x))) + m;
}

BATON_INLINE float Expm1Of(float x) {
  // The polynomial of ExpOf without its leading 1 where nothing is scaled; elsewhere the difference
  // loses little, since exp(x) is at most 0.71 or at least 1.41.
  const float nf = Fma(x, kLog2E, kRoundMagic) - kRoundMagic;
  const float small = Fma(x * x, Horner(kExpPoly, x), x);
  return nf == 0.0f ? small : ExpOf(x) - 1.0f;
}

BATON_INLINE float TanhOf(float x) {
  const float a = Abs(x);
  const float z = a * a;
  const float small = Fma(a * z, Horner(kTanhPoly, z), a);
  const float e = ExpOf(a + a);
  const float big = 1.0f - 2.0f / (e + 1.0f);
  const float y = a < 0.625f ? small : big;
  return FromBits(Bits(y) | (Bits(x) & 0x80000000u));
}

BATON_INLINE float GeluOf(float x) {
  const float wide = Abs(x);
  const float a = wide > 16.0f ? 16.0f : wide;  // Phi(-16) is 0; the square stays finite
  const float t = 1.0f / Fma(a, kGeluP, 1.0f);
  const float h = a * a;
  const float lost = Fma(a, a, -h);  // of the square: matters where exp is steep
  const float e = ExpOf(-0.5f * h);
  const float tail = Horner(kGeluPoly, t) * t * Fma(e, -0.5f * lost, e);
  return x * (x >= 0.0f ? 1.0f - tail : tail);
}

BATON_INLINE float GeluTanhOf(float x) {
  return x * SigmoidOf(x * Fma(x * x, kGeluTanh3, kGeluTanh1));
}

BATON_INLINE float Relu2Of(float x) {
  const float m = x < 0.0f ? 0.0f : x;  // NaN stays
  return m * m;
}

}  // namespace baton::kernel::BATON_REFERENCE_NS

#endif  // BATON_KERNEL_REFERENCE_FUNCTIONS_INL_H_
