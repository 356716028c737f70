// Narrow state: the reference against its definition in double precision and exhaustive codes, and
// every implementation against the reference, bit for bit.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

constexpr StateDType kNarrow[] = {StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3};
constexpr Rounding kRoundings[] = {Rounding::kNearest, Rounding::kStochastic};

std::vector<float> Uniform(SplitMix64* rng, int64_t n, double lo, double hi) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng->Uniform());
  return v;
}

// Rows of one dtype with their scales.
struct Stored {
  Stored(StateDType d, int64_t r, int64_t w)
      : dtype(d),
        rows(r),
        width(w),
        bytes(static_cast<size_t>(r * w) * StateElementBytes(d)),
        scales(static_cast<size_t>(r)) {}
  NarrowArgs Args(float* wide, Rounding rounding, uint64_t key) {
    return {.dtype = dtype,
            .rounding = rounding,
            .key = key,
            .rows = rows,
            .width = width,
            .wide = wide,
            .narrow = bytes.data(),
            .scales = dtype == StateDType::kF8E4M3 ? scales.data() : nullptr};
  }
  StateDType dtype;
  int64_t rows, width;
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;
  bool operator==(const Stored&) const = default;
};

std::vector<float> RoundTrip(const Kernels& k,
                             StateDType d,
                             Rounding r,
                             std::vector<float> v,
                             int64_t width,
                             uint64_t key = 1) {
  Stored s(d, static_cast<int64_t>(v.size()) / width, width);
  k.narrow(s.Args(v.data(), r, key));
  k.widen(s.Args(v.data(), r, key));
  return v;
}

TEST(StateDTypeTest, NamesParse) {
  for (const StateDType d :
       {StateDType::kF32, StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3})
    EXPECT_EQ(ParseStateDType(StateDTypeName(d)), d);
  EXPECT_FALSE(ParseStateDType("fp16").has_value());
}

// Every code of every dtype is a fixed point of either rounding.
TEST(NarrowReferenceTest, EveryCodeComesBackAsItself) {
  for (const StateDType d : kNarrow) {
    const int64_t codes = d == StateDType::kF8E4M3 ? 256 : 65536;
    Stored all(d, 1, codes);
    all.scales[0] = 0x3f80;  // 1
    for (int64_t i = 0; i < codes; ++i) {
      if (d == StateDType::kF8E4M3) {
        all.bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
      } else {
        const auto code = static_cast<uint16_t>(i);
        std::memcpy(all.bytes.data() + 2 * i, &code, 2);
      }
    }
    std::vector<float> wide(static_cast<size_t>(codes));
    ReferenceKernels().widen(all.Args(wide.data(), Rounding::kNearest, 0));
    if (d == StateDType::kF8E4M3) {
      EXPECT_EQ(wide[0x7e], 448.0f);
      EXPECT_EQ(wide[0x01], 0x1p-9f);
      EXPECT_EQ(wide[0x88], -0x1p-6f);
      wide[0x7f] = wide[0xff] = 0;  // NaN codes: never written
    }
    for (float& v : wide)
      if (!std::isfinite(v)) v = 0;
    for (const Rounding r : kRoundings) {
      const std::vector<float> back = RoundTrip(ReferenceKernels(), d, r, wide, codes, 77);
      for (int64_t i = 0; i < codes; ++i)
        ASSERT_EQ(back[i], wide[i]) << StateDTypeName(d) << " code " << i;
    }
  }
}

// The neighbours of a value in a dtype, by the spacing at its magnitude (scale 1 for e4m3).
double Spacing(StateDType d, double v) {
  const int mantissa = d == StateDType::kBF16 ? 7 : d == StateDType::kF16 ? 10 : 3;
  const int least = d == StateDType::kBF16 ? -126 : d == StateDType::kF16 ? -14 : -6;
  int e;
  std::frexp(v, &e);
  return std::ldexp(1.0, std::max(e - 1, least) - mantissa);
}

