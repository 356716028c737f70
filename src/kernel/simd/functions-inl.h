// Vector forms of reference/functions-inl.h: the same operations in the same order, so the same
// bits. Where the scalar form returns early, the vector form selects at the end.
#if defined(BATON_KERNEL_SIMD_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_KERNEL_SIMD_FUNCTIONS_INL_H_
#undef BATON_KERNEL_SIMD_FUNCTIONS_INL_H_
#else
#define BATON_KERNEL_SIMD_FUNCTIONS_INL_H_
#endif

#include "kernel/polynomials.h"
#include "kernel/simd/target-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD

using DI = hn::RebindToSigned<D>;
using VI = hn::Vec<DI>;

HWY_INLINE V Splat(float x) { return hn::Set(D(), x); }
HWY_INLINE VI Bits(V v) { return hn::BitCast(DI(), v); }
HWY_INLINE V FromBits(VI v) { return hn::BitCast(D(), v); }
HWY_INLINE VI SplatBits(uint32_t u) { return hn::Set(DI(), static_cast<int32_t>(u)); }

template <int N>
HWY_INLINE V Horner(const float (&c)[N], V x) {
  V p = Splat(c[N - 1]);
  HWY_UNROLL(8)
  for (int i = N - 2; i >= 0; --i) p = hn::MulAdd(p, x, Splat(c[i]));
  return p;
}

// p * 2^n, rounded once, for p in [1/2, 2) and n in [-152, 129], n = the low bits of t = nf. A NaN
// in p comes out whatever n is.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE V Scale2(V p, V, V nf) { return V{_mm512_scalef_ps(p.raw, nf.raw)}; }
#else
HWY_INLINE V Pow2(VI n) { return FromBits(hn::ShiftLeft<23>(hn::Add(n, hn::Set(DI(), 127)))); }
HWY_INLINE V Scale2(V p, V t, V) {
  const VI n = hn::Sub(Bits(t), SplatBits(kRoundMagicBits));
  const VI half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(p, Pow2(half)), Pow2(hn::Sub(n, half)));
}
#endif

HWY_INLINE V ExpV(V x) {
  // Constants first: min and max then return x where x is NaN, and NaN runs through to the end.
  const V c = hn::Max(Splat(kExpMin), hn::Min(Splat(kExpMax), x));
  const V t = hn::MulAdd(c, Splat(kLog2E), Splat(kRoundMagic));
  const V nf = hn::Sub(t, Splat(kRoundMagic));
  V r = hn::MulAdd(nf, Splat(-kLn2Hi), c);
  r = hn::MulAdd(nf, Splat(-kLn2Lo), r);
  const V p = hn::Add(Splat(1.0f), hn::MulAdd(hn::Mul(r, r), Horner(kExpPoly, r), r));
  return Scale2(p, t, nf);
}

HWY_INLINE V LogTailV(V f, V k) {
  const V f2 = hn::Mul(f, f);
  V t = hn::MulAdd(f, Horner(kLog1pPoly, f), Splat(-0.5f));
  t = hn::MulAdd(f2, t, hn::Mul(k, Splat(kLn2LogLo)));
  return hn::MulAdd(k, Splat(kLn2LogHi), hn::Add(f, t));
}

HWY_INLINE V Log1pCoreV(V x) {
  const V one = Splat(1.0f);
  const V u = hn::Add(one, x);
  const V lost = hn::Sub(x, hn::Sub(u, one));
  const VI k = hn::ShiftRight<23>(hn::Sub(Bits(u), SplatBits(kSqrtHalfBits)));
  const VI shift = hn::ShiftLeft<23>(k);
  const V m = FromBits(hn::Sub(Bits(u), shift));
  const V inv = FromBits(hn::Sub(Bits(one), shift));
  return LogTailV(hn::MulAdd(lost, inv, hn::Sub(m, one)), hn::ConvertTo(D(), k));
}

HWY_INLINE V Log1pV(V x) {
  const V minus_one = Splat(-1.0f);
  const V inf = FromBits(SplatBits(kInfBits));
  V y = Log1pCoreV(x);
  y = hn::IfThenElse(hn::Eq(x, inf), x, y);
  y = hn::IfThenElse(hn::Eq(x, minus_one), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, minus_one), FromBits(SplatBits(kNanBits)), y);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(D())), x, y);
}

HWY_INLINE V SigmoidV(V x) {
  const V one = Splat(1.0f);
  const V e = ExpV(hn::Neg(hn::Abs(x)));
  const V num = hn::IfThenElse(hn::Ge(x, hn::Zero(D())), one, e);
  return hn::Div(num, hn::Add(one, e));
}

HWY_INLINE V SiluV(V x) { return hn::Mul(x, SigmoidV(x)); }

HWY_INLINE V SoftplusV(V x) {
  const V m = hn::IfThenElseZero(hn::Gt(x, hn::Zero(D())), x);
  return hn::Add(Log1pCoreV(ExpV(hn::Neg(hn::Abs(x)))), m);
}

HWY_INLINE V Expm1V(V x) {
  const V magic = Splat(kRoundMagic);
  const V nf = hn::Sub(hn::MulAdd(x, Splat(kLog2E), magic), magic);
  const V small = hn::MulAdd(hn::Mul(x, x), Horner(kExpPoly, x), x);
  const V big = hn::Sub(ExpV(x), Splat(1.0f));
  return hn::IfThenElse(hn::Eq(nf, hn::Zero(D())), small, big);
}

HWY_INLINE V TanhV(V x) {
  const V a = hn::Abs(x);
  const V z = hn::Mul(a, a);
  const V small = hn::MulAdd(hn::Mul(a, z), Horner(kTanhPoly, z), a);
  const V e = ExpV(hn::Add(a, a));
  const V one = Splat(1.0f);
  const V big = hn::Sub(one, hn::Div(Splat(2.0f), hn::Add(e, one)));
  const V y = hn::IfThenElse(hn::Lt(a, Splat(0.625f)), small, big);
  return FromBits(hn::Or(Bits(y), hn::And(Bits(x), SplatBits(0x80000000u))));
}

HWY_INLINE V GeluV(V x) {
  const V one = Splat(1.0f);
  const V minus_half = Splat(-0.5f);
  const V limit = Splat(16.0f);
  const V wide = hn::Abs(x);
  const V a = hn::IfThenElse(hn::Gt(wide, limit), limit, wide);
  const V t = hn::Div(one, hn::MulAdd(a, Splat(kGeluP), one));
  const V h = hn::Mul(a, a);
  const V lost = hn::MulSub(a, a, h);
  const V e = ExpV(hn::Mul(minus_half, h));
  const V tail =
      hn::Mul(hn::Mul(Horner(kGeluPoly, t), t), hn::MulAdd(e, hn::Mul(minus_half, lost), e));
  const V phi = hn::IfThenElse(hn::Ge(x, hn::Zero(D())), hn::Sub(one, tail), tail);
  return hn::Mul(x, phi);
}

HWY_INLINE V GeluTanhV(V x) {
  const V u = hn::MulAdd(hn::Mul(x, x), Splat(kGeluTanh3), Splat(kGeluTanh1));
  return hn::Mul(x, SigmoidV(hn::Mul(x, u)));
}

HWY_INLINE V Relu2V(V x) {
  const V m = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(D())), x);
  return hn::Mul(m, m);
}

#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
