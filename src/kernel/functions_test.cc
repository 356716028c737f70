#include "kernel/functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/packed_matrix.h"

namespace baton::kernel {
namespace {

// Bit patterns between two arguments of a sweep over f32: a prime, coarser under sanitizers.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSweepStride = 20011;
#else
constexpr uint64_t kSweepStride = 1009;
#endif

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float FromBits(uint32_t u) {
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}

// Distance in units of the last place of the exact value, which is given in long double.
double UlpError(float got, long double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || rounded == 0.0f) return got == rounded ? 0 : 1e30;
  int e;
  std::frexp(rounded, &e);
  const long double ulp = std::ldexp(1.0L, std::max(e - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / ulp);
}

struct Sweep {
  float lo, hi;
  double ulp_max;
};

// Every kSweepStride-th float in [lo, hi] by bit pattern.
template <class F, class G>
double WorstUlp(const Sweep& s, F fn, G exact) {
  double worst = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += kSweepStride) {
    const float x = FromBits(static_cast<uint32_t>(bits));
    if (!(x >= s.lo && x <= s.hi)) continue;
    const double e = UlpError(fn(x), exact(static_cast<long double>(x)));
    if (e > worst) worst = e;
  }
  return worst;
}

TEST(FunctionsTest, ErrorsStayWithinTheStatedBounds) {
  const auto sigmoid = [](long double x) { return 1 / (1 + expl(-x)); };
  const auto softplus = [](long double x) { return log1pl(expl(-fabsl(x))) + fmaxl(x, 0); };
  const double exp = WorstUlp({-104, 88.7f, 0}, Exp, [](long double x) { return expl(x); });
  const double log = WorstUlp({1e-45f, 3e38f, 0}, Log, [](long double x) { return logl(x); });
  const double log1p =
      WorstUlp({-0.9999999f, 3e38f, 0}, Log1p, [](long double x) { return log1pl(x); });
  const double sig = WorstUlp({-103, 3e38f, 0}, Sigmoid, sigmoid);
  const double silu =
      WorstUlp({-86, 3e38f, 0}, Silu, [&](long double x) { return x * sigmoid(x); });
  const double soft = WorstUlp({-86, 3e38f, 0}, Softplus, softplus);
  const double tanh = WorstUlp({-3e38f, 3e38f, 0}, Tanh, [](long double x) { return tanhl(x); });
  const double expm1 = WorstUlp({-104, 88.7f, 0}, Expm1, [](long double x) { return expm1l(x); });
  const double gelu = WorstUlp({-13, 3e38f, 0}, Gelu,
                               [](long double x) { return x * 0.5L * erfcl(-x * sqrtl(0.5L)); });
  const double gelu_tanh = WorstUlp({-2, 3e38f, 0}, GeluTanh, [](long double x) {
    const long double u = sqrtl(8 / acosl(-1)) * (x + 0.044715L * x * x * x);
    return x / (1 + expl(-u));
  });
  std::printf("ulp: gelu %.2f gelu_tanh %.2f\n", gelu, gelu_tanh);
  std::printf(
      "ulp: exp %.2f log %.2f log1p %.2f sigmoid %.2f silu %.2f softplus %.2f tanh %.2f expm1 "
      "%.2f\n",
      exp, log, log1p, sig, silu, soft, tanh, expm1);
  EXPECT_LE(exp, 1.5);
  EXPECT_LE(log, 1.5);
  EXPECT_LE(log1p, 1.5);
  EXPECT_LE(sig, 3);
  EXPECT_LE(silu, 4);
  EXPECT_LE(soft, 3);
  EXPECT_LE(tanh, 3);
  EXPECT_LE(expm1, 4);
  EXPECT_LE(gelu, 7);
  EXPECT_LE(gelu_tanh, 7);
}

TEST(FunctionsTest, EdgesOfTheDomain) {
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(88.73f), kInf);
  EXPECT_EQ(Exp(-104.0f), 0.0f);
  EXPECT_GT(Exp(-103.0f), 0.0f) << "subnormal results are kept";
  EXPECT_TRUE(std::isnan(Exp(kNaN)));
  EXPECT_EQ(Log(0.0f), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(kNaN)));
  EXPECT_EQ(Log1p(-1.0f), -kInf);
  EXPECT_EQ(Log1p(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log1p(-2.0f)));
  EXPECT_TRUE(std::isnan(Log1p(kNaN)));
  EXPECT_EQ(Sigmoid(-kInf), 0.0f);
  EXPECT_EQ(Sigmoid(kInf), 1.0f);
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Silu(-3e38f), 0.0f);
  EXPECT_EQ(Softplus(-kInf), 0.0f);
  EXPECT_EQ(Softplus(1000.0f), 1000.0f);
  EXPECT_EQ(Tanh(kInf), 1.0f);
  EXPECT_EQ(Tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNaN)));
  for (const auto gelu : {Gelu, GeluTanh}) {
    EXPECT_EQ(gelu(0.0f), 0.0f);
    EXPECT_EQ(gelu(1e30f), 1e30f);
    EXPECT_EQ(gelu(kInf), kInf);
    EXPECT_EQ(gelu(-1e30f), 0.0f);
    EXPECT_TRUE(std::isnan(gelu(kNaN)));
  }
  EXPECT_EQ(Relu2(3.0f), 9.0f);
  EXPECT_EQ(Relu2(-3.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Relu2(kNaN)));
}

