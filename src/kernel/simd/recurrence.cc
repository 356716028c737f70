// Convolution and state recurrences in step form: token after token per state element, always in
// the same order, so one call over n tokens equals n calls over one.
//
// Mamba-2 has two loops with the same arithmetic. Few tokens: the state is streamed once, whole
// rows in memory order (bound by its bytes). Many: a register tile of kTileN x 2 vectors of state
// stays in registers over kChunk tokens, the partial sums of y wait in y (bound by fma: 3 per
// element, nothing else of note).
#include <cstring>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/recurrence.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

// ---- convolution ----

constexpr int kMaxWidth = 8;
constexpr int64_t kConvChannels = 512;  // a chunk's weights and window stay in L1

// One token, channels [begin, begin + n): `rows[j]` is what w[j] multiplies. kWidth 0: a.width.
template <int kWidth>
HWY_INLINE void ConvToken(
    const ConvArgs& a, const float* const* rows, int64_t begin, int64_t n, float* y) {
  const int width = kWidth != 0 ? kWidth : static_cast<int>(a.width);
  ForVectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const int64_t c = begin + i;
    V sum = a.bias != nullptr ? Load(part, a.bias + c) : hn::Zero(D());
    for (int j = 0; j < width; ++j)
      sum = hn::MulAdd(Load(part, a.weight + j * a.channels + c), Load(part, rows[j] + c), sum);
    Store(part, a.silu ? SiluV(sum) : sum, y + c);
  });
}

// ---- Mamba-2 ----

constexpr int kTileN = kParts == 1 ? 8 : 4;
constexpr int kTileP = 2;
constexpr int64_t kChunk = 16;    // tokens a state tile stays in registers
constexpr int64_t kBlockP = 128;  // columns of the state taken together
constexpr int64_t kFewTokens = 2;
constexpr int kRowVectors = 64 / kW;  // vectors of a state row updated together by the stream

// What the tiles of one block share: tokens [begin, begin + tokens), columns [column, column +
// width) of the state, and dt * x of those.
struct StateBlock {
  const Mamba2Args* a;
  int64_t begin, tokens;  // <= kChunk
  int64_t column, width;  // <= kBlockP
  HWY_ALIGN float dx[kChunk * kBlockP];
};

// State rows [n, n + N), P vectors from column block.column + p, the tokens of the block. The first
// rows start y from zero.
template <int N, int P, class Part>
HWY_NOINLINE void StateTile(const StateBlock& block, int64_t n, int64_t p, Part part) {
  const Mamba2Args& a = *block.a;
  V s[N][P];
  float* state = a.state + n * a.head_dim + block.column + p;
  HWY_UNROLL(8)
  for (int i = 0; i < N; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < P; ++v) s[i][v] = Load(part, state + i * a.head_dim + v * kW);
  }
  const float* b = a.b + block.begin * a.ldbc + n;
  const float* c = a.c + block.begin * a.ldbc + n;
  const float* decay_at = a.decay + block.begin * a.lddt;
  const float* dx = block.dx + p;
  const float* const dx_end = dx + block.tokens * kBlockP;
  float* y = a.y + block.begin * a.ldy + block.column + p;
  const int64_t ldbc = a.ldbc, lddt = a.lddt, ldy = a.ldy;
  // Rows of b and c are far apart, out of a prefetcher's sight: fetch what the next rows of the
  // state want, or after the last rows the next tokens.
  const int64_t ahead = n + 16 < a.n_state ? 16 : kChunk * ldbc - n;
  for (; dx != dx_end; dx += kBlockP, b += ldbc, c += ldbc, decay_at += lddt, y += ldy) {
    hwy::Prefetch(b + ahead);
    hwy::Prefetch(c + ahead);
    const V decay = Splat(*decay_at);
    V sum[P], in[P];
    HWY_UNROLL(2)
    for (int v = 0; v < P; ++v) {
      sum[v] = n == 0 ? hn::Zero(D()) : Load(part, y + v * kW);
      in[v] = hn::LoadU(D(), dx + v * kW);
    }
    HWY_UNROLL(8)
    for (int i = 0; i < N; ++i) {
      HWY_UNROLL(2)
      for (int v = 0; v < P; ++v) {
        s[i][v] = hn::MulAdd(Splat(b[i]), in[v], hn::Mul(decay, s[i][v]));
        sum[v] = hn::MulAdd(Splat(c[i]), s[i][v], sum[v]);
      }
    }
    HWY_UNROLL(2)
    for (int v = 0; v < P; ++v) Store(part, sum[v], y + v * kW);
  }
  HWY_UNROLL(8)
  for (int i = 0; i < N; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < P; ++v) Store(part, s[i][v], state + i * a.head_dim + v * kW);
  }
}

