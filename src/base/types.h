// Distinct integer types for the quantities that must never be confused (docs: ARCHITECTURE.md,
// "Words"). Thread rule: plain values.
#ifndef BATON_BASE_TYPES_H_
#define BATON_BASE_TYPES_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace baton {

using TokenId = uint32_t;

// Tokens per KV block and per grid step; hand-offs and checkpoints exist only at multiples of it.
inline constexpr int64_t kBlockTokens = 16;

// Largest grid boundary a decode worker may start from for a prompt of `n` tokens: at least one
// prompt token always remains, so that the decode worker computes the first logits itself.
constexpr int64_t HandoffBoundary(int64_t n) {
  return n <= 0 ? 0 : kBlockTokens * ((n - 1) / kBlockTokens);
}

// Largest multiple of the grid that is <= n.
constexpr int64_t FloorToGrid(int64_t n) { return n - n % kBlockTokens; }
constexpr int64_t BlocksFor(int64_t n) { return (n + kBlockTokens - 1) / kBlockTokens; }

// An integer that converts to nothing else. Tag makes the type distinct.
template <class Tag, class Rep>
struct StrongInt {
  Rep value = 0;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep v) : value(v) {}
  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;
  template <class H>
  friend H AbslHashValue(H h, StrongInt s) {
    return H::combine(std::move(h), s.value);
  }
};

// A fixed-width opaque name or digest, printed as lower-case hex.
template <class Tag, size_t N>
struct StrongBytes {
  std::array<uint8_t, N> bytes{};
  static constexpr size_t kSize = N;
  friend auto operator<=>(const StrongBytes&, const StrongBytes&) = default;
  bool is_zero() const {
    for (uint8_t b : bytes)
      if (b != 0) return false;
    return true;
  }
  std::string Hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string s;
    s.reserve(2 * N);
    for (uint8_t b : bytes) {
      s.push_back(kDigits[b >> 4]);
      s.push_back(kDigits[b & 15]);
    }
    return s;
  }
  template <class H>
  friend H AbslHashValue(H h, const StrongBytes& s) {
    return H::combine(std::move(h), s.bytes);
  }
};

// Globally unique name of one sealed bundle; connectors route by it, never by position.
using StateId = StrongBytes<struct StateIdTag, 16>;
// Random incarnation of a node process, compared for equality only.
using Epoch = StrongBytes<struct EpochTag, 16>;
// Stable name of a node.
using NodeId = StrongBytes<struct NodeIdTag, 16>;
using Sha256 = StrongBytes<struct Sha256Tag, 32>;
using Digest128 = StrongBytes<struct Digest128Tag, 16>;

// Number the receiver chooses per hand-off try; lives in the placement stamp, never in a digest.
using Attempt = StrongInt<struct AttemptTag, uint64_t>;
// Request id minted by this process, never by a client. Owner of a slot or block in the stamp.
using OwnerId = StrongInt<struct OwnerIdTag, uint64_t>;

}  // namespace baton

#endif  // BATON_BASE_TYPES_H_
