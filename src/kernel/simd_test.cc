// Every compiled target this CPU can run, against the reference, bit for bit, over awkward shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

using Vec = std::vector<float>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Random {
 public:
  explicit Random(uint64_t seed) : rng_(seed) {}
  Vec Uniform(int64_t n, double lo = -1, double hi = 1) {
    Vec v(static_cast<size_t>(n));
    for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng_.Uniform());
    return v;
  }
  int64_t Int(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(hi - lo + 1)));
  }

 private:
  SplitMix64 rng_;
};

// Bitwise; any NaN equals any other, because which operand's payload survives is not fixed.
::testing::AssertionResult SameBits(const Vec& a, const Vec& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    uint32_t x, y;
    std::memcpy(&x, &a[i], 4);
    std::memcpy(&y, &b[i], 4);
    if (x != y && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": " << a[i] << " != " << b[i] << " (bits "
             << std::hex << x << " and " << y << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

// One test per (kernel, target).
class SimdTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& simd() const { return *GetParam(); }
  const Kernels& ref() const { return ReferenceKernels(); }
};

INSTANTIATE_TEST_SUITE_P(Targets,
                         SimdTest,
                         ::testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

PackedMatrix Weights(Random* rnd, DType dtype, int64_t rows, int64_t cols) {
  const Vec w = rnd->Uniform(rows * cols);
  std::vector<uint16_t> half(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    half[i] = dtype == DType::kBF16 ? ToBF16(w[i]) : static_cast<uint16_t>(rnd->Int(0, 0xffff));
    if ((half[i] & 0x7c00) == 0x7c00 && dtype == DType::kF16) half[i] &= 0x83ff;  // finite
  }
  const void* src = dtype == DType::kF32 ? static_cast<const void*>(w.data()) : half.data();
  auto m = PackedMatrix::Pack(src, dtype, rows, cols, cols, nullptr);
  EXPECT_TRUE(m.ok());
  return *std::move(m);
}

TEST_P(SimdTest, MatmulGivesTheSameBits) {
  Random rnd(1);
  const int64_t depths[] = {1, 7, 33, 255, 256, 257, 600};
  const int64_t outs[] = {1, 8, 16, 23, 70, 144};
  int shape = 0;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t rows = 1; rows <= 70; ++rows) {
      const int64_t depth = depths[shape % 7];
      const int64_t out = outs[shape / 2 % 6];
      ++shape;
      const PackedMatrix w = Weights(&rnd, dtype, out, depth);
      const int64_t ldx = depth + rnd.Int(0, 3), ldy = out + rnd.Int(0, 3);
      const Vec x = rnd.Uniform(rows * ldx);
      Vec want = rnd.Uniform(rows * ldy), got = want;
      MatmulArgs a{.x = x.data(),
                   .ldx = ldx,
                   .rows = rows,
                   .w = &w,
                   .panel_begin = 0,
                   .panel_end = w.panels(),
                   .y = want.data(),
                   .ldy = ldy,
                   .accumulate = shape % 3 == 0};
      ref().matmul(a);
      a.y = got.data();
      simd().matmul(a);
      ASSERT_TRUE(SameBits(got, want))
          << "rows " << rows << " depth " << depth << " out " << out << " dtype " << int(dtype);
    }
  }
}

TEST_P(SimdTest, MatmulRowsDoNotDependOnTheirNumberOrThePanelRange) {
  Random rnd(2);
  const int64_t rows = 130, depth = 530, out = 100;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const PackedMatrix w = Weights(&rnd, dtype, out, depth);
    const Vec x = rnd.Uniform(rows * depth);
    Vec whole(rows * out), pieces(rows * out);
    MatmulArgs a{.x = x.data(),
                 .ldx = depth,
                 .rows = rows,
                 .w = &w,
                 .panel_begin = 0,
                 .panel_end = w.panels(),
                 .y = whole.data(),
                 .ldy = out};
    simd().matmul(a);
    for (int64_t r = 0; r < rows;) {
      const int64_t n = std::min<int64_t>(rnd.Int(1, 40), rows - r);
      for (int64_t p = 0; p < w.panels();) {
        const int64_t m = std::min<int64_t>(rnd.Int(1, 3), w.panels() - p);
        simd().matmul({.x = x.data() + r * depth,
                       .ldx = depth,
                       .rows = n,
                       .w = &w,
                       .panel_begin = p,
                       .panel_end = p + m,
                       .y = pieces.data() + r * out,
                       .ldy = out});
        p += m;
      }
      r += n;
    }
    ASSERT_TRUE(SameBits(pieces, whole));
  }
}

TEST_P(SimdTest, FunctionsGiveTheSameBitsOverAllOfF32) {
  constexpr int64_t kChunk = 4099;
  Vec x(kChunk), want(kChunk), got(kChunk);
  for (Function f : {Function::kExp, Function::kLog1p, Function::kSigmoid, Function::kSilu,
                     Function::kSoftplus, Function::kTanh}) {
    uint64_t bits = static_cast<uint64_t>(f);
    while (bits <= 0xffffffffu) {
      for (float& v : x) {
        const auto u = static_cast<uint32_t>(bits);
        std::memcpy(&v, &u, 4);
        bits += 1009;
      }
      ref().apply(f, x.data(), kChunk, want.data());
      simd().apply(f, x.data(), kChunk, got.data());
      ASSERT_TRUE(SameBits(got, want)) << "function " << int(f);
    }
  }
}

TEST_P(SimdTest, ElementwiseGivesTheSameBits) {
  Random rnd(3);
  for (int64_t n = 1; n <= 131; ++n) {
    const Vec x = rnd.Uniform(n, -8, 8), z = rnd.Uniform(n, -100, 100), w = rnd.Uniform(n);
    const Vec start = rnd.Uniform(n + 1);  // one more: memory past n must stay
    Vec want = start, got = start;
    const auto run = [&](auto fn) {
      want = got = start;
      fn(ref(), want.data());
      fn(simd(), got.data());
      return SameBits(got, want);
    };
    ASSERT_TRUE(run([&](const Kernels& k, float* y) {
      k.rms_norm(x.data(), w.data(), n, 1e-5f, y);
    })) << "rms_norm "
        << n;
    for (int64_t groups : {1, 2, 3, 5}) {
      if (n % groups != 0) continue;
      ASSERT_TRUE(run([&](const Kernels& k, float* y) {
        k.gated_rms_norm(x.data(), z.data(), w.data(), n, groups, 1e-5f, y);
      })) << "gated_rms_norm "
          << n;
    }
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.silu_mul(z.data(), x.data(), n, y); }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.add_scaled(x.data(), 0.22f, n, y); }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.scale(x.data(), 12.3f, n, y); }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) {
      k.softplus_bias(x.data(), w.data(), n, 0.01f, 5.0f, y);
    }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.exp_mul(x.data(), z.data(), n, y); }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.rope(y, x.data(), w.data(), n / 2 * 2); }))
        << "rope " << n;
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.softmax(y, n); })) << "softmax " << n;
    const float* in_place = x.data();
    ASSERT_TRUE(run([&](const Kernels& k, float* y) {
      std::memcpy(y, in_place, static_cast<size_t>(n) * 4);
      k.rms_norm(y, w.data(), n, 1e-5f, y);
      k.apply(Function::kTanh, y, n, y);
    }));
  }
}

TEST_P(SimdTest, NumericsTagIsTheSame) {
  EXPECT_EQ(NumericsTag(simd()).Hex(), NumericsTag(ref()).Hex());
}

}  // namespace
}  // namespace baton::kernel
