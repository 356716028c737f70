// Elementary functions in f32, scalar reference forms: bit-equal to the vector forms in simd/.
// Own polynomials with std::fma, never libm, so that results do not depend on the C library.
// Errors stated per function are maxima against the exact value, in units in the last place.
#ifndef BATON_KERNEL_FUNCTIONS_H_
#define BATON_KERNEL_FUNCTIONS_H_

namespace baton::kernel {

float Exp(float x);       // <= 2 ulp; 0 below -104, +inf above 88.73; NaN in, NaN out
float Log1p(float x);     // <= 4 ulp, x > -1
float Log(float x);       // <= 4 ulp, x > 0
float Sigmoid(float x);   // 1 / (1 + exp(-x)), no overflow for any finite x
float Silu(float x);      // x * Sigmoid(x)
float Softplus(float x);  // log1p(exp(-|x|)) + max(x, 0)
float Tanh(float x);
// sin and cos of a non-negative angle up to 2^22 radians; computed in double precision.
void SinCos(double x, float* sin, float* cos);
double PowPositive(double base, double exponent);  // base > 0; exp2/log2 in double

}  // namespace baton::kernel

#endif  // BATON_KERNEL_FUNCTIONS_H_