TEST(NarrowReferenceTest, NearestIsNearestAndStochasticKeepsTheMean) {
  SplitMix64 rng(5);
  for (const StateDType d : kNarrow) {
    std::vector<float> v;
    for (int i = 0; i < 4000; ++i)
      v.push_back(static_cast<float>((rng.Uniform() - 0.5) * std::ldexp(1.0, -(i % 24))));
    v[0] = 448.0f;  // the row's scale is 1
    const int64_t n = static_cast<int64_t>(v.size());
    const std::vector<float> nearest = RoundTrip(ReferenceKernels(), d, Rounding::kNearest, v, n);
    double drift = 0, steps = 0;
    std::vector<double> mean(v.size());
    constexpr int kKeys = 64;
    for (int key = 0; key < kKeys; ++key) {
      const std::vector<float> s = RoundTrip(ReferenceKernels(), d, Rounding::kStochastic, v, n,
                                             RoundingKey(3, 1, static_cast<uint64_t>(key)));
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_LT(std::abs(double(s[i]) - v[i]), Spacing(d, v[i]) * (1 + 1e-9)) << v[i];
        drift += (double(s[i]) - v[i]) / Spacing(d, v[i]);
        steps += 1;
      }
    }
    for (int64_t i = 0; i < n; ++i)
      ASSERT_LE(std::abs(double(nearest[i]) - v[i]), Spacing(d, v[i]) * 0.5) << v[i];
    // Each error is below one step, so the mean of 256,000 lies within 5 sigma of 0.
    EXPECT_LT(std::abs(drift / steps), 5 / std::sqrt(steps)) << StateDTypeName(d);
  }
}

TEST(NarrowReferenceTest, ScalesFitTheRow) {
  for (const float largest : {448.0f, 449.0f, 1e-30f, 1e30f, 0x1p-140f, 2.9e38f, 0.0f}) {
    std::vector<float> v = {largest, -largest / 3, 0};
    Stored s(StateDType::kF8E4M3, 1, 3);
    ReferenceKernels().narrow(s.Args(v.data(), Rounding::kNearest, 0));
    EXPECT_LE(s.bytes[0], 0x7e) << largest;
    if (largest >= 0x1p-100f) {
      EXPECT_GE(s.bytes[0], 0x76) << largest;
    }
    std::vector<float> back(3);
    ReferenceKernels().widen(s.Args(back.data(), Rounding::kNearest, 0));
    EXPECT_NEAR(back[0], largest, largest / 16 + 0x1p-126f);
  }
  // A row that is not finite is stored as such: verification and logits see it.
  for (const float far : {INFINITY, -INFINITY, static_cast<float>(NAN), 3.0e38f}) {
    std::vector<float> v = {1, far};
    Stored s(StateDType::kF8E4M3, 1, 2);
    ReferenceKernels().narrow(s.Args(v.data(), Rounding::kNearest, 0));
    EXPECT_EQ(s.scales[0], 0x7fc0) << far;
  }
  for (const StateDType d : {StateDType::kBF16, StateDType::kF16}) {
    const std::vector<float> back =
        RoundTrip(ReferenceKernels(), d, Rounding::kStochastic, {INFINITY, -INFINITY, NAN}, 3);
    EXPECT_EQ(back[0], INFINITY);
    EXPECT_EQ(back[1], -INFINITY);
    EXPECT_NE(back[2], back[2]);
  }
}

