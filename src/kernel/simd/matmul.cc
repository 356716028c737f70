// Matrix times packed weights. Every output is one accumulator, fma'd in ascending k; tiling only
// decides which outputs are in registers together and when a sum rests in y between two blocks of
// k, neither of which can change a bit.
//
//   rows <= kStreamRows: bound by weight bytes. Several panels at once, all of k, x read in place.
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
constexpr int kBlockRows = kTileRows * (64 / kTileRows);
constexpr int kBlockDepth = 256;
constexpr int kPrefetchBytes = 2048;

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

template <int R>
HWY_INLINE void LoadAcc(const Outputs& o, bool load, V (&acc)[R][kParts]) {
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) {
      const int64_t left = o.width - j * kW;
      acc[r][j] = hn::Zero(D());
      if (!load || left <= 0) continue;
      const float* p = o.y + r * o.ld + j * kW;
      acc[r][j] = left >= kW ? Load(Whole(), p) : Load(Part{left}, p);
    }
  }
}

template <int R>
HWY_INLINE void StoreAcc(const Outputs& o, const V (&acc)[R][kParts]) {
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < kParts; ++j) {
      const int64_t left = o.width - j * kW;
      float* p = o.y + r * o.ld + j * kW;
      if (left >= kW) {
        Store(Whole(), acc[r][j], p);
      } else if (left > 0) {
        Store(Part{left}, acc[r][j], p);
      }
    }
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
  for (; p + kPanels <= a.panel_end; p += kPanels) Stream<W, R, kPanels>(a, row, p);
  for (; p < a.panel_end; ++p) Stream<W, R, 1>(a, row, p);
}

// R rows of packed x (kBlockDepth apart) times `depth` steps of one panel.
template <class W, int R>
HWY_NOINLINE void Tile(
    const float* x, const typename W::T* w, int64_t depth, const Outputs& o, bool load) {
  V acc[R][kParts];
  LoadAcc<R>(o, load, acc);
  HWY_UNROLL(2)
  for (int64_t k = 0; k < depth; ++k) {
    V wk[kParts];
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
                       int64_t depth,
                       const Outputs& o,
                       bool load) {
  switch (rows) {
#define BATON_TILE(R)                                               \
  case R:                                                           \
    if constexpr (R <= kTileRows) Tile<W, R>(x, w, depth, o, load); \
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

// `total` cut into pieces of at most `most`, as equal as possible: piece i of n starts here.
HWY_INLINE int64_t Cut(int64_t total, int64_t pieces, int64_t i) { return total * i / pieces; }

// Rows [row, row + rows), rows <= kBlockRows, and k in [k0, k0 + depth) of every panel.
template <class W>
void Block(const MatmulArgs& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* xp) {
  using T = typename W::T;
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(xp + r * kBlockDepth, a.x + (row + r) * a.ldx + k0,
                static_cast<size_t>(depth) * sizeof(float));
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const bool load = a.accumulate || k0 > 0;
  for (int64_t p = a.panel_begin; p < a.panel_end; ++p) {
    const T* w = static_cast<const T*>(a.w->data()) + (p * a.w->cols() + k0) * kLanes;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t r0 = Cut(rows, tiles, i);
      TileOf<W>(Cut(rows, tiles, i + 1) - r0, xp + r0 * kBlockDepth, w, depth,
                OutputsAt(a, row + r0, p), load);
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
  HWY_ALIGN float xp[kBlockRows * kBlockDepth];
  const int64_t blocks = (a.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t row = Cut(a.rows, blocks, i);
    const int64_t rows = Cut(a.rows, blocks, i + 1) - row;
    for (int64_t k0 = 0; k0 < a.w->cols(); k0 += kBlockDepth) {
      const int64_t left = a.w->cols() - k0;
      Block<W>(a, row, rows, k0, left < kBlockDepth ? left : kBlockDepth, xp);
    }
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
