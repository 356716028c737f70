// Causal attention over paged KV, in absolute splits of kAttentionSplit tokens; see
// reference/attention.cc for the definition.
//
// Queries (rows x heads of the group) are taken in tiles of up to kTileQ that share every load of
// K and V. A tile's queries differ in length by at most a few tokens: tokens all of them see are
// done together, the rest query by query. Scores of tokens past a query's length are computed (the
// lanes of a block go together) and replaced before anything reads them; their V is not touched.
// With a window a tile holds queries of one row only, so that all begin at the same token; blocks
// before it are left out, and tokens of its block before it are treated like those past the end.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/attention.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

constexpr int kTileQ = kParts == 1 ? 8 : 6;
constexpr int kSplitBlocks = kAttentionSplit / kLanes;

constexpr int AtMost(int v, int most) { return v < most ? v : most; }
constexpr int PowerOfTwoBelow(int v) { return v >= 8 ? 8 : v >= 4 ? 4 : v >= 2 ? 2 : 1; }

// A row of outputs; the odd number of cache lines keeps a tile's rows out of each other's sets.
constexpr int kRow = kMaxAttentionDim + kLanes;

// One tile of queries; arrays are indexed by query. `p` holds scores, then softmax numerators.
struct Tile {
  int64_t count;
  const float* q[kTileQ];
  float* out[kTileQ];
  int64_t len[kTileQ];  // ascending
  int64_t start;        // first token they see
  float max[kTileQ];    // of all splits so far
  float sum[kTileQ];
  HWY_ALIGN float total[kTileQ][kRow];
};

// One split of the queries of a tile from `first` on (those before end before the split does).
struct Split {
  int64_t first;
  int64_t blocks;
  const float* const* block;  // KV blocks of the split, from the first that is seen
  const float* const* next;   // those of the next split
  int64_t blocks_ahead;       // how many
  int64_t lead;               // tokens of block 0 before the queries' window
  int64_t lines_ahead;        // cache lines of those already asked for
  int64_t tokens[kTileQ];     // from block 0 up to each query's last
  float max[kTileQ];
  float sum[kTileQ];
  HWY_ALIGN float p[kTileQ][kAttentionSplit];
  HWY_ALIGN float out[kTileQ][kRow];
};

// Scores of Q queries from `first` on against B blocks from `block` on.
template <int Q, int B>
HWY_INLINE void ScoreBlocks(const AttentionArgs& a, const Tile& tile, int64_t block, Split* s) {
  V acc[Q][B][kParts];
  HWY_UNROLL(8)
  for (int q = 0; q < Q; ++q) {
    HWY_UNROLL(4)
    for (int b = 0; b < B; ++b) {
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) acc[q][b][j] = hn::Zero(D());
    }
  }
  const float* k[B];
  const float* v[B];     // V of these blocks: L2 holds it until the split's scores are done
  const float* next[B];  // K of the blocks after these
  HWY_UNROLL(4)
  for (int b = 0; b < B; ++b) {
    const int64_t ahead = block + B + b < s->blocks ? block + B + b : block + b;
    k[b] = s->block[block + b] + a.k_offset;
    v[b] = s->block[block + b] + a.v_offset;
    next[b] = s->block[ahead] + a.k_offset;
  }
  const int64_t half = a.head_dim / 2;
  for (int64_t d = 0; d < a.head_dim; ++d) {
    V kd[B][kParts];
    HWY_UNROLL(4)
    for (int b = 0; b < B; ++b) {
      // First all of V, then all of the next K: in a block they are neighbours, and one long run
      // is what a hardware prefetcher takes over.
      const float* ahead = d < half ? v[b] + d * 2 * kLanes : next[b] + (d - half) * 2 * kLanes;
      hwy::Prefetch(ahead);
      hwy::Prefetch(ahead + kLanes);
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) kd[b][j] = hn::LoadU(D(), k[b] + d * kLanes + j * kW);
    }
    HWY_UNROLL(8)
    for (int q = 0; q < Q; ++q) {
      const V qd = Splat(tile.q[s->first + q][d]);
      HWY_UNROLL(4)
      for (int b = 0; b < B; ++b) {
        HWY_UNROLL(4)
        for (int j = 0; j < kParts; ++j) acc[q][b][j] = hn::MulAdd(qd, kd[b][j], acc[q][b][j]);
      }
    }
  }
  const V scale = Splat(a.scale);
  HWY_UNROLL(8)
  for (int q = 0; q < Q; ++q) {
    HWY_UNROLL(4)
    for (int b = 0; b < B; ++b) {
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j)
        hn::Store(hn::Mul(acc[q][b][j], scale), D(),
                  s->p[s->first + q] + (block + b) * kLanes + j * kW);
    }
  }
}

