// What every simd/*.cc shares, per target: the 16 virtual lanes as kParts vectors of kW lanes, and
// whole or partial vector access. Include after hwy/highway.h, inside foreach_target's loop.
#if defined(BATON_KERNEL_SIMD_TARGET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_KERNEL_SIMD_TARGET_INL_H_
#undef BATON_KERNEL_SIMD_TARGET_INL_H_
#else
#define BATON_KERNEL_SIMD_TARGET_INL_H_
#endif

#include "hwy/highway.h"
#include "kernel/kernels.h"

// A target takes part if a fused multiply-add is one instruction and vectors have a fixed size;
// all others run the reference, which gives the same bits.
#undef BATON_SIMD
#if HWY_NATIVE_FMA && !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
#define BATON_SIMD 1
#else
#define BATON_SIMD 0
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {

// Entry points, one set per target; defined in the .cc files beside this one.
void Matmul(const MatmulArgs& a);
void Attention(const AttentionArgs& a);
void Conv(const ConvArgs& a);
void Mamba2(const Mamba2Args& a);
void Mamba1(const Mamba1Args& a);
void GatedDelta(const GatedDeltaArgs& a);
void RgLru(const RgLruArgs& a);
void Mamba2Narrow(const Mamba2NarrowArgs& a);
void GatedDeltaNarrow(const GatedDeltaNarrowArgs& a);
void Narrow(const NarrowArgs& a);
void Widen(const NarrowArgs& a);
void Dots(
    const float* a, const float* const* b, int64_t offset, int64_t count, int64_t n, float* out);
void RmsNorm(const float* x, const float* w, int64_t n, float eps, float* y);
void GatedRmsNorm(const float* y,
                  const float* z,
                  const float* w,
                  int64_t n,
                  int64_t groups,
                  float eps,
                  float* out);
void SiluMul(const float* gate, const float* up, int64_t n, float* out);
void SigmoidMul(const float* gate, const float* up, int64_t n, float* out);
void Multiply(const float* a, const float* b, int64_t n, float* out);
void AddScaled(const float* y, float m, int64_t n, float* h);
void Scale(const float* x, float m, int64_t n, float* y);
void SoftplusBias(const float* x, const float* bias, int64_t n, float lo, float hi, float* out);
void ExpMul(const float* a, const float* x, int64_t n, float* out);
void Rope(float* x, const float* cos, const float* sin, int64_t rot);
void Softmax(float* x, int64_t n);
void Apply(Function f, const float* x, int64_t n, float* y);
void ApplyMul(Function f, const float* gate, const float* up, int64_t n, float* out);

#if BATON_SIMD
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;
constexpr int kW = static_cast<int>(hn::MaxLanes(D()));
constexpr int kParts = kLanes / kW;
// Vectors that fit in registers beside a few temporaries.
constexpr int kAccumulators = HWY_TARGET <= HWY_AVX3 ? 24 : 12;

// How much of a vector an access covers: all of it, or the first `n` lanes, 1 <= n <= kW.
struct Whole {};
struct Part {
  int64_t n;
};

HWY_INLINE V Load(Whole, const float* p) { return hn::LoadU(D(), p); }
HWY_INLINE void Store(Whole, V v, float* p) { hn::StoreU(v, D(), p); }
HWY_INLINE V Select(Whole, V v, V) { return v; }

// Lanes past n read as zero and memory past n is neither read nor written.
HWY_INLINE V Load(Part part, const float* p) {
#if HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(D(), static_cast<size_t>(part.n)), D(), p);
#else
  HWY_ALIGN float tmp[kW] = {};
  for (int64_t i = 0; i < part.n; ++i) tmp[i] = p[i];
  return hn::Load(D(), tmp);
#endif
}
HWY_INLINE void Store(Part part, V v, float* p) {
#if HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(D(), static_cast<size_t>(part.n)), D(), p);
#else
  HWY_ALIGN float tmp[kW];
  hn::Store(v, D(), tmp);
  for (int64_t i = 0; i < part.n; ++i) p[i] = tmp[i];
#endif
}
// `past` in the lanes past n.
HWY_INLINE V Select(Part part, V v, V past) {
  return hn::IfThenElse(hn::FirstN(D(), static_cast<size_t>(part.n)), v, past);
}

// Calls fn(i, Whole or Part) over [0, n).
template <class Fn>
HWY_INLINE void ForVectors(int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + kW <= n; i += kW) fn(i, Whole());
  if (i < n) fn(i, Part{n - i});
}

// 16 accumulators; vector i of a row belongs to part i % kParts.
struct Lanes {
  V v[kParts];
};
HWY_INLINE Lanes ZeroLanes() {
  Lanes l;
  for (int j = 0; j < kParts; ++j) l.v[j] = hn::Zero(D());
  return l;
}
// Combines 8, 4, 2, 1 apart.
HWY_INLINE float SumLanes(const Lanes& l) {
  HWY_ALIGN float s[kLanes];
  for (int j = 0; j < kParts; ++j) hn::Store(l.v[j], D(), s + j * kW);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int j = 0; j < step; ++j) s[j] = s[j] + s[j + step];
  return s[0];
}

// Calls fn(i, part index, Whole or Part) over [0, n), part index = i / kW % kParts.
template <class Fn>
HWY_INLINE void ForLanes(int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kParts; ++j) fn(i + j * kW, j, Whole());
  for (int j = 0; i < n; i += kW, ++j) {
    if (n - i >= kW) {
      fn(i, j, Whole());
    } else {
      fn(i, j, Part{n - i});
    }
  }
}
#endif  // BATON_SIMD

}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
