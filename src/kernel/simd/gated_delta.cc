// Gated delta rule in step form. The write of a token needs what all rows of the state hold under
// its key, so tokens cannot share a register tile as in Mamba-2; columns are independent, though: a
// group of kColumns vectors of every row stays in L1 over all tokens of the call. The pass that
// writes token t also reads with the key of token t + 1, so a state element is loaded and stored
// once per token: bound by fma (4 per element, one of them the product with the decay, so at most
// 0.88 of peak; 0.73 to 0.83 reached). A call of one token reads the whole state, then updates it,
// row after row: bound by its bytes, and as the two passes follow each other (the second from L2),
// 0.6 (AVX2) to 0.77 (AVX-512) of the update bandwidth. Fetching the next head's state during the
// second pass was slower (0.40 into L1, 0.6 to 0.7 into L2), and so was reading it then (0.35 to
// 0.38): heads lie a multiple of 4 KiB apart, and loads wait for stores with the same low bits.
#include <type_traits>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/gated_delta.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

constexpr int kColumns = 4;        // vectors
constexpr int kStreamVectors = 8;  // of a row taken together by the one-token passes
constexpr int64_t kStreamColumns = 512;
constexpr int64_t kStreamRows = 8;
// Floats of a cache line.
constexpr int64_t kLine = 16;

// sum_i k[i] * S[i], from 0.
template <int P, class Part>
HWY_INLINE void ReadState(const GatedDeltaArgs& a, int64_t p, Part part, V (&read)[P]) {
  const float* state = a.state + p;
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) read[v] = hn::Zero(D());
  for (int64_t i = 0; i < a.k_dim; ++i, state += a.v_dim) {
    const V k = Splat(a.k[i]);
    HWY_UNROLL(8)
    for (int v = 0; v < P; ++v) read[v] = hn::MulAdd(k, Load(part, state + v * kW), read[v]);
  }
}

// Writes token t and reads with its query and, if kNext, with the key of token t + 1.
template <int P, bool kNext, class Part>
HWY_INLINE void WriteToken(const GatedDeltaArgs& a, int64_t t, int64_t p, Part part, V (&read)[P]) {
  const float* k = a.k + t * a.ldqk;
  const float* q = a.q + t * a.ldqk;
  const int64_t ldqk = a.ldqk, n = a.k_dim, ld = a.v_dim;
  const V decay = Splat(a.decay[t * a.ldg]);
  const V beta = Splat(a.beta[t * a.ldg]);
  const float* in = a.v + t * a.ldv + p;
  // Rows of q, k and v are apart, out of a prefetcher's sight.
  if (kNext) {
    for (int64_t i = 0; i < n; i += kLine) {
      hwy::Prefetch(k + 2 * ldqk + i);
      hwy::Prefetch(q + 2 * ldqk + i);
    }
    for (int v = 0; v < P; v += kParts) hwy::Prefetch(in + 2 * a.ldv + v * kW);
  }
  V u[P], y[P], next[P];
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) {
    u[v] = hn::Mul(beta, hn::NegMulAdd(decay, read[v], Load(part, in + v * kW)));
    y[v] = next[v] = hn::Zero(D());
  }
  float* state = a.state + p;
  for (int64_t i = 0; i < n; ++i, state += ld) {
    const V ki = Splat(k[i]);
    const V qi = Splat(q[i]);
    const V ni = kNext ? Splat(k[ldqk + i]) : qi;
    HWY_UNROLL(8)
    for (int v = 0; v < P; ++v) {
      const V s = hn::MulAdd(ki, u[v], hn::Mul(decay, Load(part, state + v * kW)));
      Store(part, s, state + v * kW);
      y[v] = hn::MulAdd(qi, s, y[v]);
      if (kNext) next[v] = hn::MulAdd(ni, s, next[v]);
    }
  }
  float* out = a.y + t * a.ldy + p;
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) {
    Store(part, y[v], out + v * kW);
    read[v] = next[v];
  }
}

// All tokens of P vectors of columns from p.
template <int P, class Part>
HWY_NOINLINE void RunColumns(const GatedDeltaArgs& a, int64_t p, Part part) {
  V read[P];
  ReadState<P>(a, p, part, read);
  for (int64_t t = 0; t + 1 < a.tokens; ++t) WriteToken<P, true>(a, t, p, part, read);
  WriteToken<P, false>(a, a.tokens - 1, p, part, read);
}

