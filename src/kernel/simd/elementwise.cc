// Norms, activations and the other vector-at-a-time kernels; see reference/elementwise.cc.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD

void RmsNorm(const float* x, const float* w, int64_t n, float eps, float* y) {
  Lanes sum = ZeroLanes();
  ForLanes(n, [&](int64_t i, int j, auto part) HWY_ATTR {
    const V v = Load(part, x + i);
    sum.v[j] = hn::MulAdd(v, v, sum.v[j]);
  });
  const float mean = SumLanes(sum) / static_cast<float>(n);
  const V inv = Splat(1.0f / __builtin_sqrtf(mean + eps));
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::Mul(hn::Mul(Load(part, x + i), inv), Load(part, w + i)), y + i);
  });
}

void GatedRmsNorm(const float* y,
                  const float* z,
                  const float* w,
                  int64_t n,
                  int64_t groups,
                  float eps,
                  float* out) {
  const int64_t size = n / groups;
  ForVectors(size * groups, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::Mul(Load(part, y + i), SiluV(Load(part, z + i))), out + i);
  });
  for (int64_t g = 0; g < groups; ++g)
    RmsNorm(out + g * size, w + g * size, size, eps, out + g * size);
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::Mul(SiluV(Load(part, gate + i)), Load(part, up + i)), out + i);
  });
}

void SigmoidMul(const float* gate, const float* up, int64_t n, float* out) {
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::Mul(SigmoidV(Load(part, gate + i)), Load(part, up + i)), out + i);
  });
}

void Multiply(const float* a, const float* b, int64_t n, float* out) {
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::Mul(Load(part, a + i), Load(part, b + i)), out + i);
  });
}

void AddScaled(const float* y, float m, int64_t n, float* h) {
  const V vm = Splat(m);
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, hn::MulAdd(vm, Load(part, y + i), Load(part, h + i)), h + i);
  });
}

void Scale(const float* x, float m, int64_t n, float* y) {
  const V vm = Splat(m);
  ForVectors(n, [&](int64_t i, auto part)
                    HWY_ATTR { Store(part, hn::Mul(Load(part, x + i), vm), y + i); });
}

void SoftplusBias(const float* x, const float* bias, int64_t n, float lo, float hi, float* out) {
  const V vlo = Splat(lo);
  const V vhi = Splat(hi);
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const V v = SoftplusV(hn::Add(Load(part, x + i), Load(part, bias + i)));
    const V low = hn::IfThenElse(hn::Lt(v, vlo), vlo, v);
    Store(part, hn::IfThenElse(hn::Gt(low, vhi), vhi, low), out + i);
  });
}

void ExpMul(const float* a, const float* x, int64_t n, float* out) {
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    Store(part, ExpV(hn::Mul(Load(part, a + i), Load(part, x + i))), out + i);
  });
}

void Rope(float* x, const float* cos, const float* sin, int64_t rot) {
  const int64_t half = rot / 2;
  ForVectors(half, [&](int64_t i, auto part) HWY_ATTR {
    const V x1 = Load(part, x + i);
    const V x2 = Load(part, x + half + i);
    const V c = Load(part, cos + i);
    const V s = Load(part, sin + i);
    Store(part, hn::MulSub(x1, c, hn::Mul(x2, s)), x + i);
    Store(part, hn::MulAdd(x2, c, hn::Mul(x1, s)), x + half + i);
  });
}

void Softmax(float* x, int64_t n) {
  if (n <= 0) return;
  V vmax = Splat(x[0]);
  ForVectors(n, [&](int64_t i, auto part)
                    HWY_ATTR { vmax = hn::Max(vmax, Select(part, Load(part, x + i), vmax)); });
  HWY_ALIGN float m[kW];
  hn::Store(vmax, D(), m);
  float max = m[0];
  for (int i = 1; i < kW; ++i) max = m[i] > max ? m[i] : max;
  const V top = Splat(max);
  Lanes sum = ZeroLanes();
  ForLanes(n, [&](int64_t i, int j, auto part) HWY_ATTR {
    const V e = ExpV(hn::Sub(Load(part, x + i), top));
    Store(part, e, x + i);
    sum.v[j] = hn::Add(sum.v[j], Select(part, e, hn::Zero(D())));
  });
  const V total = Splat(SumLanes(sum));
  ForVectors(n, [&](int64_t i, auto part)
                    HWY_ATTR { Store(part, hn::Div(Load(part, x + i), total), x + i); });
}

namespace {

// Calls fn with the vector form of `f`.
template <class Fn>
HWY_INLINE void With(Function f, const Fn& fn) {
  switch (f) {
    case Function::kExp:
      return fn([](V v) HWY_ATTR { return ExpV(v); });
    case Function::kLog1p:
      return fn([](V v) HWY_ATTR { return Log1pV(v); });
    case Function::kSigmoid:
      return fn([](V v) HWY_ATTR { return SigmoidV(v); });
    case Function::kSilu:
      return fn([](V v) HWY_ATTR { return SiluV(v); });
    case Function::kSoftplus:
      return fn([](V v) HWY_ATTR { return SoftplusV(v); });
    case Function::kTanh:
      return fn([](V v) HWY_ATTR { return TanhV(v); });
    case Function::kGelu:
      return fn([](V v) HWY_ATTR { return GeluV(v); });
    case Function::kGeluTanh:
      return fn([](V v) HWY_ATTR { return GeluTanhV(v); });
    case Function::kRelu2:
      return fn([](V v) HWY_ATTR { return Relu2V(v); });
    case Function::kExpm1:
      return fn([](V v) HWY_ATTR { return Expm1V(v); });
  }
}

}  // namespace

void Apply(Function f, const float* x, int64_t n, float* y) {
  With(f, [&](auto of) HWY_ATTR {
    ForVectors(n,
               [&](int64_t i, auto part) HWY_ATTR { Store(part, of(Load(part, x + i)), y + i); });
  });
}

void ApplyMul(Function f, const float* gate, const float* up, int64_t n, float* out) {
  With(f, [&](auto of) HWY_ATTR {
    ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
      Store(part, hn::Mul(of(Load(part, gate + i)), Load(part, up + i)), out + i);
    });
  });
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
