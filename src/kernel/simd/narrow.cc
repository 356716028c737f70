// Narrow state: rounding, widening, and the second forms of Mamba-2 and the gated delta rule. The
// base is widened on the fly, so that decode reads its bytes once, for a key and a query together;
// past kFewTokens, blocks of it are widened into a scratch that stays in L1 and serves all tokens.
// Rounding is integer arithmetic on f32 bits.
#include <cstring>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/narrow.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD
namespace {

using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;
using D16 = hn::Rebind<uint16_t, D>;
using D8 = hn::Rebind<uint8_t, D>;
using DH = hn::Rebind<hwy::float16_t, D>;

HWY_INLINE VU Unsigned(uint32_t u) { return hn::Set(DU(), u); }
HWY_INLINE VU UBits(V v) { return hn::BitCast(DU(), v); }
HWY_INLINE V FromUBits(VU v) { return hn::BitCast(D(), v); }

// ---- elements ----

template <class T>
HWY_INLINE auto LoadNarrow(Whole, const T* p) {
  return hn::LoadU(hn::Rebind<T, D>(), p);
}
template <class T>
HWY_INLINE auto LoadNarrow(Part part, const T* p) {
  HWY_ALIGN T tmp[kW] = {};
  std::memcpy(tmp, p, static_cast<size_t>(part.n) * sizeof(T));
  return hn::Load(hn::Rebind<T, D>(), tmp);
}
template <class T, class VN>
HWY_INLINE void StoreNarrow(Whole, VN v, T* p) {
  hn::StoreU(v, hn::Rebind<T, D>(), p);
}
template <class T, class VN>
HWY_INLINE void StoreNarrow(Part part, VN v, T* p) {
  HWY_ALIGN T tmp[kW];
  hn::Store(v, hn::Rebind<T, D>(), tmp);
  std::memcpy(p, tmp, static_cast<size_t>(part.n) * sizeof(T));
}

// kF8E4M3: a 256th of the element, exactly a half with the same fraction.
template <StateDType kType, class P>
HWY_INLINE V Element(P part, const void* base, int64_t i) {
  if constexpr (kType == StateDType::kF8E4M3) {
    const auto* bytes = static_cast<const uint8_t*>(base) + i;
    const auto codes = hn::PromoteTo(D16(), LoadNarrow(part, bytes));
    const auto sign = hn::ShiftLeft<8>(hn::And(codes, hn::Set(D16(), 0x80)));
    const auto rest = hn::ShiftLeft<7>(hn::And(codes, hn::Set(D16(), 0x7f)));
    return hn::PromoteTo(D(), hn::BitCast(DH(), hn::Or(sign, rest)));
  } else {
    const auto codes = LoadNarrow(part, static_cast<const uint16_t*>(base) + i);
    if constexpr (kType == StateDType::kF16) {
      return hn::PromoteTo(D(), hn::BitCast(DH(), codes));
    } else {
      return FromUBits(hn::ShiftLeft<16>(hn::PromoteTo(DU(), codes)));
    }
  }
}

HWY_INLINE float RowFactor(const uint16_t* scales, int64_t row) {
  const uint32_t bits = static_cast<uint32_t>(scales[row]) << 16;
  float v;
  std::memcpy(&v, &bits, sizeof(v));
  return v * 256.0f;
}

// c * m of the row, the factor being 1 where there are no scales.
template <StateDType kType>
HWY_INLINE float Scaled(float c, const uint16_t* scales, int64_t row) {
  if constexpr (kType == StateDType::kF8E4M3) return c * RowFactor(scales, row);
  return c;
}

// ---- rounding ----

HWY_INLINE VU RandomV(uint64_t key, uint32_t index) {
  VU h = hn::Mul(hn::Iota(DU(), index), Unsigned(0x9E3779B9u));
  h = hn::Add(h, Unsigned(static_cast<uint32_t>(key)));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  h = hn::Mul(h, Unsigned(0x85EBCA6Bu));
  h = hn::Xor(h, hn::ShiftRight<13>(h));
  h = hn::Add(h, Unsigned(static_cast<uint32_t>(key >> 32)));
  h = hn::Mul(h, Unsigned(0xC2B2AE35u));
  return hn::Xor(h, hn::ShiftRight<16>(h));
}

// The code of a magnitude in a format of kMantissa bits whose least normal exponent is kLeast.
template <int kMantissa, int kLeast, bool kNearest>
HWY_INLINE VI EncodeV(VU a, uint32_t top, VU random) {
  constexpr int kDrop = 23 - kMantissa;
  constexpr uint32_t kStep = uint32_t{1} << kDrop;
  constexpr uint32_t kLeastBits = static_cast<uint32_t>(kLeast + 127) << 23;
  constexpr uint32_t kSmallScale = static_cast<uint32_t>(kMantissa - kLeast + 127) << 23;
  const V t = hn::Mul(FromUBits(a), FromUBits(Unsigned(kSmallScale)));
  VI small;
  VU carry;
  if constexpr (kNearest) {
    small = hn::Sub(Bits(hn::Add(t, Splat(kRoundMagic))), SplatBits(kRoundMagicBits));
    carry = hn::Add(Unsigned(kStep / 2 - 1), hn::And(hn::ShiftRight<kDrop>(a), Unsigned(1)));
  } else {
    const VI high = hn::BitCast(DI(), hn::ShiftRight<8>(random));
    const V u = hn::Mul(hn::ConvertTo(D(), high), Splat(0x1p-24f));
    small = hn::ConvertTo(DI(), hn::Add(t, u));
    carry = hn::And(random, Unsigned(kStep - 1));
  }
  const VU normal = hn::Sub(hn::ShiftRight<kDrop>(hn::Add(a, carry)),
                            Unsigned(static_cast<uint32_t>(kLeast + 126) << kMantissa));
  return hn::IfThenElse(hn::Lt(hn::BitCast(DI(), a), SplatBits(kLeastBits)), small,
                        hn::BitCast(DI(), hn::Min(normal, Unsigned(top))));
}

// The 16 bits of each element of a bf16 or f16 row.
template <StateDType kType, bool kNearest>
HWY_INLINE VI Code16(V v, VU random) {
  const VU bits = UBits(v);
  const VU a = hn::And(bits, Unsigned(0x7fffffffu));
  const auto is_nan = hn::Gt(hn::BitCast(DI(), a), SplatBits(kInfBits));
  const VI high = hn::BitCast(DI(), hn::ShiftRight<16>(bits));
  if constexpr (kType == StateDType::kF16) {
    const VI sign = hn::And(high, SplatBits(0x8000u));
    const VI code = EncodeV<10, -14, kNearest>(a, 0x7c00, random);
    return hn::Or(sign, hn::IfThenElse(is_nan, SplatBits(0x7e00u), code));
  } else {
    const VU carry =
        kNearest ? hn::Add(Unsigned(0x7fffu), hn::And(hn::ShiftRight<16>(bits), Unsigned(1)))
                 : hn::And(random, Unsigned(0xffffu));
    const VI code = hn::BitCast(DI(), hn::ShiftRight<16>(hn::Add(bits, carry)));
    const auto is_inf = hn::Eq(hn::BitCast(DI(), a), SplatBits(kInfBits));
    return hn::IfThenElse(is_nan, hn::Or(high, SplatBits(0x40u)),
                          hn::IfThenElse(is_inf, high, code));
  }
}

template <StateDType kType, bool kNearest>
HWY_INLINE void NarrowRow16(const NarrowArgs& a, int64_t row, const float* v) {
  auto* out = static_cast<uint16_t*>(a.narrow) + row * a.width;
  ForVectors(a.width, [&](int64_t i, auto part) HWY_ATTR {
    const VU random =
        kNearest ? Unsigned(0) : RandomV(a.key, static_cast<uint32_t>(row * a.width + i));
    const VI code = Code16<kType, kNearest>(Load(part, v + i), random);
    StoreNarrow(part, hn::DemoteTo(D16(), code), out + i);
  });
}

template <bool kNearest>
HWY_INLINE void NarrowRow8(const NarrowArgs& a, int64_t row, const float* v) {
  VI most = hn::Zero(DI());
  ForVectors(a.width, [&](int64_t i, auto part) HWY_ATTR {
    most = hn::Max(most, hn::And(Bits(Load(part, v + i)), SplatBits(0x7fffffffu)));
  });
  const int32_t largest = hn::GetLane(hn::MaxOfLanes(DI(), most));
  const int32_t s = E4M3ScaleExponent(static_cast<uint32_t>(largest));
  a.scales[row] = E4M3Scale(s);
  const V inverse = FromUBits(Unsigned(static_cast<uint32_t>(127 - s) << 23));
  auto* out = static_cast<uint8_t*>(a.narrow) + row * a.width;
  ForVectors(a.width, [&](int64_t i, auto part) HWY_ATTR {
    const VU random =
        kNearest ? Unsigned(0) : RandomV(a.key, static_cast<uint32_t>(row * a.width + i));
    const VU bits = UBits(hn::Mul(Load(part, v + i), inverse));
    const VI sign = hn::BitCast(DI(), hn::And(hn::ShiftRight<24>(bits), Unsigned(0x80)));
    const VI code = EncodeV<3, -6, kNearest>(hn::And(bits, Unsigned(0x7fffffffu)), 0x7e, random);
    StoreNarrow(part, hn::DemoteTo(D8(), hn::Or(sign, code)), out + i);
  });
}

template <StateDType kType>
HWY_INLINE void NarrowRow(const NarrowArgs& a, int64_t row, const float* v) {
  const bool nearest = a.rounding == Rounding::kNearest;
  if constexpr (kType == StateDType::kF8E4M3) {
    nearest ? NarrowRow8<true>(a, row, v) : NarrowRow8<false>(a, row, v);
  } else {
    nearest ? NarrowRow16<kType, true>(a, row, v) : NarrowRow16<kType, false>(a, row, v);
  }
}

template <StateDType kType>
void NarrowRows(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) NarrowRow<kType>(a, row, a.wide + row * a.width);
}

