// Element types a live recurrent state may have, and how an f32 value is rounded to the narrow
// ones. A row of e4m3 elements shares one scale, a power of two held as bf16: value = element *
// scale. The scale is the least that brings the row's largest magnitude to 448 or below (2^-117 at
// least), so scaling rounds nothing. Thread rule: plain values and pure functions.
#ifndef BATON_KERNEL_STATE_DTYPE_H_
#define BATON_KERNEL_STATE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton::kernel {

enum class StateDType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2, kF8E4M3 = 3 };

// kNearest: to nearest, ties to even. kStochastic: up or down with the odds that keep the mean,
// from random bits that are a function of (key, index) alone: RoundingBits.
enum class Rounding : uint8_t { kNearest = 0, kStochastic = 1 };

// "f32", "bf16", "f16", "fp8_e4m3".
std::string_view StateDTypeName(StateDType dtype);
std::optional<StateDType> ParseStateDType(std::string_view name);
constexpr size_t StateElementBytes(StateDType d) {
  return d == StateDType::kF32 ? 4 : d == StateDType::kF8E4M3 ? 1 : 2;
}

// The key of one head's rounding at one boundary: a function of content, so that the same history
// rounds the same way on every node and every path.
uint64_t RoundingKey(uint32_t layer, uint32_t head, uint64_t boundary);

// 32 random bits of element `index` of the head: the key already is the output of a block
// generator, what is left is to spread it over the elements. This and what follows is static on
// purpose: the kernels compile it once per instruction set.
static inline constexpr uint32_t RoundingBits(uint64_t key, uint32_t index) {
  uint32_t h = index * 0x9E3779B9u + static_cast<uint32_t>(key);
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h += static_cast<uint32_t>(key >> 32);
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h;
}

// The exponent of a row's scale, from the bits of its largest magnitude; above 119 for infinity,
// NaN and what is so large that the scale times 256 would not be finite: a NaN scale shows them.
static inline constexpr int32_t E4M3ScaleExponent(uint32_t largest) {
  const int32_t exponent = static_cast<int32_t>(largest >> 23) - 127;
  const int32_t s = exponent - 8 + ((largest & 0x7fffffu) > 0x600000u ? 1 : 0);
  return s > -117 ? s : -117;
}
// 2^s as bf16.
static inline constexpr uint16_t E4M3Scale(int32_t s) {
  return s > 119 ? uint16_t{0x7fc0} : static_cast<uint16_t>((s + 127) << 7);
}

}  // namespace baton::kernel

#endif  // BATON_KERNEL_STATE_DTYPE_H_
