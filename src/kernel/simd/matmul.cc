// Matrix times packed weights. Every output is one accumulator, fma'd in ascending k; tiling only
// decides which outputs are in registers together and when a sum rests in y between two blocks of
// k, neither of which can change a bit.
//
//   rows <= kStreamRows: bound by weight bytes. All of k at once, x read in place.
//   more rows: bound by fma. Blocks of kBlockRows x kBlockDepth of x are copied to a dense buffer
//     (rows of x are often 4096 bytes apart, which would fight for one cache set); each panel's
//     block of weights (16 KiB in f32, half of L1) is then used by all register tiles of the block.
#include <cstring>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/matmul.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/target-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

constexpr int kStreamRows = 4;
constexpr int kTileRows = kParts == 1 ? 16 : 6;
constexpr int kBlockRows = kParts == 1 ? 16 : 24;
constexpr int kBlockPanels = 32;
constexpr int kBlockDepth = 256;
constexpr int kPrefetchBytes = 4096;
// Matrices from here on are taken to come from DRAM, where one sequential stream per thread beat
// two or four panels at once (0.95-1.0 of plain read bandwidth against 0.7-0.9: the panels lie at a
// stride that hits the same banks). Smaller ones come from a cache, where one accumulator chain
// would wait for itself.
constexpr size_t kSequentialBytes = size_t{1} << 20;

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
// Cuts `total` into the fewest pieces of at most `most`, as equal as possible.
HWY_INLINE int64_t Pieces(int64_t total, int64_t most) { return (total + most - 1) / most; }
HWY_INLINE Range Cut(int64_t total, int64_t pieces, int64_t i) {
  return {total * i / pieces, total * (i + 1) / pieces};
}

// Weight formats: widening is exact, so only the speed differs.
struct F32 {
  using T = float;
};
struct BF16 {
  using T = hwy::bfloat16_t;
};
struct F16 {
  using T = hwy::float16_t;
};
HWY_INLINE V Weight(const float* p) { return hn::LoadU(D(), p); }
template <class T>
HWY_INLINE V Weight(const T* p) {
  return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<T, D>(), p));
}

// A tile of y: R rows of one panel, `width` <= 16 of whose columns exist.
struct Outputs {
  float* y;
  int64_t ld;
  int64_t width;
};
HWY_INLINE Outputs OutputsAt(const MatmulArgs& a, int64_t row, int64_t panel) {
  const int64_t left = a.w->rows() - panel * kLanes;
  return {a.y + row * a.ldy + panel * kLanes, a.ldy, left < kLanes ? left : kLanes};
}

// A last panel with fewer columns: lane by lane range, out of the way of the common case.
template <int R>
HWY_NOINLINE void LoadPartial(const Outputs& o, V (&acc)[R][kParts]) {
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j * kW < o.width; ++j) {
      const float* p = o.y + r * o.ld + j * kW;
      const int64_t left = o.width - j * kW;
      acc[r][j] = left >= kW ? Load(Whole(), p) : Load(Part{left}, p);
    }
}
template <int R>
HWY_NOINLINE void StorePartial(const Outputs& o, const V (&acc)[R][kParts]) {
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j * kW < o.width; ++j) {
      float* p = o.y + r * o.ld + j * kW;
      const int64_t left = o.width - j * kW;
      left >= kW ? Store(Whole(), acc[r][j], p) : Store(Part{left}, acc[r][j], p);
    }
}

template <int R>
HWY_INLINE void LoadAcc(const Outputs& o, bool load, V (&acc)[R][kParts]) {
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) acc[r][j] = hn::Zero(D());
  }
  if (!load) return;
  if (HWY_UNLIKELY(o.width < kLanes)) {
    V tmp[R][kParts];  // keeps acc itself in registers
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < kParts; ++j) tmp[r][j] = hn::Zero(D());
    LoadPartial<R>(o, tmp);
    HWY_UNROLL(16)
    for (int r = 0; r < R; ++r) {
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) acc[r][j] = tmp[r][j];
    }
    return;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) acc[r][j] = Load(Whole(), o.y + r * o.ld + j * kW);
  }
}

