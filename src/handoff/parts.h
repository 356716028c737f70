// The parts a bundle must have, as a function of (layout, boundary) alone, and their names on the
// wire. Both the receiver's plan and the source's offer are made from this list; whatever else a
// peer names is unknown. Thread rule: free functions.
#ifndef BATON_HANDOFF_PARTS_H_
#define BATON_HANDOFF_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "connector/connector.h"
#include "identity/layout.h"

namespace baton {

// 0..2^32-1: state part by its index in the layout. Else (group + 1) << 32 | block, blocks counted
// from token 0.
constexpr PartKey StatePartKey(size_t part) { return PartKey(part); }
constexpr PartKey BlockPartKey(size_t group, uint64_t block) {
  return PartKey((uint64_t{group} + 1) << 32 | block);
}

struct BundlePart {
  PartKey key;
  bool is_state = false;
  size_t group = 0;    // of a block
  uint64_t block = 0;  // of a block, counted from token 0
  size_t slot = 0;     // of a block: its place among the group's blocks of this bundle
  size_t part = 0;     // of a state part: its index in the layout
  uint64_t bytes = 0;
};

// Blocks group after group, ascending, then state parts in layout order. `boundary` is on the grid.
std::vector<BundlePart> BundleParts(const Layout& layout, uint64_t boundary);
// "full[17]", "l3.ssm", or "part 0x..." for a key the layout does not have.
std::string PartKeyName(const Layout& layout, PartKey key);

}  // namespace baton

#endif  // BATON_HANDOFF_PARTS_H_
