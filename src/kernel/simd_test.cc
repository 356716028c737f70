// Every compiled target this CPU can run, against the reference, bit for bit, over awkward shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

// Bit patterns between two arguments of a sweep over f32: a prime, coarser under sanitizers.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSweepStride = 20011;
#else
constexpr uint64_t kSweepStride = 1009;
#endif

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

// KV blocks with garbage in every token from `len` on.
struct Cache {
  Cache(Random* rnd, int64_t len, int64_t dim) {
    const int64_t blocks = (len + 15) / 16 + 1;
    const int64_t size = 2 * dim * 16;
    data = rnd->Uniform(blocks * size + 3);
    for (int64_t b = 0; b < blocks; ++b) {
      // Blocks in reverse order: neighbours in the sequence are not neighbours in memory.
      float* block = data.data() + (blocks - 1 - b) * size + 3;
      table.push_back(block);
      for (int64_t t = std::max<int64_t>(0, len - b * 16); t < 16; ++t) {
        for (int64_t d = 0; d < dim; ++d) {
          block[d * 16 + t] = rnd->Int(0, 1) != 0 ? kNaN : 3e38f;
          block[(16 + t) * dim + d] = rnd->Int(0, 1) != 0 ? kNaN : -kInf;
        }
      }
    }
  }
  Vec data;
  std::vector<const float*> table;
};

AttentionArgs AttentionOn(const Cache& cache, int64_t dim, int64_t group, const Vec& q, Vec* out) {
  return {.blocks = cache.table.data(),
          .k_offset = 0,
          .v_offset = dim * 16,
          .head_dim = dim,
          .group = group,
          .rows = 1,
          .first_len = 1,
          .scale = 0.4f,
          .q = q.data(),
          .ldq = group * dim,
          .out = out->data(),
          .ldo = group * dim};
}

TEST_P(SimdTest, AttentionGivesTheSameBits) {
  Random rnd(4);
  const int64_t dims[] = {8, 16, 20, 24, 32, 40, 64, 80, 96, 128, 192, 256, 464, 512};
  for (int i = 0; i < 120; ++i) {
    const int64_t dim = dims[i % 14];
    const int64_t group = rnd.Int(1, 5);
    const int64_t rows = i % 5 == 0 ? rnd.Int(17, 70) : rnd.Int(1, 9);
    const int64_t first = i % 3 == 0   ? rnd.Int(1, 20)
                          : i % 3 == 1 ? rnd.Int(240, 270)
                                       : rnd.Int(500, 800);
    const Cache cache(&rnd, first + rows - 1, dim);
    const Vec q = rnd.Uniform(rows * group * dim, -4, 4);
    Vec want(q.size()), got(q.size());
    AttentionArgs a = AttentionOn(cache, dim, group, q, &want);
    a.rows = rows;
    a.first_len = first;
    ref().attention(a);
    a.out = got.data();
    simd().attention(a);
    ASSERT_TRUE(SameBits(got, want))
        << "dim " << dim << " group " << group << " rows " << rows << " first " << first;
    for (float v : got) ASSERT_TRUE(std::isfinite(v)) << "garbage came through the mask";
  }
}

TEST_P(SimdTest, AttentionRowsDoNotDependOnTheirNumber) {
  Random rnd(5);
  const int64_t dim = 64, group = 3, rows = 40, first = 230;
  const Cache cache(&rnd, first + rows - 1, dim);
  const Vec q = rnd.Uniform(rows * group * dim, -4, 4);
  Vec whole(q.size()), single(q.size());
  AttentionArgs a = AttentionOn(cache, dim, group, q, &whole);
  a.rows = rows;
  a.first_len = first;
  simd().attention(a);
  for (int64_t r = 0; r < rows; ++r) {
    a.rows = 1;
    a.first_len = first + r;
    a.q = q.data() + r * group * dim;
    a.out = single.data() + r * group * dim;
    simd().attention(a);
  }
  EXPECT_TRUE(SameBits(single, whole));
}

// Blocks before the window are null, tokens of its first block before it garbage.
TEST_P(SimdTest, WindowAttentionGivesTheSameBitsHoweverRowsAreCut) {
  Random rnd(15);
  const int64_t dims[] = {8, 20, 32, 64, 256};
  for (int i = 0; i < 90; ++i) {
    const int64_t dim = dims[i % 5], group = rnd.Int(1, 11), rows = rnd.Int(1, 40);
    const int64_t window = i % 3 == 0 ? rnd.Int(1, 40) : rnd.Int(200, 600);
    const int64_t first = i % 2 == 0 ? rnd.Int(1, 60) : rnd.Int(200, 800);
    Cache cache(&rnd, first + rows - 1, dim);
    const int64_t gone = std::max<int64_t>(0, first - window);  // tokens no row sees
    for (int64_t b = 0; b < gone / 16; ++b) cache.table[b] = nullptr;
    if (gone % 16 != 0) {
      float* block = const_cast<float*>(cache.table[gone / 16]);
      for (int64_t t = 0; t < gone % 16; ++t) {
        for (int64_t d = 0; d < dim; ++d) {
          block[d * 16 + t] = rnd.Int(0, 1) != 0 ? kNaN : 3e38f;
          block[(16 + t) * dim + d] = kNaN;
        }
      }
    }
    const Vec q = rnd.Uniform(rows * group * dim, -4, 4);
    Vec want(q.size()), got(q.size()), single(q.size());
    AttentionArgs a = AttentionOn(cache, dim, group, q, &want);
    a.rows = rows;
    a.first_len = first;
    a.window = window;
    ref().attention(a);
    a.out = got.data();
    simd().attention(a);
    ASSERT_TRUE(SameBits(got, want)) << "window " << window << " rows " << rows << " at " << first;
    for (float v : got) ASSERT_TRUE(std::isfinite(v)) << "garbage came through the mask";
    a.rows = 1;
    for (int64_t r = 0; r < rows; ++r) {
      a.first_len = first + r;
      a.q = q.data() + r * group * dim;
      a.out = single.data() + r * group * dim;
      simd().attention(a);
    }
    ASSERT_TRUE(SameBits(single, want)) << "window " << window << " rows " << rows;
  }
}

