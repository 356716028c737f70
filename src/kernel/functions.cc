#include "kernel/functions.h"

#include "kernel/reference/reference.h"

namespace baton::kernel {

float Exp(float x) { return ReferenceFunctions().exp(x); }
float Log1p(float x) { return ReferenceFunctions().log1p(x); }
float Log(float x) { return ReferenceFunctions().log(x); }
float Sigmoid(float x) { return ReferenceFunctions().sigmoid(x); }
float Silu(float x) { return ReferenceFunctions().silu(x); }
float Softplus(float x) { return ReferenceFunctions().softplus(x); }
float Tanh(float x) { return ReferenceFunctions().tanh(x); }
float Expm1(float x) { return ReferenceFunctions().expm1(x); }
float Gelu(float x) { return ReferenceFunctions().gelu(x); }
float GeluTanh(float x) { return ReferenceFunctions().gelu_tanh(x); }
float Relu2(float x) { return ReferenceFunctions().relu2(x); }
void SinCos(double x, float* sin, float* cos) { ReferenceFunctions().sin_cos(x, sin, cos); }
double PowPositive(double base, double exponent) {
  return ReferenceFunctions().pow_positive(base, exponent);
}

}  // namespace baton::kernel
