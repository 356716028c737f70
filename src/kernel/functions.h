// Elementary functions in f32, scalar reference forms: bit-equal to the vector forms in simd/.
// Own polynomials with std::fma, never libm, so that results do not depend on the C library.
// Errors are maxima against the exact value in units in the last place, seen over every 1009th bit
// pattern of f32 (functions_test.cc). Thread rule: pure functions.
#ifndef BATON_KERNEL_FUNCTIONS_H_
#define BATON_KERNEL_FUNCTIONS_H_

namespace baton::kernel {

float Exp(float x);    // 1.0 ulp; 0 from -104 down, +inf from 88.73 up, subnormals kept; NaN stays
float Log(float x);    // 0.8 ulp; log(0) = -inf, NaN below
float Log1p(float x);  // 1.5 ulp; log1p(-1) = -inf, NaN below
float Sigmoid(float x);   // 2.3 ulp; 1 / (1 + exp(-x)) as e / (1 + e), e = exp(-|x|), for x < 0
float Silu(float x);      // 3.0 ulp for x > -86; x * Sigmoid(x)
float Softplus(float x);  // 1.6 ulp for x > -86; log1p(exp(-|x|)) + max(x, 0)
float Tanh(float x);      // 1.3 ulp; odd, keeps the sign of zero
float Expm1(float x);     // 3.3 ulp; exp(x) - 1, without cancellation near 0
float Gelu(float x);      // 6.7 ulp for x > -13; x * Phi(x), Phi the normal distribution function
float GeluTanh(float x);  // 6.5 ulp for x > -2; x * Sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
float Relu2(float x);     // exact before rounding; max(x, 0)^2
// sin and cos of an angle in [0, 2^22] radians, computed in double precision; 0.51 ulp.
void SinCos(double x, float* sin, float* cos);
// base > 0 and normal; relative error <= 2e-14 while |exponent * log2(base)| <= 64.
double PowPositive(double base, double exponent);

}  // namespace baton::kernel

#endif  // BATON_KERNEL_FUNCTIONS_H_
