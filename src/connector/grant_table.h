// What a source lets one peer read: (state-id, part) -> bytes, and nothing else. No I/O.
// Thread rule: externally synchronised.
#ifndef BATON_CONNECTOR_GRANT_TABLE_H_
#define BATON_CONNECTOR_GRANT_TABLE_H_

#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/bytes.h"
#include "base/status.h"
#include "connector/connector.h"
#include "connector/frame.h"

namespace baton {

class GrantTable {
 public:
  explicit GrantTable(std::vector<SourceRegion> regions) : regions_(std::move(regions)) {}

  // Adds all parts or none. Address of each: region index and offset inside it. InvalidArgument if
  // a part is empty, lies outside every region or is granted already.
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts);
  void RevokeAll();

  // The bytes of a granted range. kUnknownPart if the part was not granted, kLeaseExpired if it
  // was and has been revoked, kMalformed if the range leaves the part.
  StatusOr<ByteSpan> Resolve(const PartRange& range) const;
  const std::vector<SourceRegion>& regions() const { return regions_; }

 private:
  std::vector<SourceRegion> regions_;
  absl::flat_hash_map<std::pair<StateId, PartKey>, ByteSpan> parts_;
  bool revoked_ = false;
};

}  // namespace baton

#endif  // BATON_CONNECTOR_GRANT_TABLE_H_