TEST_P(SimdTest, ConvGivesTheSameBits) {
  Random rnd(6);
  for (int i = 0; i < 160; ++i) {
    const int64_t width = rnd.Int(2, 8), tokens = rnd.Int(1, 40);
    const int64_t channels = i % 8 == 0 ? rnd.Int(500, 1100) : rnd.Int(1, 90);
    const int64_t begin = rnd.Int(0, channels - 1), end = rnd.Int(begin, channels);
    const Vec w = rnd.Uniform(width * channels), bias = rnd.Uniform(channels);
    const Vec x = rnd.Uniform(tokens * channels), start = rnd.Uniform((width - 1) * channels);
    Vec state[2] = {start, start}, y[2] = {x, x};
    for (int k = 0; k < 2; ++k) {
      (k == 0 ? ref() : simd())
          .conv({.state = state[k].data(),
                 .channels = channels,
                 .begin = begin,
                 .end = end,
                 .width = width,
                 .weight = w.data(),
                 .bias = i % 3 == 0 ? nullptr : bias.data(),
                 .tokens = tokens,
                 .x = x.data(),
                 .ldx = channels,
                 .y = y[k].data(),
                 .ldy = channels,
                 .silu = i % 2 == 0});
    }
    ASSERT_TRUE(SameBits(y[1], y[0])) << "width " << width << " tokens " << tokens;
    ASSERT_TRUE(SameBits(state[1], state[0])) << "width " << width << " tokens " << tokens;
  }
}

// Runs `tokens` tokens in calls of random size, or one call where rnd is null.
template <class Args, class Fn>
void InPieces(Args a, Random* rnd, const Fn& kernel) {
  const int64_t tokens = a.tokens;
  for (int64_t t = 0; t < tokens;) {
    a.tokens = rnd == nullptr ? tokens : std::min<int64_t>(rnd->Int(1, 20), tokens - t);
    kernel(a);
    t += a.tokens;
    a.x += a.tokens * a.ldx;
    a.b += a.tokens * a.ldbc;
    a.c += a.tokens * a.ldbc;
    a.dt += a.tokens * a.lddt;
    if constexpr (requires { a.decay; }) a.decay += a.tokens * a.lddt;
    a.y += a.tokens * a.ldy;
  }
}

TEST_P(SimdTest, Mamba2GivesTheSameBitsHoweverTheTokensAreCut) {
  Random rnd(7);
  for (int i = 0; i < 100; ++i) {
    const int64_t n = i % 2 == 0 ? rnd.Int(1, 12) * 8 : rnd.Int(8, 128);
    const int64_t p = i % 3 != 0 ? rnd.Int(1, 8) * 8 : rnd.Int(1, 70);
    const int64_t tokens = i % 4 == 0 ? rnd.Int(1, 3) : rnd.Int(1, 40);
    const Vec x = rnd.Uniform(tokens * p), bc = rnd.Uniform(tokens * 2 * n);
    const Vec dt = rnd.Uniform(tokens, 0, 1), decay = rnd.Uniform(tokens, 0, 1);
    const Vec start = rnd.Uniform(n * p);
    Vec state[3] = {start, start, start}, y[3] = {x, x, x};
    for (int k = 0; k < 3; ++k) {
      InPieces(Mamba2Args{.state = state[k].data(),
                          .n_state = n,
                          .head_dim = p,
                          .tokens = tokens,
                          .x = x.data(),
                          .ldx = p,
                          .b = bc.data(),
                          .c = bc.data() + n,
                          .ldbc = 2 * n,
                          .dt = dt.data(),
                          .decay = decay.data(),
                          .lddt = 1,
                          .d = 0.3f,
                          .y = y[k].data(),
                          .ldy = p},
               k == 2 ? &rnd : nullptr, k == 0 ? ref().mamba2 : simd().mamba2);
    }
    for (int k = 1; k < 3; ++k) {
      ASSERT_TRUE(SameBits(y[k], y[0])) << "n " << n << " p " << p << " tokens " << tokens;
      ASSERT_TRUE(SameBits(state[k], state[0])) << "n " << n << " p " << p << " tokens " << tokens;
    }
  }
}

