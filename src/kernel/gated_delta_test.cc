// The gated delta rule: the reference against double precision, every target against the reference
// bit for bit however tokens are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

using Vec = std::vector<float>;

Vec Uniform(SplitMix64* rng, int64_t n, double lo, double hi) {
  Vec v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng->Uniform());
  return v;
}

// One head's inputs; the strides are wider than the rows.
struct Problem {
  int64_t k_dim, v_dim, tokens, ldqk, ldv;
  Vec qk, v, gates, start;

  Problem(SplitMix64* rng, int64_t k, int64_t v_width, int64_t n)
      : k_dim(k), v_dim(v_width), tokens(n), ldqk(2 * k + 3), ldv(v_width + 5) {
    qk = Uniform(rng, tokens * ldqk, -1, 1);
    v = Uniform(rng, tokens * ldv, -1, 1);
    for (float& x : qk) x /= static_cast<float>(k);
    gates = Uniform(rng, tokens * 2, 0.5, 1);
    start = Uniform(rng, k_dim * v_dim, -1, 1);
  }

  GatedDeltaArgs Args(int64_t t, int64_t n, float* state, float* y) const {
    return {.state = state,
            .k_dim = k_dim,
            .v_dim = v_dim,
            .tokens = n,
            .q = qk.data() + t * ldqk,
            .k = qk.data() + t * ldqk + k_dim,
            .ldqk = ldqk,
            .v = v.data() + t * ldv,
            .ldv = ldv,
            .beta = gates.data() + t * 2,
            .decay = gates.data() + t * 2 + 1,
            .ldg = 2,
            .y = y + t * ldv,
            .ldy = ldv};
  }
};

bool SameBits(const Vec& a, const Vec& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(GatedDelta, DecaysReadsWritesReads) {
  SplitMix64 rng(3);
  const Problem p(&rng, 7, 9, 12);
  Vec state = p.start, y(p.v.size());
  ReferenceKernels().gated_delta(p.Args(0, p.tokens, state.data(), y.data()));
  std::vector<double> s(p.start.begin(), p.start.end());
  for (int64_t t = 0; t < p.tokens; ++t) {
    const float* q = p.qk.data() + t * p.ldqk;
    const float* k = q + p.k_dim;
    for (double& v : s) v *= p.gates[t * 2 + 1];
    for (int64_t c = 0; c < p.v_dim; ++c) {
      double read = 0, out = 0;
      for (int64_t i = 0; i < p.k_dim; ++i) read += s[i * p.v_dim + c] * k[i];
      const double u = p.gates[t * 2] * (p.v[t * p.ldv + c] - read);
      for (int64_t i = 0; i < p.k_dim; ++i) {
        s[i * p.v_dim + c] += k[i] * u;
        out += s[i * p.v_dim + c] * q[i];
      }
      EXPECT_NEAR(y[t * p.ldv + c], out, 1e-6);
    }
  }
  for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(state[i], s[i], 1e-6);
}

class GatedDeltaTest : public ::testing::TestWithParam<const Kernels*> {};

INSTANTIATE_TEST_SUITE_P(Targets,
                         GatedDeltaTest,
                         ::testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(GatedDeltaTest, SameBitsHoweverTheTokensAreCut) {
  SplitMix64 rng(11);
  for (int i = 0; i < 80; ++i) {
    const int64_t k = 1 + static_cast<int64_t>(rng.Below(i % 2 == 0 ? 20 : 130));
    const int64_t v = 1 + static_cast<int64_t>(rng.Below(200));
    const Problem p(&rng, k, v, 1 + static_cast<int64_t>(rng.Below(24)));
    Vec state[3] = {p.start, p.start, p.start};
    Vec y[3] = {p.v, p.v, p.v};  // what lies between rows must stay
    ReferenceKernels().gated_delta(p.Args(0, p.tokens, state[0].data(), y[0].data()));
    GetParam()->gated_delta(p.Args(0, p.tokens, state[1].data(), y[1].data()));
    for (int64_t t = 0, n; t < p.tokens; t += n) {
      n = std::min<int64_t>(1 + static_cast<int64_t>(rng.Below(5)), p.tokens - t);
      GetParam()->gated_delta(p.Args(t, n, state[2].data(), y[2].data()));
    }
    for (int c = 1; c < 3; ++c) {
      ASSERT_TRUE(SameBits(y[c], y[0])) << k << " x " << v << ", " << p.tokens << " tokens";
      ASSERT_TRUE(SameBits(state[c], state[0])) << k << " x " << v << ", " << p.tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace baton::kernel