template <int R>
HWY_INLINE void StoreAcc(const Outputs& o, const V (&acc)[R][kParts]) {
  if (HWY_UNLIKELY(o.width < kLanes)) {
    V tmp[R][kParts];
    HWY_UNROLL(16)
    for (int r = 0; r < R; ++r) {
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) tmp[r][j] = acc[r][j];
    }
    StorePartial<R>(o, tmp);
    return;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) Store(Whole(), acc[r][j], o.y + r * o.ld + j * kW);
  }
}

// R rows from `row` times P panels from `panel`, all of k.
template <class W, int R, int P>
HWY_NOINLINE void Stream(const MatmulArgs& a, int64_t row, int64_t panel) {
  using T = typename W::T;
  const int64_t depth = a.w->cols();
  const T* w = static_cast<const T*>(a.w->data()) + panel * depth * kLanes;
  const float* x = a.x + row * a.ldx;
  V acc[P][R][kParts];
  HWY_UNROLL(8)
  for (int p = 0; p < P; ++p) LoadAcc<R>(OutputsAt(a, row, panel + p), a.accumulate, acc[p]);
  HWY_UNROLL(2)
  for (int64_t k = 0; k < depth; ++k) {
    V xk[R];
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) xk[r] = hn::Set(D(), x[r * a.ldx + k]);
    HWY_UNROLL(8)
    for (int p = 0; p < P; ++p) {
      const T* wk = w + (p * depth + k) * kLanes;
      hwy::Prefetch(reinterpret_cast<const char*>(wk) + kPrefetchBytes);
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) {
        const V wj = Weight(wk + j * kW);
        HWY_UNROLL(4)
        for (int r = 0; r < R; ++r) acc[p][r][j] = hn::MulAdd(xk[r], wj, acc[p][r][j]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int p = 0; p < P; ++p) StoreAcc<R>(OutputsAt(a, row, panel + p), acc[p]);
}

template <class W, int R>
HWY_INLINE void StreamPanels(const MatmulArgs& a, int64_t row) {
  constexpr int kFit = kAccumulators / (R * kParts);
  constexpr int kPanels = kFit > 4 ? 4 : kFit;
  int64_t p = a.panel_begin;
  if (a.w->bytes() < kSequentialBytes)
    for (; p + kPanels <= a.panel_end; p += kPanels) Stream<W, R, kPanels>(a, row, p);
  for (; p < a.panel_end; ++p) Stream<W, R, 1>(a, row, p);
}

// R rows of packed x (kBlockDepth apart) times `depth` steps of one panel. `next` is the block of
// weights wanted after this one: it lies a whole panel away, which no hardware prefetcher follows.
// It is fetched into the second-level cache, for the first holds this block and x (8 rows of a
// 100 M model: 22 ms instead of 39; 16 rows: 40 instead of 57).
template <class W, int R>
HWY_NOINLINE void Tile(const float* x,
                       const typename W::T* w,
                       const typename W::T* next,
                       int64_t depth,
                       const Outputs& o,
                       bool load) {
  V acc[R][kParts];
  LoadAcc<R>(o, load, acc);
  // The next panel's outputs, wanted after this tile: rows of y are far apart, which no hardware
  // prefetcher follows.
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) hwy::Prefetch(o.y + r * o.ld + kLanes);
  HWY_UNROLL(2)
  for (int64_t k = 0; k < depth; ++k) {
    V wk[kParts];
    __builtin_prefetch(next + k * kLanes, 0, 2);
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) wk[j] = Weight(w + k * kLanes + j * kW);
    HWY_UNROLL(16)
    for (int r = 0; r < R; ++r) {
      const V xk = hn::Set(D(), x[r * kBlockDepth + k]);
      HWY_UNROLL(4)
      for (int j = 0; j < kParts; ++j) acc[r][j] = hn::MulAdd(xk, wk[j], acc[r][j]);
    }
  }
  StoreAcc<R>(o, acc);
}