template <int N>
HWY_INLINE void StateRows(const StateBlock& block, int64_t n) {
  int64_t p = 0;
  for (; p + kTileP * kW <= block.width; p += kTileP * kW)
    StateTile<N, kTileP>(block, n, p, Whole());
  for (; p + kW <= block.width; p += kW) StateTile<N, 1>(block, n, p, Whole());
  if (p < block.width) StateTile<N, 1>(block, n, p, Part{block.width - p});
}

void RunStateBlock(StateBlock* block) {
  const Mamba2Args& a = *block->a;
  for (int64_t t = 0; t < block->tokens; ++t) {
    const int64_t token = block->begin + t;
    const V dt = Splat(a.dt[token * a.lddt]);
    const float* x = a.x + token * a.ldx + block->column;
    ForVectors(block->width, [&](int64_t p, auto part) HWY_ATTR {
      hn::StoreU(hn::Mul(dt, Load(part, x + p)), D(), block->dx + t * kBlockP + p);
      if (p % 16 == 0) {
        hwy::Prefetch(x + kChunk * a.ldx + p);
        hwy::Prefetch(a.y + (token + kChunk) * a.ldy + block->column + p);
      }
    });
  }
  int64_t n = 0;
  for (; n + kTileN <= a.n_state; n += kTileN) StateRows<kTileN>(*block, n);
  for (; n < a.n_state; ++n) StateRows<1>(*block, n);
  const V d = Splat(a.d);
  for (int64_t t = block->begin; t < block->begin + block->tokens; ++t) {
    const float* x = a.x + t * a.ldx + block->column;
    float* y = a.y + t * a.ldy + block->column;
    ForVectors(block->width, [&](int64_t p, auto part) HWY_ATTR {
      Store(part, hn::MulAdd(d, Load(part, x + p), Load(part, y + p)), y + p);
    });
  }
}

// One token, P whole vectors of every state row.
template <int P, class Part>
HWY_INLINE void StateStream(const Mamba2Args& a, int64_t t, int64_t p, Part part) {
  const float* x = a.x + t * a.ldx + p;
  const float* b = a.b + t * a.ldbc;
  const float* c = a.c + t * a.ldbc;
  const V dt = Splat(a.dt[t * a.lddt]);
  const V decay = Splat(a.decay[t * a.lddt]);
  float* state = a.state + p;
  HWY_ALIGN float dx[P * kW];
  V sum[P];
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v) {
    sum[v] = hn::Zero(D());
    hn::StoreU(hn::Mul(dt, Load(part, x + v * kW)), D(), dx + v * kW);
  }
  for (int64_t n = 0; n < a.n_state; ++n) {
    const V bn = Splat(b[n]);
    const V cn = Splat(c[n]);
    float* row = state + n * a.head_dim;
    HWY_UNROLL(8)
    for (int v = 0; v < P; ++v) {
      const V s =
          hn::MulAdd(bn, hn::LoadU(D(), dx + v * kW), hn::Mul(decay, Load(part, row + v * kW)));
      Store(part, s, row + v * kW);
      sum[v] = hn::MulAdd(cn, s, sum[v]);
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < P; ++v)
    Store(part, hn::MulAdd(Splat(a.d), Load(part, x + v * kW), sum[v]),
          a.y + t * a.ldy + p + v * kW);
}

void StreamToken(const Mamba2Args& a, int64_t t) {
  int64_t p = 0;
  for (; p + kRowVectors * kW <= a.head_dim; p += kRowVectors * kW)
    StateStream<kRowVectors>(a, t, p, Whole());
  for (; p + kW <= a.head_dim; p += kW) StateStream<1>(a, t, p, Whole());
  if (p < a.head_dim) StateStream<1>(a, t, p, Part{a.head_dim - p});
}

}  // namespace