// ---- one token ----

// Rows [i, i + rows), P vectors of columns from p; the sums wait in y.
template <int P, class Part>
HWY_INLINE void ReadRows(const GatedDeltaArgs& a, int64_t i, int64_t rows, int64_t p, Part part) {
  const float* state = a.state + i * a.v_dim + p;
  V read[P];
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) read[v] = i == 0 ? hn::Zero(D()) : Load(part, a.y + p + v * kW);
  for (const float* k = a.k + i; k != a.k + i + rows; ++k, state += a.v_dim) {
    HWY_UNROLL(8)
    for (int v = 0; v < P; ++v)
      read[v] = hn::MulAdd(Splat(*k), Load(part, state + v * kW), read[v]);
  }
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) Store(part, read[v], a.y + p + v * kW);
}

// The same for the write; `u` is what the token adds along its key.
template <int P, class Part>
HWY_INLINE void WriteRows(
    const GatedDeltaArgs& a, const float* u, int64_t i, int64_t rows, int64_t p, Part part) {
  const V decay = Splat(a.decay[0]);
  float* state = a.state + i * a.v_dim + p;
  V in[P], y[P];
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) {
    in[v] = Load(part, u + p + v * kW);
    y[v] = i == 0 ? hn::Zero(D()) : Load(part, a.y + p + v * kW);
  }
  for (int64_t row = i; row < i + rows; ++row, state += a.v_dim) {
    const V k = Splat(a.k[row]);
    const V q = Splat(a.q[row]);
    HWY_UNROLL(8)
    for (int v = 0; v < P; ++v) {
      const V s = hn::MulAdd(k, in[v], hn::Mul(decay, Load(part, state + v * kW)));
      Store(part, s, state + v * kW);
      y[v] = hn::MulAdd(q, s, y[v]);
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) Store(part, y[v], a.y + p + v * kW);
}

// Calls fn(p, count of vectors as a constant, Whole or Part) over the columns.
template <class Fn>
HWY_INLINE void ForColumns(int64_t n, const Fn& fn) {
  int64_t p = 0;
  for (; p + kStreamVectors * kW <= n; p += kStreamVectors * kW)
    fn(p, std::integral_constant<int, kStreamVectors>(), Whole());
  for (; p + kW <= n; p += kW) fn(p, std::integral_constant<int, 1>(), Whole());
  if (p < n) fn(p, std::integral_constant<int, 1>(), Part{n - p});
}

// Few rows at a time in memory order: a pass over the state reads page after page.
void StreamToken(const GatedDeltaArgs& a) {
  for (int64_t i = 0; i < a.k_dim; i += kStreamRows) {
    const int64_t rows = a.k_dim - i < kStreamRows ? a.k_dim - i : kStreamRows;
    ForColumns(a.v_dim,
               [&](int64_t p, auto n, auto part) HWY_ATTR { ReadRows<n>(a, i, rows, p, part); });
  }
  HWY_ALIGN float u[kStreamColumns];
  const V decay = Splat(a.decay[0]);
  const V beta = Splat(a.beta[0]);
  ForVectors(a.v_dim, [&](int64_t p, auto part) HWY_ATTR {
    const V error = hn::NegMulAdd(decay, Load(part, a.y + p), Load(part, a.v + p));
    Store(part, hn::Mul(beta, error), u + p);
  });
  for (int64_t i = 0; i < a.k_dim; i += kStreamRows) {
    const int64_t rows = a.k_dim - i < kStreamRows ? a.k_dim - i : kStreamRows;
    ForColumns(a.v_dim, [&](int64_t p, auto n, auto part)
                            HWY_ATTR { WriteRows<n>(a, u, i, rows, p, part); });
  }
}

}  // namespace

void GatedDelta(const GatedDeltaArgs& a) {
  if (a.tokens == 0) return;
  if (a.tokens == 1 && a.v_dim <= kStreamColumns) return StreamToken(a);
  int64_t p = 0;
  for (; p + kColumns * kW <= a.v_dim; p += kColumns * kW) RunColumns<kColumns>(a, p, Whole());
  for (; p + 2 * kW <= a.v_dim; p += 2 * kW) RunColumns<2>(a, p, Whole());
  for (; p + kW <= a.v_dim; p += kW) RunColumns<1>(a, p, Whole());
  if (p < a.v_dim) RunColumns<1>(a, p, Part{a.v_dim - p});
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
