// The second forms of Mamba-2 and the gated delta rule: a narrow base that is read, and folded once
// per grid step. The base is widened on the fly, so that decode reads its bytes once, for a key and
// a query together; past kFewTokens, blocks of it are widened into a scratch that stays in L1 and
// serves all tokens.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/second_form.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

// ---- Mamba-2 ----

constexpr int64_t kFewTokens = 2;
constexpr int64_t kBlockN = 64;       // rows of the base widened together
constexpr int kBlockV = 2;            // and vectors
constexpr int kTileT = 4;             // tokens a tile of y holds
constexpr int kRowVectors = 64 / kW;  // vectors of a row that decode takes together
constexpr int kFoldRows = kParts == 1 ? 8 : 4;

float WeightsOf(const Mamba2NarrowArgs& a, int64_t n, float* w) {
  w[n - 1] = 1.0f;
  for (int64_t j = n - 2; j >= 0; --j) w[j] = w[j + 1] * a.decay[j + 1][a.decay_offset];
  return w[0] * a.decay[0][a.decay_offset];
}

// y of token t for the columns at p, once C . S0 is known: the step's own tokens, then D.
template <class P>
HWY_INLINE void FinishY(
    const Mamba2NarrowArgs& a, int64_t t, const float* coefficients, V y, int64_t p, P part) {
  const int64_t seen = a.first + t + 1;
  for (int64_t j = 0; j < seen; ++j)
    y = hn::MulAdd(Splat(coefficients[j]), Load(part, a.dx[j] + a.dx_offset + p), y);
  if (a.x != nullptr) y = hn::MulAdd(Splat(a.d), Load(part, a.x + t * a.ldx + p), y);
  Store(part, y, a.y + t * a.ldy + p);
}

// g, and cb * w per token of the step.
HWY_INLINE float CoefficientsOf(const Mamba2NarrowArgs& a, int64_t t, float* coefficients) {
  const int64_t seen = a.first + t + 1;
  const float g = WeightsOf(a, seen, coefficients);
  for (int64_t j = 0; j < seen; ++j) coefficients[j] = a.cb[t * a.ldcb + j] * coefficients[j];
  return g;
}

// One token, kVectors vectors of every row: the base is read in memory order.
template <StateDType kType, int kVectors, class P>
HWY_INLINE void StreamY(const Mamba2NarrowArgs& a, int64_t t, int64_t p, P part) {
  HWY_ALIGN float coefficients[kBlockTokens];
  const V g = Splat(CoefficientsOf(a, t, coefficients));
  const float* c = a.c + t * a.ldc;
  V sum[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(D());
  for (int64_t n = 0; n < a.n_state; ++n) {
    const V cm = Splat(Scaled<kType>(c[n], a.scales, n));
    const int64_t at = n * a.head_dim + p;
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v)
      sum[v] = hn::MulAdd(cm, Element<kType>(part, a.base, at + v * kW), sum[v]);
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v)
    FinishY(a, t, coefficients, hn::Mul(g, sum[v]), p + v * kW, part);
}

template <StateDType kType>
void StreamToken(const Mamba2NarrowArgs& a, int64_t t) {
  int64_t p = 0;
  for (; p + kRowVectors * kW <= a.head_dim; p += kRowVectors * kW)
    StreamY<kType, kRowVectors>(a, t, p, Whole());
  for (; p + kW <= a.head_dim; p += kW) StreamY<kType, 1>(a, t, p, Whole());
  if (p < a.head_dim) StreamY<kType, 1>(a, t, p, Part{a.head_dim - p});
}

// What a base is read with, C of each token or k and q, and where what is read goes.
constexpr int64_t kReadsMax = 2 * kBlockTokens;
struct Reads {
  int64_t count = 0;
  const float* c[kReadsMax];
  float* y[kReadsMax];

  void Add(const float* with, float* to) {
    c[count] = with;
    y[count++] = to;
  }
};

// A block of the base, widened, and C * m of its rows for every read.
struct BaseBlock {
  int64_t row, rows;  // <= kBlockN
  int64_t column;     // of kVectors vectors
  HWY_ALIGN float wide[kBlockN * kBlockV * kW];
  HWY_ALIGN float cm[kReadsMax * kBlockN];
};