void Conv(const ConvArgs& a) {
  const int64_t history = a.width - 1;
  // Row `index` of the inputs: negative ones are in the state, oldest first.
  const auto input = [&a, history](int64_t index) {
    return index >= 0 ? a.x + index * a.ldx : a.state + (history + index) * a.channels;
  };
  for (int64_t begin = a.begin; begin < a.end; begin += kConvChannels) {
    const int64_t n = a.end - begin < kConvChannels ? a.end - begin : kConvChannels;
    for (int64_t t = 0; t < a.tokens; ++t) {
      const float* rows[kMaxWidth];
      for (int64_t j = 0; j < a.width; ++j) rows[j] = input(t - history + j);
      float* y = a.y + t * a.ldy;
      if (a.width == 4) {
        ConvToken<4>(a, rows, begin, n, y);
      } else {
        ConvToken<0>(a, rows, begin, n, y);
      }
    }
    // Oldest first: each source lies behind its destination, or in x.
    for (int64_t j = 0; j < history; ++j)
      std::memmove(a.state + j * a.channels + begin, input(a.tokens - history + j) + begin,
                   static_cast<size_t>(n) * sizeof(float));
  }
}

void Mamba2(const Mamba2Args& a) {
  if (a.tokens <= kFewTokens) {
    for (int64_t t = 0; t < a.tokens; ++t) StreamToken(a, t);
    return;
  }
  StateBlock block;
  block.a = &a;
  for (int64_t p = 0; p < a.head_dim; p += kBlockP) {
    block.column = p;
    block.width = a.head_dim - p < kBlockP ? a.head_dim - p : kBlockP;
    for (int64_t begin = 0; begin < a.tokens; begin += kChunk) {
      block.begin = begin;
      block.tokens = a.tokens - begin < kChunk ? a.tokens - begin : kChunk;
      RunStateBlock(&block);
    }
  }
}

void Mamba1(const Mamba1Args& a) {
  for (int64_t begin = 0; begin < a.tokens; begin += kChunk) {
    const int64_t end = begin + kChunk < a.tokens ? begin + kChunk : a.tokens;
    ForVectors(a.end - a.begin, [&](int64_t offset, auto part) HWY_ATTR {
      const int64_t i = a.begin + offset;
      const V d = Load(part, a.d + i);
      for (int64_t t = begin; t < end; ++t) {
        const float* b = a.b + t * a.ldbc;
        const float* c = a.c + t * a.ldbc;
        const V x = Load(part, a.x + t * a.ldx + i);
        const V dt = Load(part, a.dt + t * a.lddt + i);
        const V dx = hn::Mul(dt, x);
        V y = hn::Zero(D());
        for (int64_t n = 0; n < a.n_state; ++n) {
          float* state = a.state + n * a.channels + i;
          const V decay = ExpV(hn::Mul(dt, Load(part, a.a + n * a.channels + i)));
          const V s = hn::MulAdd(dx, Splat(b[n]), hn::Mul(decay, Load(part, state)));
          Store(part, s, state);
          y = hn::MulAdd(s, Splat(c[n]), y);
        }
        Store(part, hn::MulAdd(d, x, y), a.y + t * a.ldy + i);
      }
    });
  }
}

void RgLru(const RgLruArgs& a) {
  ForVectors(a.end - a.begin, [&](int64_t offset, auto part) HWY_ATTR {
    const int64_t c = a.begin + offset;
    const V rate = Load(part, a.rate + c);
    V s = a.from_start ? hn::Zero(D()) : Load(part, a.state + c);
    for (int64_t t = 0; t < a.tokens; ++t) {
      const V l = hn::Mul(SigmoidV(Load(part, a.decay_gate + t * a.ldg + c)), rate);
      const V gate = SigmoidV(Load(part, a.input_gate + t * a.ldg + c));
      const V v = hn::Mul(gate, Load(part, a.x + t * a.ldx + c));
      const V share = hn::Sqrt(hn::Neg(Expm1V(hn::Add(l, l))));
      s = a.from_start && t == 0 ? v : hn::MulAdd(ExpV(l), s, hn::Mul(share, v));
      Store(part, s, a.y + t * a.ldy + c);
    }
    Store(part, s, a.state + c);
  });
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
