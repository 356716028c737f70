#include "kernel/reference/functions-inl.h"
#include "kernel/reference/lanes-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {

void RmsNorm(const float* x, const float* w, int64_t n, float eps, float* y) {
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) sum.l[i % kLanes] = Fma(x[i], x[i], sum.l[i % kLanes]);
  const float mean = sum.Sum() / static_cast<float>(n);
  const float inv = 1.0f / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * inv) * w[i];
}

void GatedRmsNorm(const float* y,
                  const float* z,
                  const float* w,
                  int64_t n,
                  int64_t groups,
                  float eps,
                  float* out) {
  const int64_t size = n / groups;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t o = g * size;
    for (int64_t i = o; i < o + size; ++i) out[i] = y[i] * SiluOf(z[i]);
    RmsNorm(out + o, w + o, size, eps, out + o);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = SiluOf(gate[i]) * up[i];
}

void SigmoidMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = SigmoidOf(gate[i]) * up[i];
}

void Multiply(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void AddScaled(const float* y, float m, int64_t n, float* h) {
  for (int64_t i = 0; i < n; ++i) h[i] = Fma(m, y[i], h[i]);
}

void Scale(const float* x, float m, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * m;
}

void SoftplusBias(const float* x, const float* bias, int64_t n, float lo, float hi, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = SoftplusOf(x[i] + bias[i]);
    const float low = v < lo ? lo : v;
    out[i] = low > hi ? hi : low;
  }
}

void ExpMul(const float* a, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = ExpOf(a[i] * x[i]);
}

void Rope(float* x, const float* cos, const float* sin, int64_t rot) {
  const int64_t half = rot / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = x[i];
    const float x2 = x[i + half];
    x[i] = Fma(x1, cos[i], -(x2 * sin[i]));
    x[i + half] = Fma(x2, cos[i], x1 * sin[i]);
  }
}

void Softmax(float* x, int64_t n) {
  if (n <= 0) return;
  float max = x[0];
  for (int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = ExpOf(x[i] - max);
    sum.l[i % kLanes] += x[i];
  }
  const float total = sum.Sum();
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] / total;
}

namespace {

float Of(Function f, float x) {
  switch (f) {
    case Function::kExp:
      return ExpOf(x);
    case Function::kLog1p:
      return Log1pOf(x);
    case Function::kSigmoid:
      return SigmoidOf(x);
    case Function::kSilu:
      return SiluOf(x);
    case Function::kSoftplus:
      return SoftplusOf(x);
    case Function::kTanh:
      return TanhOf(x);
    case Function::kGelu:
      return GeluOf(x);
    case Function::kGeluTanh:
      return GeluTanhOf(x);
    case Function::kRelu2:
      return Relu2Of(x);
    case Function::kExpm1:
      return Expm1Of(x);
  }
  return x;
}

}  // namespace

void Apply(Function f, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Of(f, x[i]);
}

void ApplyMul(Function f, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Of(f, gate[i]) * up[i];
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