template <class W>
HWY_INLINE void TileOf(int64_t rows,
                       const float* x,
                       const typename W::T* w,
                       const typename W::T* next,
                       int64_t depth,
                       const Outputs& o,
                       bool load) {
  switch (rows) {
#define BATON_TILE(R)                                                     \
  case R:                                                                 \
    if constexpr (R <= kTileRows) Tile<W, R>(x, w, next, depth, o, load); \
    return;
    BATON_TILE(1)
    BATON_TILE(2)
    BATON_TILE(3)
    BATON_TILE(4)
    BATON_TILE(5)
    BATON_TILE(6)
    BATON_TILE(7)
    BATON_TILE(8)
    BATON_TILE(9)
    BATON_TILE(10)
    BATON_TILE(11)
    BATON_TILE(12)
    BATON_TILE(13)
    BATON_TILE(14)
    BATON_TILE(15)
    BATON_TILE(16)
#undef BATON_TILE
  }
}

// Rows [row, row + rows), rows <= kBlockRows, and k in [k0, k0 + depth) of panels [begin, end).
template <class W>
void Block(const MatmulArgs& a, const Range& row, const Range& k, const Range& panel) {
  using T = typename W::T;
  HWY_ALIGN float xp[kBlockRows * kBlockDepth];
  for (int64_t r = 0; r < row.size(); ++r)
    std::memcpy(xp + r * kBlockDepth, a.x + (row.begin + r) * a.ldx + k.begin,
                static_cast<size_t>(k.size()) * sizeof(float));
  const int64_t tiles = Pieces(row.size(), kTileRows);
  const bool load = a.accumulate || k.begin > 0;
  for (int64_t p = panel.begin; p < panel.end; ++p) {
    const T* w = static_cast<const T*>(a.w->data()) + (p * a.w->cols() + k.begin) * kLanes;
    // After the last panel comes the next block of k of the first one, or the panels that follow.
    const T* const all = static_cast<const T*>(a.w->data());
    const T* next = w;  // nothing
    if (p + 1 < panel.end) {
      next = w + a.w->cols() * kLanes;
    } else if (k.end < a.w->cols()) {
      next = all + (panel.begin * a.w->cols() + k.end) * kLanes;
    } else if (p + 1 < a.w->panels()) {
      next = all + (p + 1) * a.w->cols() * kLanes;
    }
    for (int64_t i = 0; i < tiles; ++i) {
      const Range r = Cut(row.size(), tiles, i);
      TileOf<W>(r.size(), xp + r.begin * kBlockDepth, w, next, k.size(),
                OutputsAt(a, row.begin + r.begin, p), load);
    }
  }
}

template <class W>
void MatmulOf(const MatmulArgs& a) {
  switch (a.rows) {
    case 1:
      return StreamPanels<W, 1>(a, 0);
    case 2:
      return StreamPanels<W, 2>(a, 0);
    case 3:
      return StreamPanels<W, 3>(a, 0);
    case 4:
      return StreamPanels<W, 4>(a, 0);
    default:
      break;
  }
  const int64_t depth = a.w->cols();
  const int64_t panels = a.panel_end - a.panel_begin;
  const int64_t panel_cuts = Pieces(panels, kBlockPanels);
  const int64_t depth_cuts = Pieces(depth, kBlockDepth);
  const int64_t row_cuts = Pieces(a.rows, kBlockRows);
  for (int64_t p = 0; p < panel_cuts; ++p) {
    Range panel = Cut(panels, panel_cuts, p);
    panel.begin += a.panel_begin;
    panel.end += a.panel_begin;
    for (int64_t k = 0; k < depth_cuts; ++k)
      for (int64_t r = 0; r < row_cuts; ++r)
        Block<W>(a, Cut(a.rows, row_cuts, r), Cut(depth, depth_cuts, k), panel);
  }
}

}  // namespace

void Matmul(const MatmulArgs& a) {
  switch (a.w->dtype()) {
    case DType::kF32:
      return MatmulOf<F32>(a);
    case DType::kBF16:
      return MatmulOf<BF16>(a);
    case DType::kF16:
      return MatmulOf<F16>(a);
  }
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
