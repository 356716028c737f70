#include "connector/grant_table.h"

#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

std::optional<ExtentAddress> AddressOf(std::span<const SourceRegion> regions, ByteSpan bytes) {
  const std::less_equal<const std::byte*> at_most;
  for (size_t i = 0; i < regions.size(); ++i) {
    const ByteSpan region = regions[i].bytes;
    if (at_most(region.data(), bytes.data()) &&
        at_most(bytes.data() + bytes.size(), region.data() + region.size()))
      return ExtentAddress{static_cast<uint32_t>(i),
                           static_cast<uint64_t>(bytes.data() - region.data()), bytes.size()};
  }
  return std::nullopt;
}

}  // namespace

StatusOr<std::vector<ExtentAddress>> GrantTable::Grant(std::span<const GrantedPart> parts) {
  std::vector<ExtentAddress> addresses;
  addresses.reserve(parts.size());
  MutexLock lock(&mu_);
  for (const GrantedPart& part : parts) {
    const auto address = AddressOf(regions_, part.bytes);
    if (part.bytes.empty() || !address.has_value())
      return absl::InvalidArgumentError(
          absl::StrCat("part ", part.part.value, " of bundle ", part.state_id.Hex(),
                       " lies outside the memory this listener may serve"));
    if (parts_.contains({part.state_id, part.part}))
      return absl::InvalidArgumentError(absl::StrCat("part ", part.part.value, " of bundle ",
                                                     part.state_id.Hex(), " granted twice"));
    addresses.push_back(*address);
  }
  for (const GrantedPart& part : parts) parts_[{part.state_id, part.part}] = part.bytes;
  revoked_ = false;
  return addresses;
}

void GrantTable::RevokeAll() {
  MutexLock lock(&mu_);
  parts_.clear();
  revoked_ = true;
}

StatusOr<ByteSpan> GrantTable::Resolve(const PartRange& range) const {
  MutexLock lock(&mu_);
  const auto it = parts_.find({range.state_id, range.part});
  if (it == parts_.end()) {
    if (revoked_)
      return Reject(Reason::kLeaseExpired,
                    absl::StrCat("bundle ", range.state_id.Hex(), " is no longer offered"));
    return Reject(Reason::kUnknownPart, absl::StrCat("part ", range.part.value, " of bundle ",
                                                     range.state_id.Hex(), " was not granted"));
  }
  const ByteSpan bytes = it->second;
  if (range.offset > bytes.size() || range.bytes > bytes.size() - range.offset)
    return Reject(Reason::kMalformed,
                  absl::StrCat("range ", range.offset, "+", range.bytes, " leaves part ",
                               range.part.value, " of ", bytes.size(), " bytes"));
  return bytes.subspan(range.offset, range.bytes);
}

}  // namespace baton
