#include "kernel/packed_matrix.h"
#include "kernel/reference/functions-inl.h"
#include "kernel/reference/lanes-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {
namespace {

// A small float: `mantissa` bits, the least normal exponent, the largest code that is kept.
struct Format {
  int mantissa;
  int least;
  uint32_t top;
};
constexpr Format kF16Format = {10, -14, 0x7c00};  // beyond: infinity
constexpr Format kE4M3Format = {3, -6, 0x7e};     // the row's scale keeps values at 448 or below

uint32_t Encode(const Format& f, uint32_t bits, Rounding rounding, uint32_t random) {
  const uint32_t a = bits & 0x7fffffffu;
  const bool nearest = rounding == Rounding::kNearest;
  uint32_t code;
  if (a < static_cast<uint32_t>(f.least + 127) << 23) {
    // Below the least normal the codes are the integers.
    const float t = FromBits(a) * Pow2(f.mantissa - f.least);
    if (nearest) {
      code = Bits(t + kRoundMagic) - kRoundMagicBits;
    } else {
      // The part behind the point is exact; t + u would be rounded, to the next integer at worst.
      const uint32_t whole = static_cast<uint32_t>(t);
      const float u = static_cast<float>(random >> 8) * 0x1p-24f;
      code = whole + (u < t - static_cast<float>(whole) ? 1 : 0);
    }
  } else {
    const int drop = 23 - f.mantissa;
    const uint32_t step = uint32_t{1} << drop;
    const uint32_t carry = nearest ? step / 2 - 1 + ((a >> drop) & 1) : random & (step - 1);
    code = ((a + carry) >> drop) - (static_cast<uint32_t>(f.least + 126) << f.mantissa);
    code = code < f.top ? code : f.top;
  }
  return code;
}

uint16_t ToHalf(float v, Rounding rounding, uint32_t random) {
  const uint32_t bits = Bits(v);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (v != v) return static_cast<uint16_t>(sign | 0x7e00u);
  return static_cast<uint16_t>(sign | Encode(kF16Format, bits, rounding, random));
}

uint16_t ToBrain(float v, Rounding rounding, uint32_t random) {
  const uint32_t bits = Bits(v);
  if (v != v) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  if ((bits & kInfBits) == kInfBits) return static_cast<uint16_t>(bits >> 16);
  const uint32_t carry =
      rounding == Rounding::kNearest ? 0x7fffu + ((bits >> 16) & 1) : random & 0xffffu;
  return static_cast<uint16_t>((bits + carry) >> 16);
}

// `v` is the row; a.wide is not looked at.
void NarrowRow(const NarrowArgs& a, int64_t row, const float* v) {
  const auto random = [&](int64_t i) {
    return RoundingBits(a.key, static_cast<uint32_t>(row * a.width + i));
  };
  if (a.dtype != StateDType::kF8E4M3) {
    auto* out = static_cast<uint16_t*>(a.narrow) + row * a.width;
    for (int64_t i = 0; i < a.width; ++i)
      out[i] = a.dtype == StateDType::kBF16 ? ToBrain(v[i], a.rounding, random(i))
                                            : ToHalf(v[i], a.rounding, random(i));
    return;
  }
  uint32_t largest = 0;
  for (int64_t i = 0; i < a.width; ++i) {
    const uint32_t magnitude = Bits(v[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const int32_t s = E4M3ScaleExponent(largest);
  a.scales[row] = E4M3Scale(s);
  auto* out = static_cast<uint8_t*>(a.narrow) + row * a.width;
  for (int64_t i = 0; i < a.width; ++i) {
    const uint32_t bits = Bits(v[i] * Pow2(-s));
    out[i] = static_cast<uint8_t>((bits >> 24 & 0x80u) |
                                  Encode(kE4M3Format, bits, a.rounding, random(i)));
  }
}

// What an element counts as before its row's factor; e4m3: a 256th, which is exactly a half.
float Element(StateDType dtype, const void* p, int64_t i) {
  switch (dtype) {
    case StateDType::kBF16:
      return FromBits(static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16);
    case StateDType::kF16:
      return FromBits(F16ToF32Bits(static_cast<const uint16_t*>(p)[i]));
    case StateDType::kF8E4M3: {
      const uint32_t code = static_cast<const uint8_t*>(p)[i];
      const uint32_t half = (code & 0x80u) << 8 | (code & 0x7fu) << 7;
      return FromBits(F16ToF32Bits(static_cast<uint16_t>(half)));
    }
    case StateDType::kF32:
      break;
  }
  return static_cast<const float*>(p)[i];
}

float RowFactor(const uint16_t* scales, int64_t row) {
  return scales == nullptr ? 1.0f : FromBits(static_cast<uint32_t>(scales[row]) << 16) * 256.0f;
}

// w[j] for the first `n` tokens of a step as the last of them sees it; returns g.
float Weights(const Mamba2NarrowArgs& a, int64_t n, float* w) {
  w[n - 1] = 1.0f;
  for (int64_t j = n - 2; j >= 0; --j) w[j] = w[j + 1] * a.decay[j + 1][a.decay_offset];
  return w[0] * a.decay[0][a.decay_offset];
}

// g * (c . S0[p]).
float ReadBase(const Mamba2NarrowArgs& a, const float* c, float g, int64_t p) {
  float y = 0.0f;
  for (int64_t n = 0; n < a.n_state; ++n)
    y = Fma(c[n] * RowFactor(a.scales, n), Element(a.dtype, a.base, n * a.head_dim + p), y);
  return g * y;
}

// With the step's last token.
void Fold(const Mamba2NarrowArgs& a) {
  if (a.first + a.tokens < kBlockTokens) return;
  float w[kBlockTokens];
  float row[kMaxHeadDim];
  const float g = Weights(a, kBlockTokens, w);
  const NarrowArgs out = {.dtype = a.dtype,
                          .rounding = a.rounding,
                          .key = a.key,
                          .rows = a.n_state,
                          .width = a.head_dim,
                          .wide = nullptr,
                          .narrow = a.base,
                          .scales = a.scales};
  for (int64_t n = 0; n < a.n_state; ++n) {
    const float gm = g * RowFactor(a.scales, n);
    for (int64_t p = 0; p < a.head_dim; ++p) {
      float s = gm * Element(a.dtype, a.base, n * a.head_dim + p);
      for (int64_t j = 0; j < kBlockTokens; ++j)
        s = Fma(w[j] * a.b[j][a.b_offset + n], a.dx[j][a.dx_offset + p], s);
      row[p] = s;
    }
    NarrowRow(out, n, row);
  }
}

}  // namespace

void Narrow(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) NarrowRow(a, row, a.wide + row * a.width);
}

void Widen(const NarrowArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const float m = RowFactor(a.dtype == StateDType::kF8E4M3 ? a.scales : nullptr, row);
    for (int64_t i = row * a.width; i < (row + 1) * a.width; ++i)
      a.wide[i] = m * Element(a.dtype, a.narrow, i);
  }
}

void Dots(
    const float* a, const float* const* b, int64_t offset, int64_t count, int64_t n, float* out) {
  for (int64_t j = 0; j < count; ++j) {
    Lanes sum;
    for (int64_t i = 0; i < n; ++i)
      sum.l[i % kLanes] = Fma(a[i], b[j][offset + i], sum.l[i % kLanes]);
    out[j] = sum.Sum();
  }
}

void Mamba2Narrow(const Mamba2NarrowArgs& a) {
  float w[kBlockTokens];
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t seen = a.first + t + 1;
    const float g = Weights(a, seen, w);
    const float* c = a.c + t * a.ldc;
    for (int64_t p = 0; p < a.head_dim; ++p) {
      float y = ReadBase(a, c, g, p);
      for (int64_t j = 0; j < seen; ++j)
        y = Fma(a.cb[t * a.ldcb + j] * w[j], a.dx[j][a.dx_offset + p], y);
      a.y[t * a.ldy + p] = a.x == nullptr ? y : Fma(a.d, a.x[t * a.ldx + p], y);
    }
  }
  Fold(a);
}

void GatedDeltaNarrow(const GatedDeltaNarrowArgs& a) {
  const Mamba2NarrowArgs& s = a.step;
  float w[kBlockTokens];
  for (int64_t t = 0; t < s.tokens; ++t) {
    const int64_t before = s.first + t;
    const float g = Weights(s, before + 1, w);
    const float* k = s.b[before] + s.b_offset;
    float* u = a.u + t * a.ldu;
    for (int64_t p = 0; p < s.head_dim; ++p) {
      float r = ReadBase(s, k, g, p);
      for (int64_t j = 0; j < before; ++j)
        r = Fma(a.kk[t * a.ldkk + j] * w[j], s.dx[j][s.dx_offset + p], r);
      u[p] = a.beta[t * a.ldbeta] * (a.v[t * a.ldv + p] - r);
      float y = ReadBase(s, s.c + t * s.ldc, g, p);
      for (int64_t j = 0; j <= before; ++j)
        y = Fma(s.cb[t * s.ldcb + j] * w[j], s.dx[j][s.dx_offset + p], y);
      s.y[t * s.ldy + p] = y;
    }
  }
  Fold(s);
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
