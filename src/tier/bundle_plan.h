// Which part of a bundle rests in which object, as a function of (layout, boundary) alone: whole
// runs of 16 blocks in segments shared by prefix, the rest in the bundle's own object
// (docs/format/state_object.md). Thread rule: free functions over plain values.
#ifndef BATON_TIER_BUNDLE_PLAN_H_
#define BATON_TIER_BUNDLE_PLAN_H_

#include <cstdint>
#include <vector>

#include "handoff/parts.h"
#include "identity/content_identity.h"
#include "identity/layout.h"
#include "identity/prefix_chain.h"
#include "tier/state_object.h"

namespace baton {

struct SegmentPlan {
  size_t group = 0;
  uint64_t segment = 0;       // blocks 16 * segment .. 16 * segment + 15
  std::vector<size_t> parts;  // indices into BundlePlan::parts, ascending

  // Content identity at the segment's own end.
  ContentIdentity End(const IdentityBase& base, const PrefixChain& chain) const {
    return base.AtBlockEnd(chain, (segment + 1) * kSegmentBlocks - 1);
  }
};

struct BundlePlan {
  std::vector<BundlePart> parts;  // BundleParts(layout, boundary)
  std::vector<SegmentPlan> segments;
  std::vector<size_t> own;  // parts in the bundle's object
};

// `boundary` is on the grid.
BundlePlan PlanBundle(const Layout& layout, uint64_t boundary);

}  // namespace baton

#endif  // BATON_TIER_BUNDLE_PLAN_H_