// A head with its step's inputs at pointers apart, as the model gives them.
struct Head {
  Head(SplitMix64* rng, StateDType d, int64_t n, int64_t p) : n(n), p(p), base(d, n, p) {
    x = Uniform(rng, 16 * p, -2, 2);
    c = Uniform(rng, 16 * n, -1, 1);
    const std::vector<float> dt = Uniform(rng, 16, 0.01, 1);
    for (int64_t j = 0; j < 16; ++j) {
      dx.push_back(std::vector<float>(x.begin() + j * p, x.begin() + (j + 1) * p));
      for (float& v : dx.back()) v *= dt[j];
      b.push_back(Uniform(rng, n, -1, 1));
      decay.push_back(Uniform(rng, 1, 0.6, 1));
    }
    for (int64_t j = 0; j < 16; ++j) {
      dx_at.push_back(dx[j].data());
      b_at.push_back(b[j].data());
      decay_at.push_back(decay[j].data());
    }
    state = Uniform(rng, n * p, -3, 3);
    ReferenceKernels().narrow(base.Args(state.data(), Rounding::kNearest, 0));
    ReferenceKernels().widen(base.Args(state.data(), Rounding::kNearest, 0));
    cb.resize(16 * 16);
    for (int64_t t = 0; t < 16; ++t)
      ReferenceKernels().dots(c.data() + t * n, b_at.data(), 0, t + 1, n, cb.data() + t * 16);
    y.resize(16 * p);
  }
  void Run(const Kernels& k, int64_t first, int64_t tokens, Rounding rounding) {
    k.mamba2_narrow({.dtype = base.dtype,
                     .rounding = rounding,
                     .base = base.bytes.data(),
                     .scales = base.dtype == StateDType::kF8E4M3 ? base.scales.data() : nullptr,
                     .n_state = n,
                     .head_dim = p,
                     .first = first,
                     .tokens = tokens,
                     .dx = dx_at.data(),
                     .dx_offset = 0,
                     .b = b_at.data(),
                     .b_offset = 0,
                     .decay = decay_at.data(),
                     .decay_offset = 0,
                     .c = c.data() + first * n,
                     .ldc = n,
                     .cb = cb.data() + first * 16,
                     .ldcb = 16,
                     .x = skip ? x.data() + first * p : nullptr,
                     .ldx = p,
                     .d = 0.3f,
                     .y = y.data() + first * p,
                     .ldy = p,
                     .key = 99});
  }
  int64_t n, p;
  bool skip = true;
  Stored base;
  std::vector<float> x, c, state, cb, y;
  std::vector<std::vector<float>> dx, b, decay;
  std::vector<const float*> dx_at, b_at, decay_at;
};

// The base holds the state `s` within one step of its dtype.
void ExpectFolded(Stored* base, const std::vector<double>& s) {
  std::vector<float> folded(s.size());
  ReferenceKernels().widen(base->Args(folded.data(), Rounding::kNearest, 0));
  const double step = base->dtype == StateDType::kF8E4M3 ? 1.0 / 16
                      : base->dtype == StateDType::kBF16 ? 1.0 / 256
                                                         : 1.0 / 2048;
  double largest = 0;
  for (const double v : s) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < s.size(); ++i) ASSERT_NEAR(folded[i], s[i], step * largest + 1e-4);
}

TEST(NarrowReferenceTest, SecondFormIsTheRecurrence) {
  SplitMix64 rng(6);
  for (const StateDType d : kNarrow) {
    Head head(&rng, d, 24, 40);
    std::vector<double> s(head.state.begin(), head.state.end());
    head.Run(ReferenceKernels(), 0, 16, Rounding::kNearest);
    for (int64_t t = 0; t < 16; ++t) {
      for (int64_t p = 0; p < 40; ++p) {
        double y = 0.3f * double(head.x[t * 40 + p]);
        for (int64_t n = 0; n < 24; ++n) {
          double& v = s[n * 40 + p];
          v = v * head.decay[t][0] + double(head.b[t][n]) * head.dx[t][p];
          y += v * head.c[t * 24 + n];
        }
        ASSERT_NEAR(head.y[t * 40 + p], y, 1e-4);
      }
    }
    ExpectFolded(&head.base, s);
  }
}

