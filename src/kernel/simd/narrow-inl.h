// Elements of narrow state as vectors: widened, and rounded row by row, which is integer arithmetic
// on f32 bits.
#if defined(BATON_KERNEL_SIMD_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_KERNEL_SIMD_NARROW_INL_H_
#undef BATON_KERNEL_SIMD_NARROW_INL_H_
#else
#define BATON_KERNEL_SIMD_NARROW_INL_H_
#endif

#include <cstring>

#include "kernel/simd/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {
#if BATON_SIMD

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
  // Not Iota: with a variable start it stores lane after lane and loads them as one, which waits
  // for the stores and took three quarters of a rounding's time.
  HWY_ALIGN static constexpr uint32_t kPlaces[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
  const VU places = hn::Add(hn::Load(DU(), kPlaces), Unsigned(index));
  VU h = hn::Mul(places, Unsigned(0x9E3779B9u));
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
    const VI whole = hn::ConvertTo(DI(), t);
    const auto up = hn::Lt(u, hn::Sub(t, hn::ConvertTo(D(), whole)));
    small = hn::Sub(whole, hn::BitCast(DI(), hn::VecFromMask(D(), up)));  // true is -1
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

#endif  // BATON_SIMD
}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