TEST_P(SimdTest, Mamba1GivesTheSameBitsHoweverTheTokensAreCut) {
  Random rnd(8);
  for (int i = 0; i < 60; ++i) {
    const int64_t n = i % 2 == 0 ? 16 : rnd.Int(1, 40);
    const int64_t ch = rnd.Int(1, 80), tokens = rnd.Int(1, 40);
    const int64_t begin = rnd.Int(0, ch - 1), end = rnd.Int(begin, ch);
    const Vec x = rnd.Uniform(tokens * ch), bc = rnd.Uniform(tokens * 2 * n);
    const Vec dt = rnd.Uniform(tokens * ch, 0, 1), a = rnd.Uniform(n * ch, -20, 0);
    const Vec d = rnd.Uniform(ch), start = rnd.Uniform(n * ch);
    Vec state[3] = {start, start, start}, y[3] = {x, x, x};
    for (int k = 0; k < 3; ++k) {
      InPieces(Mamba1Args{.state = state[k].data(),
                          .n_state = n,
                          .channels = ch,
                          .begin = begin,
                          .end = end,
                          .tokens = tokens,
                          .x = x.data(),
                          .ldx = ch,
                          .b = bc.data(),
                          .c = bc.data() + n,
                          .ldbc = 2 * n,
                          .dt = dt.data(),
                          .lddt = ch,
                          .a = a.data(),
                          .d = d.data(),
                          .y = y[k].data(),
                          .ldy = ch},
               k == 2 ? &rnd : nullptr, k == 0 ? ref().mamba1 : simd().mamba1);
    }
    for (int k = 1; k < 3; ++k) {
      ASSERT_TRUE(SameBits(y[k], y[0])) << "n " << n << " channels " << ch;
      ASSERT_TRUE(SameBits(state[k], state[0])) << "n " << n << " channels " << ch;
    }
  }
}

TEST_P(SimdTest, RgLruGivesTheSameBitsHoweverTheTokensAreCut) {
  Random rnd(16);
  for (int i = 0; i < 60; ++i) {
    const int64_t channels = rnd.Int(1, 80), tokens = rnd.Int(1, 30), ld = channels + 3;
    const int64_t begin = rnd.Int(0, channels - 1), end = rnd.Int(begin, channels);
    const Vec x = rnd.Uniform(tokens * ld), gates = rnd.Uniform(2 * tokens * ld, -9, 9);
    const Vec rate = rnd.Uniform(channels, -20, 0), start = rnd.Uniform(channels);
    Vec state[3] = {start, start, start}, y[3] = {x, x, x};
    for (int k = 0; k < 3; ++k) {
      for (int64_t t = 0; t < tokens;) {
        const int64_t n = k == 2 ? std::min<int64_t>(rnd.Int(1, 9), tokens - t) : tokens;
        (k == 0 ? ref() : simd())
            .rg_lru({.state = state[k].data(),
                     .begin = begin,
                     .end = end,
                     .tokens = n,
                     .from_start = i % 2 == 0 && t == 0,
                     .x = x.data() + t * ld,
                     .ldx = ld,
                     .input_gate = gates.data() + t * ld,
                     .decay_gate = gates.data() + (tokens + t) * ld,
                     .ldg = ld,
                     .rate = rate.data(),
                     .y = y[k].data() + t * ld,
                     .ldy = ld});
        t += n;
      }
    }
    for (int k = 1; k < 3; ++k) {
      ASSERT_TRUE(SameBits(y[k], y[0])) << "channels " << channels << " tokens " << tokens;
      ASSERT_TRUE(SameBits(state[k], state[0])) << "channels " << channels << " tokens " << tokens;
    }
  }
}

TEST_P(SimdTest, FunctionsGiveTheSameBitsOverAllOfF32) {
  constexpr int64_t kChunk = 4099;
  Vec x(kChunk), want(kChunk), got(kChunk);
  for (Function f : {Function::kExp, Function::kLog1p, Function::kSigmoid, Function::kSilu,
                     Function::kSoftplus, Function::kTanh, Function::kGelu, Function::kGeluTanh,
                     Function::kRelu2, Function::kExpm1}) {
    uint64_t bits = static_cast<uint64_t>(f);
    while (bits <= 0xffffffffu) {
      for (float& v : x) {
        const auto u = static_cast<uint32_t>(bits);
        std::memcpy(&v, &u, 4);
        bits += kSweepStride;
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
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.sigmoid_mul(z.data(), x.data(), n, y); }));
    ASSERT_TRUE(run([&](const Kernels& k, float* y) { k.multiply(z.data(), x.data(), n, y); }));
    for (Function f : {Function::kSilu, Function::kGelu, Function::kGeluTanh, Function::kRelu2}) {
      ASSERT_TRUE(run([&](const Kernels& k, float* y) {
        k.apply_mul(f, z.data(), x.data(), n, y);
      })) << "apply_mul "
          << int(f);
    }
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