// A value head of the gated delta rule: its inputs are such that u must come out of the kernel.
struct DeltaHead {
  DeltaHead(SplitMix64* rng, StateDType d, int64_t n, int64_t p) : n(n), p(p), base(d, n, p) {
    const double length = 1.5 / std::sqrt(static_cast<double>(n));
    k = Uniform(rng, 16 * n, -length, length);
    q = Uniform(rng, 16 * n, -1, 1);
    v = Uniform(rng, 16 * p, -2, 2);
    beta = Uniform(rng, 16, 0, 2);
    decay = Uniform(rng, 16, 0.6, 1);
    state = Uniform(rng, n * p, -3, 3);
    ReferenceKernels().narrow(base.Args(state.data(), Rounding::kNearest, 0));
    ReferenceKernels().widen(base.Args(state.data(), Rounding::kNearest, 0));
    kk.resize(16 * 16);
    qk.resize(16 * 16);
    y.assign(16 * p, NAN);
    u.assign(16 * p, NAN);
    const Pointers at(*this);
    for (int64_t t = 0; t < 16; ++t) {
      ReferenceKernels().dots(k.data() + t * n, at.k.data(), 0, t, n, kk.data() + t * 16);
      ReferenceKernels().dots(q.data() + t * n, at.k.data(), 0, t + 1, n, qk.data() + t * 16);
    }
  }
  // Of the tokens of the step; a copy of the head has its own.
  struct Pointers {
    explicit Pointers(const DeltaHead& h) {
      for (int64_t j = 0; j < 16; ++j) {
        u.push_back(h.u.data() + j * h.p);
        k.push_back(h.k.data() + j * h.n);
        decay.push_back(h.decay.data() + j);
      }
    }
    std::vector<const float*> u, k, decay;
  };
  void Run(const Kernels& kernels, int64_t first, int64_t tokens, Rounding rounding) {
    const Pointers at(*this);
    kernels.gated_delta_narrow(
        {.step = {.dtype = base.dtype,
                  .rounding = rounding,
                  .base = base.bytes.data(),
                  .scales = base.dtype == StateDType::kF8E4M3 ? base.scales.data() : nullptr,
                  .n_state = n,
                  .head_dim = p,
                  .first = first,
                  .tokens = tokens,
                  .dx = at.u.data(),
                  .dx_offset = 0,
                  .b = at.k.data(),
                  .b_offset = 0,
                  .decay = at.decay.data(),
                  .decay_offset = 0,
                  .c = q.data() + first * n,
                  .ldc = n,
                  .cb = qk.data() + first * 16,
                  .ldcb = 16,
                  .y = y.data() + first * p,
                  .ldy = p,
                  .key = 98},
         .u = u.data() + first * p,
         .ldu = p,
         .kk = kk.data() + first * 16,
         .ldkk = 16,
         .v = v.data() + first * p,
         .ldv = p,
         .beta = beta.data() + first,
         .ldbeta = 1});
  }
  int64_t n, p;
  Stored base;
  std::vector<float> k, q, v, beta, decay, state, kk, qk, y, u;
};

TEST(NarrowReferenceTest, SecondFormIsTheDeltaRule) {
  SplitMix64 rng(16);
  for (const StateDType d : kNarrow) {
    DeltaHead head(&rng, d, 24, 40);
    std::vector<double> s(head.state.begin(), head.state.end());
    head.Run(ReferenceKernels(), 0, 16, Rounding::kNearest);
    for (int64_t t = 0; t < 16; ++t) {
      const float *k = head.k.data() + t * 24, *q = head.q.data() + t * 24;
      for (int64_t p = 0; p < 40; ++p) {
        double read = 0, y = 0;
        for (int64_t n = 0; n < 24; ++n) read += (s[n * 40 + p] *= head.decay[t]) * k[n];
        const double u = head.beta[t] * (head.v[t * 40 + p] - read);
        for (int64_t n = 0; n < 24; ++n) y += (s[n * 40 + p] += k[n] * u) * q[n];
        ASSERT_NEAR(head.u[t * 40 + p], u, 1e-4);
        ASSERT_NEAR(head.y[t * 40 + p], y, 1e-4);
      }
    }
    ExpectFolded(&head.base, s);
  }
}

