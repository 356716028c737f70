#include "handoff/verify.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

Status CheckAlgorithm(const Verifier& v, const BundleClaim& claim) {
  if (!v.checks.On(Check::kAlgorithm)) return absl::OkStatus();
  const DigestAlgorithm mine = v.digester->algorithm();
  if (claim.seal.algorithm != mine)
    return Reject(
        Reason::kDigestAlgorithm,
        absl::StrCat("digest algorithm: expected ", std::string(DigestAlgorithmName(mine)),
                     ", found ", std::string(DigestAlgorithmName(claim.seal.algorithm))));
  for (size_t p = 0; p < claim.seal.state_digests.size(); ++p)
    if (claim.seal.state_digests[p].is_zero())
      return Reject(Reason::kDigestAlgorithm, absl::StrCat("state part ", p, " has no digest"));
  for (size_t g = 0; g < claim.block_digests.size(); ++g)
    for (size_t b = 0; b < claim.block_digests[g].size(); ++b)
      if (claim.block_digests[g][b].is_zero())
        return Reject(Reason::kDigestAlgorithm,
                      absl::StrCat("block ", b, " of group ", g, " has no digest"));
  return absl::OkStatus();
}

Status CheckStamp(const Verifier& v, const Expectation& expected, const BundleClaim& claim) {
  if (v.checks.On(Check::kAttempt) && expected.attempt.has_value() &&
      *expected.attempt != claim.attempt)
    return Reject(Reason::kAttemptMismatch,
                  absl::StrCat("attempt: expected ", expected.attempt->value, ", found ",
                               claim.attempt.value));
  if (v.checks.On(Check::kEpoch) && expected.epoch.has_value() && *expected.epoch != claim.epoch)
    return Reject(Reason::kEpochMismatch,
                  absl::StrCat("source epoch: expected ", expected.epoch->Hex(), ", found ",
                               claim.epoch.Hex(), "; the source restarted"));
  return absl::OkStatus();
}

Status CheckStateId(const Verifier& v, const Expectation& expected, const BundleClaim& claim) {
  if (!v.checks.On(Check::kStateId)) return absl::OkStatus();
  if (claim.state_id != claim.seal.state_id)
    return Reject(Reason::kStateIdMismatch, absl::StrCat("state-id: offered ", claim.state_id.Hex(),
                                                         ", sealed ", claim.seal.state_id.Hex()));
  if (expected.state_id.has_value() && *expected.state_id != claim.state_id)
    return Reject(Reason::kStateIdMismatch,
                  absl::StrCat("state-id: expected ", expected.state_id->Hex(), ", found ",
                               claim.state_id.Hex()));
  return absl::OkStatus();
}

Status CheckClaimedParts(const Verifier& v, const Expectation& expected, const BundleClaim& claim) {
  if (!v.checks.On(Check::kParts)) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(MatchSealToLayout(claim.seal, *v.layout));
  const size_t groups = v.layout->groups().size();
  if (claim.block_digests.size() != groups)
    return Reject(claim.block_digests.size() < groups ? Reason::kMissingPart : Reason::kUnknownPart,
                  absl::StrCat("block digests of ", claim.block_digests.size(),
                               " groups, expected ", groups));
  for (size_t g = 0; g < groups; ++g) {
    const uint64_t want = v.layout->BlockCount(g, expected.identity.boundary);
    const uint64_t found = claim.block_digests[g].size();
    if (found != want)
      return Reject(found < want ? Reason::kMissingPart : Reason::kUnknownPart,
                    absl::StrCat("group ", v.layout->groups()[g].name, ": ", found,
                                 " block digests, expected ", want));
  }
  return absl::OkStatus();
}

Status CheckBlockRoot(const Verifier& v, const BundleClaim& claim) {
  if (!v.checks.On(Check::kBlockDigest)) return absl::OkStatus();
  std::vector<Digest128> all;
  for (const auto& group : claim.block_digests) all.insert(all.end(), group.begin(), group.end());
  const Digest128 root = v.digester->BlockRoot(all);
  if (root != claim.seal.block_root)
    return Reject(Reason::kBlockDigestMismatch,
                  absl::StrCat("root over ", all.size(), " block digests: sealed ",
                               claim.seal.block_root.Hex(), ", found ", root.Hex()));
  return absl::OkStatus();
}

// Every expected part exactly once, none besides, each with all its bytes.
Status CheckLanded(const Verifier& v, const Expectation& expected, const LandedBundle& landed) {
  const std::vector<BundlePart> want = BundleParts(*v.layout, expected.identity.boundary);
  absl::flat_hash_set<PartKey> missing;
  for (const BundlePart& part : want) missing.insert(part.key);
  for (const LandedPart& l : landed.parts) {
    const std::string name = PartKeyName(*v.layout, l.part.key);
    if (missing.erase(l.part.key) == 0 && v.checks.On(Check::kParts))
      return Reject(Reason::kUnknownPart, name + ": landed twice, or no part of this bundle");
    const bool full = l.planned == l.part.bytes && l.posted == l.planned && l.landed == l.planned;
    if (!full && v.checks.On(Check::kLanded))
      return Reject(Reason::kShortTransfer,
                    absl::StrCat(name, ": expected ", l.part.bytes, " bytes, planned ", l.planned,
                                 ", posted ", l.posted, ", landed ", l.landed));
    // A bound, not a check: what is digested is exactly the part.
    if (l.bytes.size() != l.part.bytes)
      return Reject(
          Reason::kShortTransfer,
          absl::StrCat(name, ": ", l.bytes.size(), " bytes to verify, expected ", l.part.bytes));
  }
  if (!missing.empty() && v.checks.On(Check::kParts)) {
    for (const BundlePart& part : want)
      if (missing.contains(part.key))
        return Reject(Reason::kMissingPart, PartKeyName(*v.layout, part.key) + ": not landed");
  }
  return absl::OkStatus();
}

