#include "tier/rest_encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/sha256.h"

namespace baton {
namespace {

// Halfway to even, as the hardware does; finite in, finite out is f16's business below.
uint16_t ToBF16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  // Past the largest bf16 there is only infinity; a finite value stays finite.
  if ((rounded & 0x7f800000u) == 0x7f800000u && (bits & 0x7f800000u) != 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7f7fu);
  return static_cast<uint16_t>(rounded >> 16);
}

float FromBF16(uint16_t h) { return std::bit_cast<float>(uint32_t{h} << 16); }

uint16_t ToF16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7bffu);  // 65504
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(steps)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float FromF16(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = h >> 10 & 31u;
  const uint32_t fraction = h & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <class T>
T Load(ByteSpan bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void Store(MutableByteSpan bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

struct Rows {
  size_t count;
  size_t width;
};

Rows RowsOf(const StatePart& part) {
  const auto width = static_cast<size_t>(part.shape.back());
  return {part.bytes / sizeof(float) / width, width};
}

void Add(EncodingLoss* loss, float value, float back) {
  const double error = static_cast<double>(value) - static_cast<double>(back);
  loss->values += static_cast<double>(value) * static_cast<double>(value);
  loss->errors += error * error;
}

EncodingLoss EncodeInt8(const StatePart& part, ByteSpan from, MutableByteSpan to) {
  const Rows rows = RowsOf(part);
  const MutableByteSpan codes = to.subspan(rows.count * sizeof(float));
  EncodingLoss loss;
  for (size_t r = 0; r < rows.count; ++r) {
    float largest = 0;
    for (size_t i = 0; i < rows.width; ++i)
      largest = std::max(largest, std::fabs(Load<float>(from, r * rows.width + i)));
    float scale = largest / 127.0f;
    if (!std::isfinite(scale * 127.0f)) scale = std::nextafter(scale, 0.0f);
    Store(to, r, scale);
    for (size_t i = 0; i < rows.width; ++i) {
      const float value = Load<float>(from, r * rows.width + i);
      // A scale that has become zero or subnormal must not make a code beyond 127.
      const float steps = scale > 0 ? std::nearbyint(value / scale) : 0.0f;
      const auto code = static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f));
      Store(codes, r * rows.width + i, code);
      Add(&loss, value, static_cast<float>(code) * scale);
    }
  }
  return loss;
}

}  // namespace

bool Encodes(RestEncoding encoding, ElementType dtype) {
  return encoding != RestEncoding::kSame && dtype == ElementType::kF32;
}

uint64_t EncodedBytes(RestEncoding encoding, const StatePart& part) {
  const uint64_t elements = part.bytes / sizeof(float);
  if (encoding == RestEncoding::kInt8) return elements + RowsOf(part).count * sizeof(float);
  return elements * 2;
}

EncodingLoss EncodeRest(RestEncoding encoding,
                        const StatePart& part,
                        ByteSpan from,
                        MutableByteSpan to) {
  if (encoding == RestEncoding::kInt8) return EncodeInt8(part, from, to);
  const bool bf16 = encoding == RestEncoding::kBF16;
  EncodingLoss loss;
  for (size_t i = 0; i < part.bytes / sizeof(float); ++i) {
    const auto value = Load<float>(from, i);
    const uint16_t half = bf16 ? ToBF16(value) : ToF16(value);
    Store(to, i, half);
    Add(&loss, value, bf16 ? FromBF16(half) : FromF16(half));
  }
  return loss;
}

void DecodeRest(RestEncoding encoding, const StatePart& part, ByteSpan from, MutableByteSpan to) {
  if (encoding == RestEncoding::kInt8) {
    const Rows rows = RowsOf(part);
    const ByteSpan codes = from.subspan(rows.count * sizeof(float));
    for (size_t r = 0; r < rows.count; ++r) {
      const auto scale = Load<float>(from, r);
      for (size_t i = r * rows.width; i < (r + 1) * rows.width; ++i)
        Store(to, i, static_cast<float>(Load<int8_t>(codes, i)) * scale);
    }
    return;
  }
  const bool bf16 = encoding == RestEncoding::kBF16;
  for (size_t i = 0; i < part.bytes / sizeof(float); ++i) {
    const auto half = Load<uint16_t>(from, i);
    Store(to, i, bf16 ? FromBF16(half) : FromF16(half));
  }
}

DigestSeed RestSeed(RestEncoding encoding, const DigestSeed& live) {
  static constexpr char kTag[] = "baton.at-rest";  // its zero byte is hashed too
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kTag)));
  w.Put(static_cast<uint8_t>(encoding));
  w.Put(live.value);
  const ElementType dtype =
      encoding == RestEncoding::kBF16 ? ElementType::kBF16 : ElementType::kF16;
  return {Sha256Of(AsBytes(w.data())), dtype};
}

}  // namespace baton
