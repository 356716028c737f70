#include "handoff/seal_bundle.h"

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace baton {
namespace {

Status CheckShape(const Layout& layout, const SealRequest& request) {
  const uint64_t boundary = request.claim.boundary;
  if (layout.has_state() ? request.slot.size() < layout.slot_bytes() : !request.slot.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        "seal: slot of ", request.slot.size(), " bytes, the layout's has ", layout.slot_bytes()));
  if (request.block_digests.size() != layout.groups().size())
    return absl::InvalidArgumentError(absl::StrCat("seal: block digests of ",
                                                   request.block_digests.size(),
                                                   " groups, the layout "
                                                   "has ",
                                                   layout.groups().size()));
  for (size_t g = 0; g < layout.groups().size(); ++g)
    if (request.block_digests[g].size() != layout.BlockCount(g, boundary))
      return absl::InvalidArgumentError(absl::StrCat(
          "seal: group ", layout.groups()[g].name, " has ", request.block_digests[g].size(),
          " block digests, boundary ", boundary, " needs ", layout.BlockCount(g, boundary)));
  return absl::OkStatus();
}

}  // namespace

StatusOr<Digest128> DigestKvBlock(const LocalIdentity& self,
                                  const Device& device,
                                  const Sha256& end_key,
                                  size_t group,
                                  ByteSpan bytes) {
  const KvGroup& g = self.layout->groups().at(group);
  BATON_CHECK(bytes.size() >= g.block_bytes);  // a unit may be rounded up
  const PartDigest digest =
      device.Digest(self.digester, BlockSeed(end_key, group, g), bytes.first(g.block_bytes));
  if (!digest.finite)
    return Reject(Reason::kNonFinite,
                  absl::StrCat("a block of group ", g.name, " holds a NaN or an infinity"));
  return digest.digest;
}

StatusOr<Seal> SealBundle(const LocalIdentity& self,
                          const Device& device,
                          const SealRequest& request) {
  const Layout& layout = *self.layout;
  BATON_CHECK(request.live != nullptr);
  BATON_RETURN_IF_ERROR(CheckShape(layout, request));
  BATON_RETURN_IF_ERROR(request.live->ClaimMatches(request.claim));
  Seal seal;
  seal.identity = request.claim;
  seal.state_id = request.state_id.is_zero() ? RandomBytes<StateId>() : request.state_id;
  seal.parent = request.parent;
  seal.producer = self.node;
  seal.epoch = self.epoch;
  seal.algorithm = self.digester.algorithm();
  const Sha256 key = request.claim.Key();
  for (size_t p = 0; p < layout.StatePartCount(); ++p) {
    const StatePart& part = layout.parts()[p];
    const PartDigest digest = device.Digest(self.digester, StateSeed(key, part),
                                            request.slot.subspan(part.offset, part.bytes));
    if (!digest.finite)
      return Reject(Reason::kNonFinite, layout.PartName(p) + ": holds a NaN or an infinity");
    seal.state_digests.push_back(digest.digest);
  }
  std::vector<Digest128> blocks;
  for (const auto& group : request.block_digests)
    blocks.insert(blocks.end(), group.begin(), group.end());
  seal.block_root = self.digester.BlockRoot(blocks);
  seal.block_count = static_cast<uint32_t>(blocks.size());
  return seal;
}

}  // namespace baton