template <StateDType kType>
void WidenRows(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const V m = Splat(Scaled<kType>(1.0f, a.scales, row));
    ForVectors(a.width, [&](int64_t i, auto part) HWY_ATTR {
      const int64_t at = row * a.width + i;
      Store(part, hn::Mul(m, Element<kType>(part, a.narrow, at)), a.wide + at);
    });
  }
}

// ---- second form of Mamba-2 ----

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

// ---- second form of the gated delta rule ----

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

void Narrow(const NarrowArgs& a) {
  switch (a.dtype) {
    case StateDType::kBF16:
      return NarrowRows<StateDType::kBF16>(a);
    case StateDType::kF16:
      return NarrowRows<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return NarrowRows<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}

void Widen(const NarrowArgs& a) {
  switch (a.dtype) {
    case StateDType::kBF16:
      return WidenRows<StateDType::kBF16>(a);
    case StateDType::kF16:
      return WidenRows<StateDType::kF16>(a);
    case StateDType::kF8E4M3:
      return WidenRows<StateDType::kF8E4M3>(a);
    case StateDType::kF32:
      break;
  }
}

void Dots(
    const float* a, const float* const* b, int64_t offset, int64_t count, int64_t n, float* out) {
  for (int64_t j = 0; j < count; ++j) {
    Lanes sum = ZeroLanes();
    const float* bj = b[j] + offset;
    ForLanes(n, [&](int64_t i, int lane, auto part) HWY_ATTR {
      const V next = hn::MulAdd(Load(part, a + i), Load(part, bj + i), sum.v[lane]);
      sum.v[lane] = Select(part, next, sum.v[lane]);
    });
    out[j] = SumLanes(sum);
  }
}
#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
