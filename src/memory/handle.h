// Names of units. A handle is (pool, virtual id, generation): it names one life of one unit, and
// resolves to an error as soon as that life is over. It is no address; only a lease has one.
// A slot handle is never a block handle. Thread rule: plain values.
#ifndef BATON_MEMORY_HANDLE_H_
#define BATON_MEMORY_HANDLE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "base/types.h"

namespace baton {

// The two kinds of unit. A sealed block is read by every sequence that shares it; a sealed state
// slot is a checkpoint, and compute only ever sees a copy of it.
struct SlotKind {
  static constexpr const char* kName = "slot";
  static constexpr bool kComputeReadsSealed = false;
};
struct BlockKind {
  static constexpr const char* kName = "block";
  static constexpr bool kComputeReadsSealed = true;
};

template <class Kind>
struct UnitHandle {
  uint32_t pool = 0;
  uint32_t index = 0;       // virtual id
  uint64_t generation = 0;  // 0 is no life of any unit: the default handle resolves to an error

  friend auto operator<=>(const UnitHandle&, const UnitHandle&) = default;
  template <class H>
  friend H AbslHashValue(H h, const UnitHandle& u) {
    return H::combine(std::move(h), u.pool, u.index, u.generation);
  }
  // "slot 2/17#4": pool 2, virtual id 17, generation 4.
  std::string ToString() const {
    return std::string(Kind::kName) + " " + std::to_string(pool) + "/" + std::to_string(index) +
           "#" + std::to_string(generation);
  }
  friend std::ostream& operator<<(std::ostream& os, const UnitHandle& u) {
    return os << u.ToString();
  }
};

using SlotHandle = UnitHandle<SlotKind>;
using BlockHandle = UnitHandle<BlockKind>;

// Where a unit is and how fresh: everything about a placement that must never be part of a digest.
struct PlacementStamp {
  NodeId node;
  Epoch epoch;
  uint32_t pool = 0;
  uint32_t index = 0;  // virtual id
  uint64_t generation = 0;
  OwnerId owner;
  Attempt attempt;

  friend bool operator==(const PlacementStamp&, const PlacementStamp&) = default;
};

}  // namespace baton

#endif  // BATON_MEMORY_HANDLE_H_
