#include "memory/guard.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace baton::memory_internal {
namespace {

uint64_t Canary(uint64_t offset) { return SplitMix64(offset ^ 0xCA9A41E5ull).Next(); }

}  // namespace

void PaintGuard(MutableByteSpan band, uint64_t offset) {
  for (size_t i = 0; i + 8 <= band.size(); i += 8) {
    const uint64_t word = Canary(offset + i);
    std::memcpy(band.data() + i, &word, 8);
  }
}

Status CheckGuard(ByteSpan band, uint64_t offset, std::string_view unit, std::string_view side) {
  for (size_t i = 0; i + 8 <= band.size(); i += 8) {
    const uint64_t word = Canary(offset + i);
    if (std::memcmp(band.data() + i, &word, 8) == 0) continue;
    size_t at = i;
    while (band[at] == reinterpret_cast<const std::byte*>(&word)[at - i]) ++at;
    return absl::InternalError(absl::StrCat(
        std::string(unit), ": guard ", std::string(side), " it is overwritten at its byte ", at,
        " of ", band.size(), " (arena offset ", offset + at, "): expected 0x",
        absl::Hex(std::to_integer<unsigned>(reinterpret_cast<const std::byte*>(&word)[at - i]),
                  absl::kZeroPad2),
        ", found 0x", absl::Hex(std::to_integer<unsigned>(band[at]), absl::kZeroPad2),
        "; a writer of this unit or of its neighbour ran past its end"));
  }
  return absl::OkStatus();
}

}  // namespace baton::memory_internal
