#include "kernel/reference/functions-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {
namespace {

// Double-precision functions: plain series, used for rotary tables, never in a hot loop.
constexpr double kPiOver2Hi = 0x1.921fb54442d18p+0;
constexpr double kPiOver2Lo = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kRoundMagic64 = 0x1.8p52;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLog2E64 = 0x1.71547652b82fep+0;

// sin(r) = r + r^3 s(r^2), cos(r) = 1 + r^2 c(r^2): Taylor, below 2^-53 for |r| <= pi / 4.
constexpr double kSin[8] = {-1.0 / 6,
                            1.0 / 120,
                            -1.0 / 5040,
                            1.0 / 362880,
                            -1.0 / 39916800,
                            1.0 / 6227020800.0,
                            -1.0 / 1307674368000.0,
                            1.0 / 355687428096000.0};
constexpr double kCos[8] = {
    -1.0 / 2,       1.0 / 24,          -1.0 / 720,           1.0 / 40320,
    -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
// exp(r) = sum r^i / i!, |r| <= ln(2) / 2.
constexpr double kExp64[14] = {1.0,
                               1.0,
                               1.0 / 2,
                               1.0 / 6,
                               1.0 / 24,
                               1.0 / 120,
                               1.0 / 720,
                               1.0 / 5040,
                               1.0 / 40320,
                               1.0 / 362880,
                               1.0 / 3628800,
                               1.0 / 39916800,
                               1.0 / 479001600.0,
                               1.0 / 6227020800.0};
// atanh(s) = s sum s^2i / (2i + 1), |s| <= 0.172.
constexpr double kAtanh[12] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};

void SinCosOf(double x, float* sin, float* cos) {
  const double t = Fma(x, kTwoOverPi, kRoundMagic64);
  const uint64_t quadrant = Bits(t) & 3;
  const double n = t - kRoundMagic64;
  double r = Fma(-n, kPiOver2Hi, x);  // exact for x <= 2^22
  r = Fma(-n, kPiOver2Lo, r);
  const double z = r * r;
  const double s = Fma(r * z, Horner(kSin, z), r);
  const double c = Fma(z, Horner(kCos, z), 1.0);
  const double out_sin = (quadrant & 1) != 0 ? c : s;
  const double out_cos = (quadrant & 1) != 0 ? s : c;
  *sin = static_cast<float>((quadrant & 2) != 0 ? -out_sin : out_sin);
  *cos = static_cast<float>(quadrant == 1 || quadrant == 2 ? -out_cos : out_cos);
}

double PowPositiveOf(double base, double exponent) {
  // log2(base) = k + log2(m), m in [sqrt(1/2), sqrt(2)).
  const int64_t k = static_cast<int64_t>(Bits(base) - 0x3fe6a09e667f3bcdull) >> 52;
  const double m = FromBits(Bits(base) - (static_cast<uint64_t>(k) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double ln_m = 2.0 * s * Horner(kAtanh, s * s);
  double y = exponent * Fma(ln_m, kLog2E64, static_cast<double>(k));
  y = y < 1025.0 ? y : 1025.0;
  y = y > -1080.0 ? y : -1080.0;
  const double t = y + kRoundMagic64;
  const int64_t n = static_cast<int64_t>(Bits(t) - Bits(kRoundMagic64));
  const double r = (y - (t - kRoundMagic64)) * kLn2;
  const int64_t half = n >> 1;
  return Horner(kExp64, r) * FromBits(static_cast<uint64_t>(half + 1023) << 52) *
         FromBits(static_cast<uint64_t>(n - half + 1023) << 52);
}

float ExpFn(float x) { return ExpOf(x); }
float Log1pFn(float x) { return Log1pOf(x); }
float LogFn(float x) { return LogOf(x); }
float SigmoidFn(float x) { return SigmoidOf(x); }
float SiluFn(float x) { return SiluOf(x); }
float SoftplusFn(float x) { return SoftplusOf(x); }
float TanhFn(float x) { return TanhOf(x); }
float Expm1Fn(float x) { return Expm1Of(x); }
float GeluFn(float x) { return GeluOf(x); }
float GeluTanhFn(float x) { return GeluTanhOf(x); }
float Relu2Fn(float x) { return Relu2Of(x); }

}  // namespace

extern const ScalarFunctions kScalar = {
    .exp = ExpFn,
    .log1p = Log1pFn,
    .log = LogFn,
    .sigmoid = SigmoidFn,
    .silu = SiluFn,
    .softplus = SoftplusFn,
    .tanh = TanhFn,
    .expm1 = Expm1Fn,
    .gelu = GeluFn,
    .gelu_tanh = GeluTanhFn,
    .relu2 = Relu2Fn,
    .sin_cos = SinCosOf,
    .pow_positive = PowPositiveOf,
};

extern const Kernels kTable = {
    .name = "reference",
    .matmul = Matmul,
    .attention = Attention,
    .conv = Conv,
    .mamba2 = Mamba2,
    .mamba1 = Mamba1,
    .gated_delta = GatedDelta,
    .rg_lru = RgLru,
    .mamba2_narrow = Mamba2Narrow,
    .gated_delta_narrow = GatedDeltaNarrow,
    .narrow = Narrow,
    .widen = Widen,
    .dots = Dots,
    .rms_norm = RmsNorm,
    .gated_rms_norm = GatedRmsNorm,
    .silu_mul = SiluMul,
    .sigmoid_mul = SigmoidMul,
    .multiply = Multiply,
    .apply_mul = ApplyMul,
    .add_scaled = AddScaled,
    .scale = Scale,
    .softplus_bias = SoftplusBias,
    .exp_mul = ExpMul,
    .rope = Rope,
    .softmax = Softmax,
    .apply = Apply,
};

}  // namespace baton::kernel::BATON_REFERENCE_NS
