#include "connector/extents.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace baton {

Status CheckExtents(std::span<const ReadExtent> extents) {
  absl::flat_hash_set<std::pair<StateId, PartKey>> seen;
  seen.reserve(extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    const ReadExtent& e = extents[i];
    if (e.bytes == 0 || e.bytes != e.destination.size())
      return absl::InvalidArgumentError(
          absl::StrCat("extent ", i, " (part ", e.part.value, ") of ", e.bytes,
                       " bytes is empty or not of its destination's ", e.destination.size()));
    if (!seen.emplace(e.state_id, e.part).second)
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, ": part ", e.part.value,
                                                     " of bundle ", e.state_id.Hex(),
                                                     " is asked twice in one pull"));
  }
  return absl::OkStatus();
}

}  // namespace baton