class NarrowTest : public ::testing::TestWithParam<const Kernels*> {};

// The element of index 0 of a row draws `least` or more of the highest random bits.
uint64_t KeyThatDraws(uint32_t least) {
  for (uint64_t key = 0;; ++key)
    if (RoundingBits(key, 0) >= least) return key;
}

INSTANTIATE_TEST_SUITE_P(Targets,
                         NarrowTest,
                         ::testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST_P(NarrowTest, RoundingGivesTheSameBits) {
  SplitMix64 rng(7);
  for (const StateDType d : kNarrow) {
    for (const Rounding r : kRoundings) {
      for (int64_t width = 1; width <= 70; ++width) {
        const int64_t rows = 1 + width % 5;
        std::vector<float> v = Uniform(&rng, rows * width, -1, 1);
        for (float& x : v) x = std::ldexp(x, -static_cast<int>(rng.Below(40)));
        if (width % 7 == 0) v[0] = 0x1p-140f;
        if (width % 11 == 0) v.assign(v.size(), 0.0f);
        if (width % 13 == 0) v[v.size() - 1] = 1e6f;
        Stored want(d, rows, width), got(d, rows, width);
        ReferenceKernels().narrow(want.Args(v.data(), r, 12345));
        GetParam()->narrow(got.Args(v.data(), r, 12345));
        ASSERT_EQ(got, want) << StateDTypeName(d) << " width " << width;
        std::vector<float> a(v.size()), b(v.size());
        ReferenceKernels().widen(want.Args(a.data(), r, 0));
        GetParam()->widen(want.Args(b.data(), r, 0));
        ASSERT_TRUE(SameBits(a, b)) << StateDTypeName(d) << " width " << width;
      }
    }
  }
}

// Whatever is drawn: also below the least normal number, where the sum of an element and what is
// drawn would be rounded to the next code.
TEST_P(NarrowTest, WhatHasACodeStaysItselfWithTheLargestDraw) {
  const uint64_t key = KeyThatDraws(0xfffffe00u);
  const struct {
    StateDType dtype;
    int codes;
    double unit;
  } formats[] = {{StateDType::kF16, 1024, 0x1p-24}, {StateDType::kF8E4M3, 8, 0x1p-9}};
  for (const auto& f : formats) {
    for (int code = 0; code <= f.codes; ++code) {
      std::vector<float> v(9, 0.0f);
      v[0] = static_cast<float>(code * f.unit);
      v[8] = 448.0f;  // the row's scale is 1
      EXPECT_EQ(RoundTrip(*GetParam(), f.dtype, Rounding::kStochastic, v, 9, key), v) << code;
    }
  }
}

TEST_P(NarrowTest, SecondFormGivesTheSameBitsHoweverItIsCut) {
  SplitMix64 rng(8);
  const int64_t shapes[][2] = {{1, 1},    {3, 5},   {13, 40},  {16, 64}, {64, 64},
                               {128, 64}, {37, 70}, {130, 33}, {8, 256}};
  for (const StateDType d : kNarrow) {
    for (const auto& [n, p] : shapes) {
      const Rounding r = kRoundings[n % 2];
      Head whole(&rng, d, n, p);
      Head cut = whole;
      for (int64_t j = 0; j < 16; ++j) {  // the copy's pointers still see the first one's inputs
        ASSERT_EQ(cut.dx_at[j], whole.dx[j].data());
      }
      whole.Run(ReferenceKernels(), 0, 16, r);
      for (int64_t at = 0; at < 16;) {
        const int64_t m = std::min<int64_t>(1 + static_cast<int64_t>(rng.Below(6)), 16 - at);
        cut.Run(*GetParam(), at, m, r);
        at += m;
      }
      ASSERT_TRUE(SameBits(cut.y, whole.y)) << StateDTypeName(d) << " " << n << "x" << p;
      ASSERT_EQ(cut.base, whole.base) << StateDTypeName(d) << " " << n << "x" << p;
    }
  }
}

// Lightning attention has no D, and the product with 0 is not taken: it would turn -0 into 0 and
// an infinite input into NaN.
TEST_P(NarrowTest, WithoutDNothingIsAdded) {
  SplitMix64 rng(10);
  for (const StateDType d : kNarrow) {
    for (const int64_t tokens : {1, 16}) {
      Head head(&rng, d, 24, 40);
      Head plain = head;
      plain.skip = false;
      plain.Run(ReferenceKernels(), 0, tokens, Rounding::kNearest);
      head.skip = false;
      head.x.assign(head.x.size(), INFINITY);
      head.Run(*GetParam(), 0, tokens, Rounding::kNearest);
      ASSERT_TRUE(SameBits(head.y, plain.y)) << StateDTypeName(d);
      head.skip = true;
      head.Run(*GetParam(), 0, 1, Rounding::kNearest);
      ASSERT_FALSE(SameBits(head.y, plain.y));
    }
  }
}

TEST_P(NarrowTest, DeltaRuleGivesTheSameBitsHoweverItIsCut) {
  SplitMix64 rng(18);
  const int64_t shapes[][2] = {{1, 1},    {3, 5},   {13, 40},  {16, 64}, {64, 64},  {128, 128},
                               {96, 192}, {37, 70}, {130, 33}, {8, 256}, {128, 100}};
  for (const StateDType d : kNarrow) {
    for (const auto& [n, p] : shapes) {
      const Rounding r = kRoundings[n % 2];
      DeltaHead whole(&rng, d, n, p);
      DeltaHead cut = whole, single = whole;
      whole.Run(ReferenceKernels(), 0, 16, r);
      for (int64_t at = 0; at < 16;) {
        const int64_t m = std::min<int64_t>(1 + static_cast<int64_t>(rng.Below(6)), 16 - at);
        cut.Run(*GetParam(), at, m, r);
        at += m;
      }
      for (int64_t at = 0; at < 16; ++at) single.Run(*GetParam(), at, 1, r);
      for (const DeltaHead* other : {&cut, &single}) {
        ASSERT_TRUE(SameBits(other->y, whole.y)) << StateDTypeName(d) << " " << n << "x" << p;
        ASSERT_TRUE(SameBits(other->u, whole.u)) << StateDTypeName(d) << " " << n << "x" << p;
        ASSERT_EQ(other->base, whole.base) << StateDTypeName(d) << " " << n << "x" << p;
      }
    }
  }
}

TEST_P(NarrowTest, DotsGiveTheSameBits) {
  SplitMix64 rng(9);
  for (int64_t n = 1; n < 140; ++n) {
    const std::vector<float> a = Uniform(&rng, n, -1, 1), b = Uniform(&rng, 3 * n + 2, -1, 1);
    const float* rows[3] = {b.data(), b.data() + n, b.data() + 2 * n};
    std::vector<float> want(3), got(3);
    ReferenceKernels().dots(a.data(), rows, 2, 3, n, want.data());
    GetParam()->dots(a.data(), rows, 2, 3, n, got.data());
    ASSERT_TRUE(SameBits(got, want)) << n;
  }
}

TEST(NumericsTagTest, NarrowStateHasItsOwn) {
  std::vector<Sha256> tags;
  for (const StateDType d :
       {StateDType::kF32, StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3})
    for (const Rounding r : kRoundings) tags.push_back(NumericsTag(SimdKernels(), d, r));
  for (size_t i = 0; i < tags.size(); ++i)
    for (size_t j = i + 1; j < tags.size(); ++j)
      EXPECT_EQ(tags[i] == tags[j], i == 0 && j == 1) << i << " " << j;  // f32 rounds nothing
}

}  // namespace
}  // namespace baton::kernel