TEST(FunctionsTest, SinCosIsCorrectlyRoundedOrNearlySo) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::ldexp(i * 1.9073486328125 + 1e-3 * i, -7 + i % 12);
    if (x > 4194304.0) continue;
    float s, c;
    SinCos(x, &s, &c);
    worst = std::max({worst, UlpError(s, sinl(x)), UlpError(c, cosl(x))});
  }
  EXPECT_LE(worst, 0.51);
  float s, c;
  SinCos(0.0, &s, &c);
  EXPECT_EQ(s, 0.0f);
  EXPECT_EQ(c, 1.0f);
}

TEST(FunctionsTest, PowPositive) {
  double worst = 0;
  for (double base : {10000.0, 1e6, 1e7, 1e11, 0.7, 1.5, 2.0}) {
    for (int i = -1000; i <= 1000; ++i) {
      const double e = i / 700.0;
      const long double exact = powl(base, e);
      worst = std::max(worst, static_cast<double>(fabsl((PowPositive(base, e) - exact) / exact)));
    }
  }
  EXPECT_LE(worst, 2e-14);
  EXPECT_EQ(PowPositive(10000.0, 0.0), 1.0);
  EXPECT_EQ(PowPositive(2.0, 10.0), 1024.0);
}

TEST(PackedMatrixTest, NarrowFormatsWidenExactly) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float v = LoadElement(&bits, DType::kF16, 0);
    const int exp = (h >> 10) & 31;
    const int man = h & 1023;
    if (exp == 31) {
      EXPECT_EQ(std::isnan(v), man != 0);
      EXPECT_EQ(std::isinf(v), man == 0);
      continue;
    }
    const float magnitude =
        exp == 0 ? std::ldexp(float(man), -24) : std::ldexp(float(man + 1024), exp - 25);
    EXPECT_EQ(v, (h & 0x8000) != 0 ? -magnitude : magnitude) << h;
    const float b = LoadElement(&bits, DType::kBF16, 0);
    if (!std::isnan(b)) {
      EXPECT_EQ(ToBF16(b), bits);
    }
  }
  EXPECT_EQ(ToBF16(FromBits(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(ToBF16(FromBits(0x3f818000u)), 0x3f82);
  EXPECT_EQ(ToBF16(FromBits(0x3f808001u)), 0x3f81);
  EXPECT_EQ(ToBF16(FromBits(0x7f7fffffu)), 0x7f80);  // rounds to infinity
  EXPECT_EQ(ToBF16(FromBits(0x7f800001u)) & 0x7fc0, 0x7fc0);
}

TEST(PackedMatrixTest, PanelsHoldTheRowsAndZeros) {
  const int64_t rows = 21, cols = 5, stride = 7;
  std::vector<uint8_t> raw(rows * stride * 4 + 1);
  for (int64_t i = 0; i < rows * stride; ++i) {
    const auto v = static_cast<float>(i + 1);
    std::memcpy(raw.data() + 1 + i * 4, &v, 4);  // unaligned on purpose
  }
  ThreadPool pool(2);
  for (ThreadPool* p : {static_cast<ThreadPool*>(nullptr), &pool}) {
    auto m = PackedMatrix::Pack(raw.data() + 1, DType::kF32, rows, cols, stride, p);
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(m->panels(), 2);
    EXPECT_EQ(m->bytes(), 2u * 5 * 16 * 4);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m->data()) % 64, 0u);
    const auto* d = static_cast<const float*>(m->data());
    for (int64_t r = 0; r < 32; ++r)
      for (int64_t k = 0; k < cols; ++k)
        EXPECT_EQ(d[(r / 16 * cols + k) * 16 + r % 16],
                  r < rows ? static_cast<float>(r * stride + k + 1) : 0.0f);
  }
}

TEST(PackedMatrixTest, RefusesNonsense) {
  float v = 1;
  EXPECT_EQ(PackedMatrix::Pack(nullptr, DType::kF32, 1, 1, 1, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PackedMatrix::Pack(&v, DType::kF32, 0, 1, 1, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PackedMatrix::Pack(&v, DType::kF32, 1, 2, 1, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(PackedMatrix::Pack(&v, DType::kF32, huge, huge, huge, nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::kernel
