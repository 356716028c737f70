#include "handoff/parts.h"

#include "absl/strings/str_cat.h"

namespace baton {

std::vector<BundlePart> BundleParts(const Layout& layout, uint64_t boundary) {
  std::vector<BundlePart> parts;
  parts.reserve(layout.TotalBlocks(boundary) + layout.StatePartCount());
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    const uint64_t first = layout.FirstBlock(g, boundary);
    const uint64_t count = layout.BlockCount(g, boundary);
    for (uint64_t i = 0; i < count; ++i) {
      BundlePart part;
      part.key = BlockPartKey(g, first + i);
      part.group = g;
      part.block = first + i;
      part.slot = i;
      part.bytes = layout.groups()[g].block_bytes;
      parts.push_back(part);
    }
  }
  for (size_t p = 0; p < layout.StatePartCount(); ++p) {
    BundlePart part;
    part.key = StatePartKey(p);
    part.is_state = true;
    part.part = p;
    part.bytes = layout.parts()[p].bytes;
    parts.push_back(part);
  }
  return parts;
}

std::string PartKeyName(const Layout& layout, PartKey key) {
  const uint64_t group = key.value >> 32;
  const uint64_t index = key.value & 0xffffffffu;
  if (group == 0 && index < layout.StatePartCount()) return layout.PartName(index);
  if (group >= 1 && group <= layout.groups().size()) return layout.BlockName(group - 1, index);
  return absl::StrCat("part 0x", absl::Hex(key.value));
}

}  // namespace baton