// kTokens reads of the block's rows; the first rows start from zero.
template <int kTokens, int kVectors, class P>
HWY_INLINE void TileY(const Reads& reads, const BaseBlock& block, int64_t t, P part) {
  V sum[kTokens][kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kTokens; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      const float* y = reads.y[t + i] + block.column + v * kW;
      sum[i][v] = block.row == 0 ? hn::Zero(D()) : Load(part, y);
    }
  }
  const float* wide = block.wide;
  const float* cm = block.cm + t * kBlockN;
  for (int64_t n = 0; n < block.rows; ++n, wide += kVectors * kW) {
    V s[kVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) s[v] = hn::Load(D(), wide + v * kW);
    HWY_UNROLL(4)
    for (int i = 0; i < kTokens; ++i) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v)
        sum[i][v] = hn::MulAdd(Splat(cm[i * kBlockN + n]), s[v], sum[i][v]);
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kTokens; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      Store(part, sum[i][v], reads.y[t + i] + block.column + v * kW);
  }
}

template <StateDType kType, int kVectors, class P>
void BlockY(const Mamba2NarrowArgs& a, const Reads& reads, BaseBlock* block, P part) {
  for (int64_t n = 0; n < block->rows; ++n) {
    const int64_t at = (block->row + n) * a.head_dim + block->column;
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      hn::Store(Element<kType>(part, a.base, at + v * kW), D(),
                block->wide + (n * kVectors + v) * kW);
  }
  int64_t t = 0;
  for (; t + kTileT <= reads.count; t += kTileT) TileY<kTileT, kVectors>(reads, *block, t, part);
  for (; t < reads.count; ++t) TileY<1, kVectors>(reads, *block, t, part);
}

// y = C . S0 of all reads.
template <StateDType kType>
void ReadBase(const Mamba2NarrowArgs& a, const Reads& reads) {
  BaseBlock block;
  for (block.row = 0; block.row < a.n_state; block.row += kBlockN) {
    block.rows = a.n_state - block.row < kBlockN ? a.n_state - block.row : kBlockN;
    for (int64_t t = 0; t < reads.count; ++t) {
      const float* c = reads.c[t] + block.row;
      for (int64_t n = 0; n < block.rows; ++n)
        block.cm[t * kBlockN + n] = Scaled<kType>(c[n], a.scales, block.row + n);
    }
    int64_t p = 0;
    for (; p + kBlockV * kW <= a.head_dim; p += kBlockV * kW) {
      block.column = p;
      BlockY<kType, kBlockV>(a, reads, &block, Whole());
    }
    for (; p < a.head_dim; p += kW) {
      block.column = p;
      if (a.head_dim - p >= kW) {
        BlockY<kType, 1>(a, reads, &block, Whole());
      } else {
        BlockY<kType, 1>(a, reads, &block, Part{a.head_dim - p});
      }
    }
  }
}

template <StateDType kType>
void ManyTokens(const Mamba2NarrowArgs& a) {
  Reads reads;
  for (int64_t t = 0; t < a.tokens; ++t) reads.Add(a.c + t * a.ldc, a.y + t * a.ldy);
  ReadBase<kType>(a, reads);
  HWY_ALIGN float coefficients[kBlockTokens];
  for (int64_t t = 0; t < a.tokens; ++t) {
    const V g = Splat(CoefficientsOf(a, t, coefficients));
    ForVectors(a.head_dim, [&](int64_t p, auto part) HWY_ATTR {
      FinishY(a, t, coefficients, hn::Mul(g, Load(part, a.y + t * a.ldy + p)), p, part);
    });
  }
}

// Rows [n, n + kRows) of the base after the step, in f32, and what they are made with.
template <int kRows>
struct FoldBlock {
  int64_t n;
  float gm[kRows];
  float wb[kBlockTokens * kRows];
  HWY_ALIGN float rows[kRows * kMaxHeadDim];
};