template <int Q>
HWY_NOINLINE void Scores(const AttentionArgs& a, const Tile& tile, Split* s) {
  constexpr int kBlocks = Q < 5 ? 1 : AtMost(kAccumulators / (Q * kParts), 4);
  int64_t b = 0;
  for (; b + kBlocks <= s->blocks; b += kBlocks) ScoreBlocks<Q, kBlocks>(a, tile, b, s);
  for (; b < s->blocks; ++b) ScoreBlocks<Q, 1>(a, tile, b, s);
}

// Turns the scores of query q into numerators, with their maximum and sum.
HWY_NOINLINE void Numerators(int64_t q, Split* s) {
  float* p = s->p[q];
  const int64_t n = s->tokens[q];
  // exp of it is 0, and adding 0 changes no sum.
  for (int64_t i = 0; i < s->lead; ++i) p[i] = -std::numeric_limits<float>::infinity();
  V vmax = Splat(p[0]);
  ForVectors(n, [&](int64_t i, auto part)
                    HWY_ATTR { vmax = hn::Max(vmax, Select(part, Load(part, p + i), vmax)); });
  HWY_ALIGN float m[kW];
  hn::Store(vmax, D(), m);
  float max = m[0];
  for (int i = 1; i < kW; ++i) max = m[i] > max ? m[i] : max;
  const V top = Splat(max);
  Lanes sum = ZeroLanes();
  ForLanes(n, [&](int64_t i, int j, auto part) HWY_ATTR {
    const V e = ExpV(hn::Sub(Load(part, p + i), top));
    Store(part, e, p + i);
    sum.v[j] = hn::Add(sum.v[j], Select(part, e, hn::Zero(D())));
  });
  s->max[q] = max;
  s->sum[q] = SumLanes(sum);
}

// The next kLanes cache lines of the split to come, K before V in each block; `otherwise` when all
// have been asked for. Weighting V is quick and its V is in L2 by now: without this, memory would
// stand idle meanwhile.
HWY_INLINE const float* LinesAhead(const AttentionArgs& a, Split* s, const float* otherwise) {
  const int64_t block = s->lines_ahead / (2 * a.head_dim);
  if (block >= s->blocks_ahead) return otherwise;
  const int64_t line = s->lines_ahead % (2 * a.head_dim);
  s->lines_ahead += kLanes;
  const float* next = s->next[block];
  return line < a.head_dim ? next + a.k_offset + line * kLanes
                           : next + a.v_offset + (line - a.head_dim) * kLanes;
}

