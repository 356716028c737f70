// What a source lets one peer read: (state-id, part) -> bytes, and nothing else. No I/O.
// Thread rule: thread-safe. What Resolve returned may be read until the caller of RevokeAll lets
// the memory go; the source link says when that is (connector.h).
#ifndef BATON_CONNECTOR_GRANT_TABLE_H_
#define BATON_CONNECTOR_GRANT_TABLE_H_

#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "connector/connector.h"
#include "connector/frame.h"

namespace baton {

class GrantTable {
 public:
  explicit GrantTable(std::vector<SourceRegion> regions) : regions_(std::move(regions)) {}

  // Adds all parts or none. Address of each: region index and offset inside it. InvalidArgument if
  // a part is empty, lies outside every region or is granted already.
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts)
      BATON_EXCLUDES(mu_);
  void RevokeAll() BATON_EXCLUDES(mu_);

  // The bytes of a granted range. kUnknownPart if the part was not granted, kLeaseExpired if it
  // was and has been revoked, kMalformed if the range leaves the part.
  StatusOr<ByteSpan> Resolve(const PartRange& range) const BATON_EXCLUDES(mu_);
  const std::vector<SourceRegion>& regions() const { return regions_; }

 private:
  const std::vector<SourceRegion> regions_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::pair<StateId, PartKey>, ByteSpan> parts_ BATON_GUARDED_BY(mu_);
  bool revoked_ BATON_GUARDED_BY(mu_) = false;
};

}  // namespace baton

#endif  // BATON_CONNECTOR_GRANT_TABLE_H_
