// Restore: the bundle's header, compared before a byte lands; its own parts; then segment by
// segment, each compared the same way; then VerifyBundle over what landed. Which object a rejection
// is the fault of is found out afterwards, and that object goes.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "tier/bundle_plan.h"
#include "tier/rest_encoding.h"
#include "tier/tier_impl.h"

namespace baton::tier_internal {

namespace {

// Bytes are moved in pieces of this size: what has been copied is digested while it is near.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

class RestoreJob {
 public:
  RestoreJob(const TierImpl& tier, const RestoreRequest& request, const CancelToken& cancel)
      : tier_(tier),
        request_(request),
        cancel_(cancel),
        verifier_(tier.MakeVerifier()),
        digester_(verifier_, request.expected),
        base_{request.expected.identity.model, request.expected.identity.layout,
              request.expected.identity.scope},
        plan_(PlanBundle(*tier.options_.layout, request.expected.identity.boundary)) {}

  StatusOr<RestoredBundle> Run();
  // After a rejection: the object at fault, or null if it is none's.
  const ObjectName* culprit() const { return blame_ ? &at_fault_ : nullptr; }

 private:
  Status CheckTargets() const;
  StatusOr<ObjectHeader> OpenObject(const ObjectName& name);
  void MakeClaim(const ObjectHeader& header);
  Status LandParts(const ObjectHeader& header, const std::vector<size_t>& parts);
  Status LandSegment(const SegmentPlan& segment);
  StatusOr<uint64_t> LandPart(const ObjectPart& part, uint64_t payload, MutableByteSpan to);
  Status LandEncoded(const ObjectHeader& header,
                     const ObjectPart& part,
                     MutableByteSpan to,
                     LandedPart* landed);
  void SealAnew();
  Status Verify(RestEncoding encoding);
  void FindCulprit();