// out[q][d..] (+)= sum of p[q][t] * V[t][d..] over tokens [begin, end) in order, for Q queries from
// `q0` on and C vectors from column d. `out` starts from zero if they are the first.
template <int Q, int C, class P>
HWY_INLINE void ValueColumns(
    const AttentionArgs& a, int64_t q0, int64_t begin, int64_t end, int64_t d, Split* s, P part) {
  V acc[Q][C];
  HWY_UNROLL(8)
  for (int q = 0; q < Q; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < C; ++c)
      acc[q][c] = begin == s->lead ? hn::Zero(D()) : hn::LoadU(D(), s->out[q0 + q] + d + c * kW);
  }
  for (int64_t t = begin; t < end;) {
    const int64_t block = t / kLanes;
    const int64_t stop = (block + 1) * kLanes < end ? (block + 1) * kLanes : end;
    const float* v = s->block[block] + a.v_offset + (t % kLanes) * a.head_dim + d;
    const float* ahead = LinesAhead(a, s, v);
    for (; t < stop; ++t, v += a.head_dim, ahead += kLanes) {
      hwy::Prefetch(ahead);
      V row[C];
      HWY_UNROLL(8)
      for (int c = 0; c < C; ++c) row[c] = Load(part, v + c * kW);
      HWY_UNROLL(8)
      for (int q = 0; q < Q; ++q) {
        const V pt = Splat(s->p[q0 + q][t]);
        HWY_UNROLL(8)
        for (int c = 0; c < C; ++c) acc[q][c] = hn::MulAdd(pt, row[c], acc[q][c]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int q = 0; q < Q; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < C; ++c) hn::StoreU(acc[q][c], D(), s->out[q0 + q] + d + c * kW);
  }
}

// Whole vectors from column d on, C at a time and the rest in halves. Returns the next column.
template <int Q, int C>
HWY_INLINE int64_t
ValueWhole(const AttentionArgs& a, int64_t q0, int64_t begin, int64_t end, int64_t d, Split* s) {
  for (; d + C * kW <= a.head_dim; d += C * kW)
    ValueColumns<Q, C>(a, q0, begin, end, d, s, Whole());
  if constexpr (C > 1) d = ValueWhole<Q, C / 2>(a, q0, begin, end, d, s);
  return d;
}

template <int Q>
HWY_NOINLINE void Values(const AttentionArgs& a, int64_t q0, int64_t begin, int64_t end, Split* s) {
  const int64_t d = ValueWhole<Q, PowerOfTwoBelow(kAccumulators / Q)>(a, q0, begin, end, 0, s);
  if (d < a.head_dim) ValueColumns<Q, 1>(a, q0, begin, end, d, s, Part{a.head_dim - d});
}

// Calls fn(std::integral_constant<int, n>) for the run-time n in [1, kTileQ].
template <class Fn>
HWY_INLINE void WithCount(int64_t n, const Fn& fn) {
  switch (n) {
    case 1:
      return fn(std::integral_constant<int, 1>());
    case 2:
      return fn(std::integral_constant<int, 2>());
    case 3:
      return fn(std::integral_constant<int, 3>());
    case 4:
      return fn(std::integral_constant<int, 4>());
    case 5:
      return fn(std::integral_constant<int, 5>());
    case 6:
      return fn(std::integral_constant<int, 6>());
    case 7:
      return fn(std::integral_constant<int, AtMost(7, kTileQ)>());
    case 8:
      return fn(std::integral_constant<int, AtMost(8, kTileQ)>());
    default:
      return;
  }
}

void RunSplit(const AttentionArgs& a, const Tile& tile, Split* s) {
  const int64_t count = tile.count - s->first;
  WithCount(count, [&](auto n) HWY_ATTR { Scores<n.value>(a, tile, s); });
  for (int64_t q = s->first; q < tile.count; ++q) Numerators(q, s);
  const int64_t common = s->tokens[s->first];
  WithCount(count, [&](auto n) HWY_ATTR { Values<n.value>(a, s->first, s->lead, common, s); });
  for (int64_t q = s->first + 1; q < tile.count; ++q)
    if (s->tokens[q] > common) Values<1>(a, q, common, s->tokens[q], s);
}

// Folds the split into the tile's totals; the first split becomes the total.
void Merge(const AttentionArgs& a, int64_t q, const Split& s, bool first_split, Tile* tile) {
  float* total = tile->total[q];
  if (first_split) {
    tile->max[q] = s.max[q];
    tile->sum[q] = s.sum[q];
    ForVectors(a.head_dim, [&](int64_t d, auto) HWY_ATTR {
      hn::StoreU(hn::LoadU(D(), s.out[q] + d), D(), total + d);
    });
    return;
  }
  const float max = s.max[q] > tile->max[q] ? s.max[q] : tile->max[q];
  const V keep = ExpV(Splat(tile->max[q] - max));
  const V add = ExpV(Splat(s.max[q] - max));
  tile->max[q] = max;
  tile->sum[q] = hn::GetLane(hn::MulAdd(Splat(s.sum[q]), add, hn::Mul(Splat(tile->sum[q]), keep)));
  ForVectors(a.head_dim, [&](int64_t d, auto) HWY_ATTR {
    hn::StoreU(
        hn::MulAdd(hn::LoadU(D(), s.out[q] + d), add, hn::Mul(hn::LoadU(D(), total + d), keep)),
        D(), total + d);
  });
}

void RunTile(const AttentionArgs& a, Tile* tile) {
  const int64_t longest = tile->len[tile->count - 1];
  Split s;
  s.first = 0;
  const int64_t seen = tile->start / kLanes * kLanes;
  for (int64_t split = seen / kAttentionSplit; split * kAttentionSplit < longest; ++split) {
    const int64_t begin = std::max(split * kAttentionSplit, seen);
    const int64_t end = std::min((split + 1) * kAttentionSplit, longest);
    while (tile->len[s.first] <= begin) ++s.first;
    const int64_t tokens = end - begin;
    s.blocks = (tokens + kLanes - 1) / kLanes;
    s.block = a.blocks + begin / kLanes;
    s.next = a.blocks + end / kLanes;  // used if there is more to come
    s.lead = std::max<int64_t>(tile->start - begin, 0);
    const int64_t later = longest - end;
    s.blocks_ahead = ((later < kAttentionSplit ? later : kAttentionSplit) + kLanes - 1) / kLanes;
    s.lines_ahead = 0;
    for (int64_t q = s.first; q < tile->count; ++q)
      s.tokens[q] = tile->len[q] - begin < tokens ? tile->len[q] - begin : tokens;
    RunSplit(a, *tile, &s);
    for (int64_t q = s.first; q < tile->count; ++q) Merge(a, q, s, begin == seen, tile);
  }
  for (int64_t q = 0; q < tile->count; ++q) {
    const V inv = Splat(1.0f / tile->sum[q]);
    ForVectors(a.head_dim, [&](int64_t d, auto part) HWY_ATTR {
      Store(part, hn::Mul(hn::LoadU(D(), tile->total[q] + d), inv), tile->out[q] + d);
    });
  }
}

// Queries [first, first + count), row after row; all see tokens from `start` on.
void RunQueries(const AttentionArgs& a, int64_t first, int64_t count, int64_t start) {
  const int64_t tiles = (count + kTileQ - 1) / kTileQ;
  Tile tile;
  tile.start = start;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t begin = first + count * i / tiles;
    tile.count = first + count * (i + 1) / tiles - begin;
    for (int64_t q = 0; q < tile.count; ++q) {
      const int64_t r = (begin + q) / a.group;
      const int64_t g = (begin + q) % a.group;
      tile.q[q] = a.q + r * a.ldq + g * a.head_dim;
      tile.out[q] = a.out + r * a.ldo + g * a.head_dim;
      tile.len[q] = a.first_len + r;
    }
    RunTile(a, &tile);
  }
}

}  // namespace

void Attention(const AttentionArgs& a) {
  // Rows that see everything before them share tiles; the others have a window of their own.
  int64_t whole = a.rows;
  if (a.window > 0) whole = std::clamp<int64_t>(a.window - a.first_len + 1, 0, a.rows);
  if (whole > 0) RunQueries(a, 0, whole * a.group, 0);
  for (int64_t r = whole; r < a.rows; ++r)
    RunQueries(a, r * a.group, a.group, a.first_len + r - a.window);
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
