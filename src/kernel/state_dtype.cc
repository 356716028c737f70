#include "kernel/state_dtype.h"

#include "base/rng.h"

namespace baton::kernel {

std::string_view StateDTypeName(StateDType dtype) {
  switch (dtype) {
    case StateDType::kF32:
      return "f32";
    case StateDType::kBF16:
      return "bf16";
    case StateDType::kF16:
      return "f16";
    case StateDType::kF8E4M3:
      return "fp8_e4m3";
  }
  return "unknown";
}

std::optional<StateDType> ParseStateDType(std::string_view name) {
  for (const StateDType d :
       {StateDType::kF32, StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3})
    if (StateDTypeName(d) == name) return d;
  return std::nullopt;
}

uint64_t RoundingKey(uint32_t layer, uint32_t head, uint64_t boundary) {
  constexpr uint64_t kStateRounding = 0x7374617465;  // its own lane among the generator's users
  return CounterBits((uint64_t{layer} << 32) | head, boundary, kStateRounding);
}

}  // namespace baton::kernel
