#include "tier/bundle_plan.h"

namespace baton {

BundlePlan PlanBundle(const Layout& layout, uint64_t boundary) {
  BundlePlan plan;
  plan.parts = BundleParts(layout, boundary);
  const uint64_t end = boundary / static_cast<uint64_t>(kBlockTokens);
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const BundlePart& part = plan.parts[i];
    const uint64_t segment = part.block / kSegmentBlocks;
    const bool whole = !part.is_state &&
                       layout.FirstBlock(part.group, boundary) <= segment * kSegmentBlocks &&
                       (segment + 1) * kSegmentBlocks <= end;
    if (!whole) {
      plan.own.push_back(i);
      continue;
    }
    if (plan.segments.empty() || plan.segments.back().group != part.group ||
        plan.segments.back().segment != segment)
      plan.segments.push_back({part.group, segment, {}});
    plan.segments.back().parts.push_back(i);
  }
  return plan;
}

}  // namespace baton