// The digest the claim gives for a part; zero if it gives none.
Digest128 ClaimedDigest(const BundleClaim& claim, const BundlePart& part) {
  if (part.is_state)
    return part.part < claim.seal.state_digests.size() ? claim.seal.state_digests[part.part]
                                                       : Digest128();
  if (part.group >= claim.block_digests.size()) return {};
  const auto& group = claim.block_digests[part.group];
  return part.slot < group.size() ? group[part.slot] : Digest128();
}

Status VerifyOne(const Verifier& v,
                 const PartDigester& digester,
                 const BundleClaim& claim,
                 const LandedPart& landed) {
  const Digest128 claimed = ClaimedDigest(claim, landed.part);
  // Most blocks of a long bundle: digested when they landed, and right.
  if (landed.digest.has_value() && landed.digest->digest == claimed && landed.digest->finite)
    return absl::OkStatus();
  const std::string name = PartKeyName(*v.layout, landed.part.key);
  PartCheck check;
  check.seed = digester.SeedOf(landed.part);
  check.found = landed.digest;
  check.expected = claimed;
  check.name = name;
  check.mismatch = landed.part.is_state ? Reason::kDigestMismatch : Reason::kBlockDigestMismatch;
  return VerifyPart(v, check, landed.bytes);
}

// The part indices of a bundle part that a caller made by hand are not trusted as array indices.
bool InLayout(const Layout& layout, const BundlePart& part) {
  return part.is_state ? part.part < layout.StatePartCount() : part.group < layout.groups().size();
}

}  // namespace

PartDigester::PartDigester(const Verifier& verifier, const Expectation& expected)
    : v_(verifier),
      base_{expected.identity.model, expected.identity.layout, expected.identity.scope},
      chain_(*expected.chain),
      bundle_key_(expected.identity.Key()) {}

DigestSeed PartDigester::SeedOf(const BundlePart& part) const {
  if (part.is_state) return StateSeed(bundle_key_, v_.layout->parts()[part.part]);
  // Off the grid the last block is partial and seeded at the boundary itself.
  const Sha256 end =
      part.block < chain_.full_blocks() ? base_.AtBlockEnd(chain_, part.block).Key() : bundle_key_;
  return BlockSeed(end, part.group, v_.layout->groups()[part.group]);
}

PartDigest PartDigester::Digest(const BundlePart& part, ByteSpan bytes) const {
  return v_.device->Digest(*v_.digester, SeedOf(part), bytes);
}

Status VerifyPart(const Verifier& v, const PartCheck& check, ByteSpan bytes) {
  const bool by_digest = v.checks.On(
      check.mismatch == Reason::kBlockDigestMismatch ? Check::kBlockDigest : Check::kStateDigest);
  if (!by_digest && !v.checks.On(Check::kFinite)) return absl::OkStatus();
  const PartDigest found =
      check.found.has_value() ? *check.found : v.device->Digest(*v.digester, check.seed, bytes);
  if (by_digest && found.digest != check.expected)
    return Reject(check.mismatch,
                  absl::StrCat(std::string(check.name), ": digest of the landed bytes: expected ",
                               check.expected.Hex(), ", found ", found.digest.Hex()));
  if (!found.finite && v.checks.On(Check::kFinite))
    return Reject(Reason::kNonFinite,
                  absl::StrCat(std::string(check.name), ": holds a NaN or an infinity"));
  return absl::OkStatus();
}

Status VerifyClaim(const Verifier& v, const Expectation& expected, const BundleClaim& claim) {
  BATON_RETURN_IF_ERROR(CheckAlgorithm(v, claim));
  BATON_RETURN_IF_ERROR(CheckStamp(v, expected, claim));
  if (v.checks.On(Check::kIdentity))
    BATON_RETURN_IF_ERROR(MatchIdentity(expected.identity, claim.seal.identity));
  BATON_RETURN_IF_ERROR(CheckStateId(v, expected, claim));
  BATON_RETURN_IF_ERROR(CheckClaimedParts(v, expected, claim));
  return CheckBlockRoot(v, claim);
}

Status VerifyBundle(const Verifier& v,
                    const Expectation& expected,
                    const BundleClaim& claim,
                    const LandedBundle& landed) {
  BATON_CHECK(expected.chain != nullptr &&
              expected.chain->boundary() >= expected.identity.boundary);
  for (const LandedPart& l : landed.parts)
    if (!InLayout(*v.layout, l.part))
      return Reject(Reason::kUnknownPart, PartKeyName(*v.layout, l.part.key));
  BATON_RETURN_IF_ERROR(VerifyClaim(v, expected, claim));
  BATON_RETURN_IF_ERROR(CheckLanded(v, expected, landed));
  if (v.checks.On(Check::kHandle) && landed.check_handles != nullptr)
    BATON_RETURN_IF_ERROR(landed.check_handles());
  const PartDigester digester(v, expected);
  if (v.pool == nullptr) {
    for (const LandedPart& l : landed.parts)
      BATON_RETURN_IF_ERROR(VerifyOne(v, digester, claim, l));
    return absl::OkStatus();
  }
  std::vector<Status> results(landed.parts.size());
  v.pool->ParallelFor(static_cast<int64_t>(results.size()), [&](int64_t i) {
    results[static_cast<size_t>(i)] =
        VerifyOne(v, digester, claim, landed.parts[static_cast<size_t>(i)]);
  });
  for (Status& result : results)
    if (!result.ok()) return std::move(result);
  return absl::OkStatus();
}

}  // namespace baton