// kVectors vectors of them at column p.
template <StateDType kType, int kVectors, int kRows, class P>
HWY_INLINE void FoldTile(const Mamba2NarrowArgs& a, FoldBlock<kRows>* block, int64_t p, P part) {
  V s[kRows][kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = (block->n + i) * a.head_dim + p + v * kW;
      s[i][v] = hn::Mul(Splat(block->gm[i]), Element<kType>(part, a.base, at));
    }
  }
  const float* wb = block->wb;
  for (int64_t j = 0; j < kBlockTokens; ++j, wb += kRows) {
    const float* dx = a.dx[j] + a.dx_offset + p;
    V in[kVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) in[v] = Load(part, dx + v * kW);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) s[i][v] = hn::MulAdd(Splat(wb[i]), in[v], s[i][v]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      Store(part, s[i][v], block->rows + i * kMaxHeadDim + p + v * kW);
  }
}

template <StateDType kType, int kRows>
HWY_INLINE void FoldRowsAt(const Mamba2NarrowArgs& a, float g, const float* w, int64_t n) {
  FoldBlock<kRows> block;
  block.n = n;
  for (int i = 0; i < kRows; ++i) block.gm[i] = Scaled<kType>(g, a.scales, n + i);
  for (int64_t j = 0; j < kBlockTokens; ++j)
    for (int i = 0; i < kRows; ++i) block.wb[j * kRows + i] = w[j] * a.b[j][a.b_offset + n + i];
  int64_t p = 0;
  for (; p + 2 * kW <= a.head_dim; p += 2 * kW) FoldTile<kType, 2>(a, &block, p, Whole());
  for (; p + kW <= a.head_dim; p += kW) FoldTile<kType, 1>(a, &block, p, Whole());
  if (p < a.head_dim) FoldTile<kType, 1>(a, &block, p, Part{a.head_dim - p});
  const NarrowArgs out = {.dtype = kType,
                          .rounding = a.rounding,
                          .key = a.key,
                          .rows = a.n_state,
                          .width = a.head_dim,
                          .wide = nullptr,
                          .narrow = a.base,
                          .scales = a.scales};
  for (int i = 0; i < kRows; ++i) NarrowRow<kType>(out, n + i, block.rows + i * kMaxHeadDim);
}

// With the step's last token.
template <StateDType kType>
void Fold(const Mamba2NarrowArgs& a) {
  if (a.first + a.tokens < kBlockTokens) return;
  float w[kBlockTokens];
  const float g = WeightsOf(a, kBlockTokens, w);
  int64_t n = 0;
  for (; n + kFoldRows <= a.n_state; n += kFoldRows) FoldRowsAt<kType, kFoldRows>(a, g, w, n);
  for (; n < a.n_state; ++n) FoldRowsAt<kType, 1>(a, g, w, n);
}

template <StateDType kType>
void SecondForm(const Mamba2NarrowArgs& a) {
  if (a.tokens <= kFewTokens) {
    for (int64_t t = 0; t < a.tokens; ++t) StreamToken<kType>(a, t);
  } else {
    ManyTokens<kType>(a);
  }
  Fold<kType>(a);
}

// ---- the gated delta rule ----

constexpr int kDeltaVectors = kRowVectors < 4 ? kRowVectors : 4;  // of a row, for key and query

// What token first + t sees the step's tokens through.
struct DeltaToken {
  float g;
  float kk[kBlockTokens], qk[kBlockTokens];
};

DeltaToken DeltaTokenOf(const GatedDeltaNarrowArgs& a, int64_t t) {
  const Mamba2NarrowArgs& s = a.step;
  const int64_t seen = s.first + t + 1;
  float w[kBlockTokens];
  DeltaToken token;
  token.g = WeightsOf(s, seen, w);
  for (int64_t j = 0; j < seen; ++j) token.qk[j] = s.cb[t * s.ldcb + j] * w[j];
  for (int64_t j = 0; j + 1 < seen; ++j) token.kk[j] = a.kk[t * a.ldkk + j] * w[j];
  return token;
}