  const TierImpl& tier_;
  const RestoreRequest& request_;
  const CancelToken& cancel_;
  const Verifier verifier_;
  const PartDigester digester_;
  const IdentityBase base_;
  const BundlePlan plan_;
  BundleClaim claim_;
  LandedBundle landed_;
  std::vector<ObjectName> landed_from_;  // per landed part
  std::unique_ptr<ObjectReader> reader_;
  ObjectName at_fault_;  // the object being looked at
  bool blame_ = true;
};

Status RestoreJob::CheckTargets() const {
  if (request_.targets.size() != plan_.parts.size())
    return absl::InvalidArgumentError(absl::StrCat("tier: ", request_.targets.size(),
                                                   " targets for ", plan_.parts.size(), " parts"));
  for (size_t i = 0; i < plan_.parts.size(); ++i)
    if (request_.targets[i].part.key != plan_.parts[i].key ||
        request_.targets[i].bytes.size() != plan_.parts[i].bytes)
      return absl::InvalidArgumentError(absl::StrCat(
          "tier: target ", i, " is not ", PartKeyName(*tier_.options_.layout, plan_.parts[i].key),
          " of ", plan_.parts[i].bytes, " bytes"));
  return absl::OkStatus();
}

StatusOr<ObjectHeader> RestoreJob::OpenObject(const ObjectName& name) {
  at_fault_ = name;
  reader_.reset();  // at most one at a time
  StatusOr<std::unique_ptr<ObjectReader>> reader = tier_.store_->Open(name, ReadAhead::kWhole);
  if (reader.status().code() == absl::StatusCode::kNotFound)
    return Reject(Reason::kMissingPart, name.FileName() + ": indexed, and not there");
  BATON_RETURN_IF_ERROR(reader.status());
  reader_ = *std::move(reader);
  BATON_ASSIGN_OR_RETURN(ObjectHeader header, ReadObjectHeader(reader_.get()));
  if (reader_->size() != header.ObjectBytes() && verifier_.checks.On(Check::kLanded))
    return Reject(Reason::kShortTransfer, absl::StrCat(name.FileName(), ": ", reader_->size(),
                                                       " bytes, expected ", header.ObjectBytes()));
  if (header.kind != name.kind)
    return Reject(Reason::kMalformed, name.FileName() + ": is of the other kind");
  return header;
}

// As many digests per group as the layout has blocks; too few or too many stay visible as such.
void RestoreJob::MakeClaim(const ObjectHeader& header) {
  claim_.state_id = header.state_id;
  claim_.seal = header.seal;
  const Layout& layout = *tier_.options_.layout;
  size_t next = 0;
  const auto take = [&](uint64_t count) {
    count = std::min<uint64_t>(count, header.block_digests.size() - next);
    const auto first = header.block_digests.begin() + static_cast<ptrdiff_t>(next);
    claim_.block_digests.emplace_back(first, first + static_cast<ptrdiff_t>(count));
    next += count;
  };
  for (size_t g = 0; g < layout.groups().size(); ++g)
    take(layout.BlockCount(g, request_.expected.identity.boundary));
  if (next < header.block_digests.size()) take(header.block_digests.size());
}

StatusOr<RestoredBundle> RestoreJob::Run() {
  BATON_RETURN_IF_ERROR(CheckTargets());
  landed_.parts.reserve(plan_.parts.size());
  BATON_ASSIGN_OR_RETURN(const ObjectHeader header,
                         OpenObject({ObjectKind::kBundle, request_.expected.identity.Key()}));
  MakeClaim(header);
  const Status claimed = VerifyClaim(verifier_, request_.expected, claim_);
  if (!claimed.ok()) {
    // A caller that wants another bundle of this history says nothing against this one.
    blame_ =
        ReasonOf(claimed) != Reason::kStateIdMismatch || claim_.state_id != claim_.seal.state_id;
    return claimed;
  }
  BATON_RETURN_IF_ERROR(LandParts(header, plan_.own));
  for (const SegmentPlan& segment : plan_.segments) BATON_RETURN_IF_ERROR(LandSegment(segment));
  reader_.reset();
  BATON_RETURN_IF_ERROR(Verify(header.encoding));
  RestoredBundle restored;
  restored.encoding = header.encoding;
  for (const LandedPart& part : landed_.parts) restored.bytes += part.landed;
  restored.seal = std::move(claim_.seal);
  restored.block_digests = std::move(claim_.block_digests);
  return restored;
}

Status RestoreJob::LandSegment(const SegmentPlan& segment) {
  const ContentIdentity end = segment.End(base_, *request_.expected.chain);
  BATON_ASSIGN_OR_RETURN(const ObjectHeader header,
                         OpenObject({ObjectKind::kSegment, SegmentKey(end, segment.group)}));
  if (verifier_.checks.On(Check::kIdentity)) {
    BATON_RETURN_IF_ERROR(MatchIdentity(end, header.identity));
    if (header.group != segment.group)
      return Reject(Reason::kUnknownPart,
                    absl::StrCat("segment of group ", header.group, ", expected ", segment.group));
  }
  return LandParts(header, segment.parts);
}

Status RestoreJob::LandParts(const ObjectHeader& header, const std::vector<size_t>& parts) {
  absl::flat_hash_map<PartKey, const ObjectPart*> table;
  for (const ObjectPart& part : header.parts) table.emplace(part.key, &part);
  if (header.parts.size() != parts.size() && verifier_.checks.On(Check::kParts))
    return Reject(header.parts.size() < parts.size() ? Reason::kMissingPart : Reason::kUnknownPart,
                  absl::StrCat(at_fault_.FileName(), ": ", header.parts.size(), " parts, expected ",
                               parts.size()));
  for (const size_t i : parts) {
    if (cancel_.stop_requested()) return Reject(Reason::kCancelled, "tier: restore cancelled");
    LandedPart landed;
    landed.part = plan_.parts[i];
    landed.bytes = request_.targets[i].bytes;
    landed.planned = landed.part.bytes;
    const auto it = table.find(landed.part.key);
    if (it == table.end()) {
      if (!verifier_.checks.On(Check::kParts)) continue;
      return Reject(Reason::kMissingPart,
                    absl::StrCat(PartKeyName(*tier_.options_.layout, landed.part.key), ": not in ",
                                 at_fault_.FileName()));
    }
    if (landed.part.is_state &&
        Encodes(header.encoding, tier_.options_.layout->parts()[landed.part.part].dtype)) {
      BATON_RETURN_IF_ERROR(LandEncoded(header, *it->second, request_.targets[i].bytes, &landed));
    } else {
      landed.posted = it->second->bytes;
      BATON_ASSIGN_OR_RETURN(
          landed.landed, LandPart(*it->second, header.PayloadOffset(), request_.targets[i].bytes));
    }
    // Nobody else writes there (RestoreTarget), and check_handles is asked afterwards.
    if (landed.landed == landed.planned)
      landed.digest = digester_.Digest(landed.part, landed.bytes);
    landed_.parts.push_back(std::move(landed));
    landed_from_.push_back(at_fault_);
  }
  return absl::OkStatus();
}

// What the object has of the part, at most what fits. How much that was is for VerifyBundle.
StatusOr<uint64_t> RestoreJob::LandPart(const ObjectPart& part,
                                        uint64_t payload,
                                        MutableByteSpan to) {
  const uint64_t bytes = std::min<uint64_t>(part.bytes, to.size());
  uint64_t done = 0;
  while (done < bytes) {
    BATON_ASSIGN_OR_RETURN(
        const ByteSpan piece,
        reader_->Read(payload + part.offset + done, std::min(kPieceBytes, bytes - done)));
    if (piece.empty()) break;  // truncated
    verifier_.device->Copy(to.subspan(done, piece.size()), piece);
    done += piece.size();
  }
  return done;
}

// All of the part at rest, its digest, then its elements; nothing if it is not of the right length.
Status RestoreJob::LandEncoded(const ObjectHeader& header,
                               const ObjectPart& part,
                               MutableByteSpan to,
                               LandedPart* landed) {
  const StatePart& layout = tier_.options_.layout->parts()[landed->part.part];
  std::vector<std::byte> rest(EncodedBytes(header.encoding, layout));
  if (part.bytes != rest.size()) return absl::OkStatus();  // posted 0: VerifyBundle says so
  landed->posted = landed->planned;
  BATON_ASSIGN_OR_RETURN(const uint64_t read, LandPart(part, header.PayloadOffset(), rest));
  if (read != rest.size()) return absl::OkStatus();
  const auto index = static_cast<size_t>(&part - header.parts.data());
  const Digest128 found =
      verifier_.digester->Digest(RestSeed(header.encoding, digester_.SeedOf(landed->part)), rest)
          .digest;
  if (found != header.rest_digests[index] && verifier_.checks.On(Check::kStateDigest))
    return Reject(Reason::kDigestMismatch,
                  absl::StrCat(PartKeyName(*tier_.options_.layout, part.key), " at rest as ",
                               std::string(RestEncodingName(header.encoding)), ": digest expected ",
                               header.rest_digests[index].Hex(), ", found ", found.Hex()));
  DecodeRest(header.encoding, layout, rest, to);
  landed->landed = landed->planned;
  return absl::OkStatus();
}

// What landed is not what was sealed, and was proven to be what had been stored of it.
void RestoreJob::SealAnew() {
  claim_.seal.parent = claim_.seal.state_id;
  claim_.seal.state_id = RandomBytes<StateId>();
  claim_.seal.producer = tier_.options_.node;
  claim_.seal.epoch = tier_.options_.epoch;
  claim_.state_id = claim_.seal.state_id;
  for (const LandedPart& landed : landed_.parts)
    if (landed.part.is_state && landed.digest.has_value())
      claim_.seal.state_digests[landed.part.part] = landed.digest->digest;
}

Status RestoreJob::Verify(RestEncoding encoding) {
  Expectation expected = request_.expected;
  if (encoding != RestEncoding::kSame) {
    SealAnew();
    expected.state_id.reset();  // compared before
  }
  bool handles_lost = false;
  if (request_.check_handles != nullptr)
    landed_.check_handles = [&] {
      Status status = request_.check_handles();
      handles_lost = !status.ok();
      return status;
    };
  Status status = VerifyBundle(verifier_, expected, claim_, landed_);
  if (status.ok()) return status;
  blame_ = !handles_lost;
  FindCulprit();
  return status;
}

// The object of the first part that is not what the seal says; if all are, the bundle's own.
void RestoreJob::FindCulprit() {
  at_fault_ = {ObjectKind::kBundle, request_.expected.identity.Key()};
  for (size_t i = 0; i < landed_.parts.size(); ++i) {
    const LandedPart& l = landed_.parts[i];
    const Digest128 sealed = l.part.is_state ? claim_.seal.state_digests[l.part.part]
                                             : claim_.block_digests[l.part.group][l.part.slot];
    if (l.landed == l.planned && l.posted == l.planned && l.digest.has_value() &&
        l.digest->digest == sealed && l.digest->finite)
      continue;
    at_fault_ = landed_from_[i];
    return;
  }
}

// Not the object's fault: the caller's doing, or the medium's.
bool SaysNothingOfTheObject(const Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  return !reason.has_value() || reason == Reason::kCancelled || reason == Reason::kStaleHandle ||
         reason == Reason::kPeerUnavailable || reason == Reason::kNoCapacity;
}

}  // namespace

StatusOr<RestoredBundle> TierImpl::Restore(const RestoreRequest& request,
                                           const CancelToken& cancel) {
  const ContentIdentity& identity = request.expected.identity;
  BATON_CHECK(request.expected.chain != nullptr);
  if (identity.boundary == 0 || identity.boundary % static_cast<uint64_t>(kBlockTokens) != 0 ||
      request.expected.chain->boundary() < identity.boundary)
    return absl::InvalidArgumentError(absl::StrCat(
        "tier: restore at boundary ", identity.boundary, " with a chain of ",
        request.expected.chain->boundary(), " tokens; expected a grid boundary within it"));
  BundlePtr bundle;
  {
    MutexLock lock(&mu_);
    bundle = index_.Find(identity);
    if (bundle == nullptr) {
      ++stats_.misses;
      return absl::NotFoundError(absl::StrCat("tier ", std::string(store_->name()), ": ",
                                              identity.ToString(), " is not at rest here"));
    }
    index_.Touch(bundle);
    ++bundle->readers;
  }
  RestoreJob job(*this, request, cancel);
  StatusOr<RestoredBundle> restored = job.Run();
  std::vector<Doomed> doomed;
  {
    MutexLock lock(&mu_);
    --bundle->readers;
    if (restored.ok()) {
      ++bundle->uses;
      ++stats_.restores;
      stats_.restore_bytes += restored->bytes;
      return restored;
    }
    if (SaysNothingOfTheObject(restored.status())) {
      ++stats_.restores_failed;
      return restored;
    }
    if (bundle->gone) {  // taken away while it was read
      ++stats_.misses;
      return absl::NotFoundError(absl::StrCat(identity.ToString(), " was removed meanwhile"));
    }
    ++stats_.rejects[*ReasonOf(restored.status())];
    if (job.culprit() == nullptr) return restored;
    const SegmentPtr segment = job.culprit()->kind == ObjectKind::kSegment
                                   ? index_.FindSegment(job.culprit()->key)
                                   : nullptr;
    if (segment != nullptr)
      index_.EraseBadSegment(segment, &doomed);
    else
      index_.EraseBundle(bundle, &doomed);
    MarkDoomed(doomed);
  }
  LogWarning(absl::StrCat("tier ", std::string(store_->name()), ": ", job.culprit()->FileName(),
                          " refused and removed: ", restored.status().ToString()));
  RemoveDoomed(doomed);
  return restored;
}

}  // namespace baton::tier_internal
