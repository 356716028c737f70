// The plain implementations behind ReferenceKernels() and functions.h. The sources in this
// directory are compiled once per namespace: `portable` (fma by the C library where the target has
// no such instruction) and, on x86, `fma` (FMA instructions, chosen at run time).
// Thread rule: constant tables.
#ifndef BATON_KERNEL_REFERENCE_REFERENCE_H_
#define BATON_KERNEL_REFERENCE_REFERENCE_H_

#include "kernel/kernels.h"

namespace baton::kernel {

struct ScalarFunctions {
  float (*exp)(float);
  float (*log1p)(float);
  float (*log)(float);
  float (*sigmoid)(float);
  float (*silu)(float);
  float (*softplus)(float);
  float (*tanh)(float);
  float (*expm1)(float);
  float (*gelu)(float);
  float (*gelu_tanh)(float);
  float (*relu2)(float);
  void (*sin_cos)(double, float*, float*);
  double (*pow_positive)(double, double);
};

namespace reference_portable {
extern const Kernels kTable;
extern const ScalarFunctions kScalar;
}  // namespace reference_portable
namespace reference_fma {
extern const Kernels kTable;
extern const ScalarFunctions kScalar;
}  // namespace reference_fma

// The faster of the two this CPU can run.
const ScalarFunctions& ReferenceFunctions();

#ifdef BATON_REFERENCE_NS
namespace BATON_REFERENCE_NS {
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
void ApplyMul(Function f, const float* gate, const float* up, int64_t n, float* out);
void AddScaled(const float* y, float m, int64_t n, float* h);
void Scale(const float* x, float m, int64_t n, float* y);
void SoftplusBias(const float* x, const float* bias, int64_t n, float lo, float hi, float* out);
void ExpMul(const float* a, const float* x, int64_t n, float* out);
void Rope(float* x, const float* cos, const float* sin, int64_t rot);
void Softmax(float* x, int64_t n);
void Apply(Function f, const float* x, int64_t n, float* y);
}  // namespace BATON_REFERENCE_NS
#endif

}  // namespace baton::kernel

#endif  // BATON_KERNEL_REFERENCE_REFERENCE_H_