// u and y of token t for the columns at p, once k . S0 and q . S0 are known.
template <class P>
HWY_INLINE void FinishDelta(const GatedDeltaNarrowArgs& a,
                            const DeltaToken& token,
                            int64_t t,
                            V r,
                            V y,
                            int64_t p,
                            P part) {
  const Mamba2NarrowArgs& s = a.step;
  const int64_t before = s.first + t;
  const V g = Splat(token.g);
  r = hn::Mul(g, r);
  y = hn::Mul(g, y);
  for (int64_t j = 0; j < before; ++j) {
    const V u = Load(part, s.dx[j] + s.dx_offset + p);
    r = hn::MulAdd(Splat(token.kk[j]), u, r);
    y = hn::MulAdd(Splat(token.qk[j]), u, y);
  }
  const V beta = Splat(a.beta[t * a.ldbeta]);
  const V u = hn::Mul(beta, hn::Sub(Load(part, a.v + t * a.ldv + p), r));
  Store(part, u, a.u + t * a.ldu + p);
  Store(part, hn::MulAdd(Splat(token.qk[before]), u, y), s.y + t * s.ldy + p);
}

// One token, kVectors vectors of every row for both key and query.
template <StateDType kType, int kVectors, class P>
HWY_INLINE void StreamDelta(
    const GatedDeltaNarrowArgs& a, const DeltaToken& token, int64_t t, int64_t p, P part) {
  const Mamba2NarrowArgs& s = a.step;
  const float* k = s.b[s.first + t] + s.b_offset;
  const float* q = s.c + t * s.ldc;
  V r[kVectors], y[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) r[v] = y[v] = hn::Zero(D());
  for (int64_t n = 0; n < s.n_state; ++n) {
    const V km = Splat(Scaled<kType>(k[n], s.scales, n));
    const V qm = Splat(Scaled<kType>(q[n], s.scales, n));
    const int64_t at = n * s.head_dim + p;
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      const V element = Element<kType>(part, s.base, at + v * kW);
      r[v] = hn::MulAdd(km, element, r[v]);
      y[v] = hn::MulAdd(qm, element, y[v]);
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) FinishDelta(a, token, t, r[v], y[v], p + v * kW, part);
}

template <StateDType kType>
void StreamDeltaToken(const GatedDeltaNarrowArgs& a, int64_t t) {
  const DeltaToken token = DeltaTokenOf(a, t);
  const int64_t width = a.step.head_dim;
  int64_t p = 0;
  for (; p + kDeltaVectors * kW <= width; p += kDeltaVectors * kW)
    StreamDelta<kType, kDeltaVectors>(a, token, t, p, Whole());
  for (; p + kW <= width; p += kW) StreamDelta<kType, 1>(a, token, t, p, Whole());
  if (p < width) StreamDelta<kType, 1>(a, token, t, p, Part{width - p});
}

// What keys read waits in u, what queries read in y.
template <StateDType kType>
void ManyDeltaTokens(const GatedDeltaNarrowArgs& a) {
  const Mamba2NarrowArgs& s = a.step;
  Reads reads;
  for (int64_t t = 0; t < s.tokens; ++t) reads.Add(s.b[s.first + t] + s.b_offset, a.u + t * a.ldu);
  for (int64_t t = 0; t < s.tokens; ++t) reads.Add(s.c + t * s.ldc, s.y + t * s.ldy);
  ReadBase<kType>(s, reads);
  for (int64_t t = 0; t < s.tokens; ++t) {
    const DeltaToken token = DeltaTokenOf(a, t);
    ForVectors(s.head_dim, [&](int64_t p, auto part) HWY_ATTR {
      const V r = Load(part, a.u + t * a.ldu + p);
      FinishDelta(a, token, t, r, Load(part, s.y + t * s.ldy + p), p, part);
    });
  }
}

template <StateDType kType>
void DeltaSecondForm(const GatedDeltaNarrowArgs& a) {
  if (a.step.tokens <= kFewTokens) {
    for (int64_t t = 0; t < a.step.tokens; ++t) StreamDeltaToken<kType>(a, t);
  } else {
    ManyDeltaTokens<kType>(a);
  }
  Fold<kType>(a.step);
}

}  // namespace

void Mamba2Narrow(const Mamba2NarrowArgs& a) {
  switch (a.dtype) {
    case StateDType::kBF16:
      return SecondForm<StateDType::kBF16>(a);
    case StateDType::kF16:
      return SecondForm<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return SecondForm<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}

void GatedDeltaNarrow(const GatedDeltaNarrowArgs& a) {
  switch (a.step.dtype) {
    case StateDType::kBF16:
      return DeltaSecondForm<StateDType::kBF16>(a);
    case StateDType::kF16:
      return DeltaSecondForm<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return DeltaSecondForm<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
