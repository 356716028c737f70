// Put, in this order: the claim is compared with the seal; the segments that are not there yet are
// written one by one; then the bundle's own object, which alone makes it usable; then the index.
// Each object's bytes are digested in the pass that copies them and compared before Commit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "tier/bundle_plan.h"
#include "tier/rest_encoding.h"
#include "tier/tier_impl.h"

namespace baton::tier_internal {

namespace {

class PutJob {
 public:
  PutJob(TierImpl* tier, const BundleSource& source, const CancelToken& cancel)
      : tier_(*tier),
        source_(source),
        cancel_(cancel),
        seal_(*source.seal),
        base_{seal_.identity.model, seal_.identity.layout, source.chain->scope()} {}

  Status Run();
  // Whatever happened: segments that only this Put needed go.
  void Finish();

  bool present = false;
  uint64_t written_bytes = 0;
  uint64_t shared_segments = 0;
  double encoding_error = 0;

 private:
  Status CheckClaim();
  Status EnsureSegment(const SegmentPlan& plan);
  Status WriteSegment(const SegmentPlan& plan, const SegmentPtr& segment);
  Status WriteBundle();
  Status Publish(const ObjectHeader& header);
  Status WriteObject(const ObjectHeader& header, const std::vector<size_t>& parts);
  Status AddOwnParts(ObjectHeader* header);
  StatusOr<PinnedBytes> SourceOf(const BundlePart& part) const;
  PartCheck CheckOf(const BundlePart& part, std::string_view name) const;
  Status CopyPart(ObjectWriter* writer, const BundlePart& part);
  Status Encode(const BundlePart& part, ObjectHeader* header, EncodingLoss* loss);
  Status Store(const ObjectHeader& header, const std::vector<size_t>& parts);
  Digest128 SealedDigest(const BundlePart& part) const {
    return part.is_state ? seal_.state_digests[part.part]
                         : (*source_.block_digests)[part.group][part.slot];
  }

  TierImpl& tier_;
  const BundleSource& source_;
  const CancelToken& cancel_;
  const Seal& seal_;
  const IdentityBase base_;
  Verifier verifier_;
  Expectation expected_;
  BundlePlan plan_;
  std::vector<SegmentPtr> segments_;  // one reference each, until Publish
  // State parts that rest in fewer bits, by index in the layout.
  std::map<size_t, std::vector<std::byte>> encoded_;
};

// The same comparison as at a restore, with the seal as its own claim: a bundle that could not be
// restored is not worth storing.
Status PutJob::CheckClaim() {
  const uint64_t boundary = seal_.identity.boundary;
  if (boundary == 0 || boundary % static_cast<uint64_t>(kBlockTokens) != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("tier: bundle at boundary ", boundary,
                     "; only bundles on the grid of 16 come to rest, and none without tokens"));
  if (source_.chain->boundary() < boundary)
    return absl::InvalidArgumentError(absl::StrCat("tier: chain of ", source_.chain->boundary(),
                                                   " tokens for a bundle at ", boundary));
  verifier_ = tier_.MakeVerifier();
  expected_.identity = {tier_.options_.model, tier_.options_.layout->fingerprint(),
                        source_.chain->scope(),
                        source_.chain->BlockHash(boundary / kBlockTokens - 1), boundary};
  expected_.chain = source_.chain;
  BundleClaim claim;
  claim.state_id = seal_.state_id;
  claim.seal = seal_;
  claim.block_digests = *source_.block_digests;
  return VerifyClaim(verifier_, expected_, claim);
}

Status PutJob::Run() {
  BATON_RETURN_IF_ERROR(CheckClaim());
  const ObjectName name{ObjectKind::kBundle, seal_.identity.Key()};
  {
    MutexLock lock(&tier_.mu_);
    tier_.WaitWhileBusy(name);
    if (const BundlePtr there = tier_.index_.Find(seal_.identity); there != nullptr) {
      tier_.index_.Touch(there);
      present = true;
      return absl::OkStatus();
    }
    tier_.busy_.insert(name);
  }
  plan_ = PlanBundle(*tier_.options_.layout, seal_.identity.boundary);
  Status status;
  for (const SegmentPlan& segment : plan_.segments)
    if (status = EnsureSegment(segment); !status.ok()) break;
  if (status.ok()) status = WriteBundle();
  MutexLock lock(&tier_.mu_);
  tier_.EndBusy(name);
  return status;
}

void PutJob::Finish() {
  std::vector<Doomed> doomed;
  {
    MutexLock lock(&tier_.mu_);
    for (const SegmentPtr& segment : segments_) tier_.index_.Release(segment, &doomed);
    tier_.MarkDoomed(doomed);
  }
  segments_.clear();
  tier_.RemoveDoomed(doomed);
}

Status PutJob::EnsureSegment(const SegmentPlan& plan) {
  std::vector<Digest128> digests;
  for (const size_t i : plan.parts) digests.push_back(SealedDigest(plan_.parts[i]));
  auto segment = std::make_shared<Segment>();
  segment->key = SegmentKey(plan.End(base_, *source_.chain), plan.group);
  segment->root = tier_.options_.digester->BlockRoot(digests);
  const ObjectName name{ObjectKind::kSegment, segment->key};
  {
    MutexLock lock(&tier_.mu_);
    tier_.WaitWhileBusy(name);
    if (const SegmentPtr there = tier_.index_.FindSegment(segment->key); there != nullptr) {
      if (there->root != segment->root)
        return Reject(Reason::kBlockDigestMismatch,
                      absl::StrCat("blocks of ", plan.End(base_, *source_.chain).ToString(),
                                   ": at rest with root ", there->root.Hex(), ", now sealed with ",
                                   segment->root.Hex(), "; one history has one value: audit both"));
      tier_.index_.Reference(there);
      segments_.push_back(there);
      ++shared_segments;
      return absl::OkStatus();
    }
    tier_.busy_.insert(name);
  }
  const Status status = WriteSegment(plan, segment);
  MutexLock lock(&tier_.mu_);
  if (status.ok()) {
    tier_.index_.AddSegment(segment);
    segments_.push_back(segment);
  }
  tier_.EndBusy(name);
  return status;
}

Status PutJob::WriteSegment(const SegmentPlan& plan, const SegmentPtr& segment) {
  ObjectHeader header;
  header.kind = ObjectKind::kSegment;
  header.algorithm = seal_.algorithm;
  header.group = static_cast<uint32_t>(plan.group);
  header.identity = plan.End(base_, *source_.chain);
  for (const size_t i : plan.parts) {
    header.AddPart(plan_.parts[i].key, plan_.parts[i].bytes);
    header.block_digests.push_back(SealedDigest(plan_.parts[i]));
  }
  segment->bytes = header.ObjectBytes();
  return Store(header, plan.parts);
}

Status PutJob::WriteBundle() {
  ObjectHeader header;
  header.algorithm = seal_.algorithm;
  header.identity = seal_.identity;
  header.state_id = seal_.state_id;
  header.seal = seal_;
  for (const auto& group : *source_.block_digests)
    header.block_digests.insert(header.block_digests.end(), group.begin(), group.end());
  for (const SegmentPtr& segment : segments_) header.segments.push_back(segment->key);
  BATON_RETURN_IF_ERROR(AddOwnParts(&header));
  BATON_RETURN_IF_ERROR(Store(header, plan_.own));
  return Publish(header);
}

Status PutJob::AddOwnParts(ObjectHeader* header) {
  const auto encodes = [&](const BundlePart& part) {
    return part.is_state &&
           Encodes(tier_.options_.rest_encoding, tier_.options_.layout->parts()[part.part].dtype);
  };
  const bool any = std::any_of(plan_.own.begin(), plan_.own.end(),
                               [&](size_t i) { return encodes(plan_.parts[i]); });
  if (any) header->encoding = tier_.options_.rest_encoding;
  EncodingLoss loss;
  for (const size_t i : plan_.own) {
    const BundlePart& part = plan_.parts[i];
    if (any && encodes(part)) {
      BATON_RETURN_IF_ERROR(Encode(part, header, &loss));
      continue;
    }
    header->AddPart(part.key, part.bytes);
    if (any) header->rest_digests.push_back(SealedDigest(part));
  }
  if (loss.values > 0) encoding_error = std::sqrt(loss.errors / loss.values);
  return absl::OkStatus();
}

// The source is verified before it is encoded; what rests has a digest of its own.
Status PutJob::Encode(const BundlePart& part, ObjectHeader* header, EncodingLoss* loss) {
  const StatePart& layout = tier_.options_.layout->parts()[part.part];
  BATON_ASSIGN_OR_RETURN(const PinnedBytes source, SourceOf(part));
  const std::string name = PartKeyName(*tier_.options_.layout, part.key);
  const PartCheck check = CheckOf(part, name);
  BATON_RETURN_IF_ERROR(VerifyPart(verifier_, check, source.bytes));
  std::vector<std::byte>& rest = encoded_[part.part];
  rest.resize(EncodedBytes(header->encoding, layout));
  const EncodingLoss one = EncodeRest(header->encoding, layout, source.bytes, rest);
  loss->values += one.values;
  loss->errors += one.errors;
  header->AddPart(part.key, rest.size());
  header->rest_digests.push_back(
      verifier_.digester->Digest(RestSeed(header->encoding, check.seed), rest).digest);
  return absl::OkStatus();
}

Status PutJob::Publish(const ObjectHeader& header) {
  auto bundle = std::make_shared<Bundle>();
  bundle->identity = seal_.identity;
  bundle->key = header.Name().key;
  bundle->state_id = seal_.state_id;
  bundle->parent = seal_.parent;
  bundle->bytes = header.ObjectBytes();
  {
    MutexLock lock(&tier_.mu_);
    const bool whole = std::none_of(segments_.begin(), segments_.end(),
                                    [](const SegmentPtr& segment) { return segment->gone; });
    if (whole) {
      bundle->segments = std::move(segments_);
      segments_.clear();
      tier_.index_.AddBundle(bundle);
      return absl::OkStatus();
    }
  }
  // Still marked busy: nobody else writes or removes this name.
  tier_.store_->Remove(header.Name()).IgnoreError();
  MutexLock lock(&tier_.mu_);
  tier_.index_.Unreserve(bundle->bytes);
  return Reject(Reason::kPeerUnavailable,
                "tier: a segment of the bundle was found bad while the bundle was written");
}

// Room, then the object; the room is given back if it fails. The name is busy.
Status PutJob::Store(const ObjectHeader& header, const std::vector<size_t>& parts) {
  const uint64_t bytes = header.ObjectBytes();
  {
    MutexLock lock(&tier_.mu_);
    tier_.index_.ForgetUnindexed(header.Name());
  }
  BATON_RETURN_IF_ERROR(tier_.EvictTo(tier_.options_.budget_bytes, bytes));
  const Status status = WriteObject(header, parts);
  if (status.ok()) {
    written_bytes += bytes;
    return status;
  }
  MutexLock lock(&tier_.mu_);
  tier_.index_.Unreserve(bytes);
  return status;
}

Status PutJob::WriteObject(const ObjectHeader& header, const std::vector<size_t>& parts) {
  const std::vector<uint8_t> record = EncodeObjectHeader(header);
  ObjectSize size{header.ObjectBytes(), record.size()};
  for (const ObjectPart& part : header.parts) size.largest = std::max(size.largest, part.bytes);
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                         tier_.store_->Create(header.Name(), size));
  BATON_ASSIGN_OR_RETURN(const MutableByteSpan head, writer->Next(record.size()));
  std::memcpy(head.data(), record.data(), record.size());
  uint64_t end = 0;
  const auto fill_to = [&](uint64_t offset) -> Status {
    if (offset == end) return absl::OkStatus();
    BATON_ASSIGN_OR_RETURN(const MutableByteSpan gap, writer->Next(offset - end));
    std::memset(gap.data(), 0, gap.size());
    return absl::OkStatus();
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    if (cancel_.stop_requested()) return Reject(Reason::kCancelled, "tier: put cancelled");
    BATON_RETURN_IF_ERROR(fill_to(header.parts[i].offset));
    BATON_RETURN_IF_ERROR(CopyPart(writer.get(), plan_.parts[parts[i]]));
    end = header.parts[i].offset + header.parts[i].bytes;
  }
  BATON_RETURN_IF_ERROR(fill_to(header.ObjectBytes() - header.PayloadOffset()));
  return writer->Commit();
}

StatusOr<PinnedBytes> PutJob::SourceOf(const BundlePart& part) const {
  BATON_ASSIGN_OR_RETURN(PinnedBytes source, source_.bytes(part));
  if (source.bytes.size() != part.bytes)
    return absl::InvalidArgumentError(absl::StrCat(PartKeyName(*tier_.options_.layout, part.key),
                                                   ": source of ", source.bytes.size(),
                                                   " bytes, expected ", part.bytes));
  return source;
}

PartCheck PutJob::CheckOf(const BundlePart& part, std::string_view name) const {
  PartCheck check;
  check.seed = PartDigester(verifier_, expected_).SeedOf(part);
  check.expected = SealedDigest(part);
  check.name = name;
  check.mismatch = part.is_state ? Reason::kDigestMismatch : Reason::kBlockDigestMismatch;
  return check;
}

Status PutJob::CopyPart(ObjectWriter* writer, const BundlePart& part) {
  if (const auto it = encoded_.find(part.part); part.is_state && it != encoded_.end()) {
    BATON_ASSIGN_OR_RETURN(const MutableByteSpan to, writer->Next(it->second.size()));
    std::memcpy(to.data(), it->second.data(), to.size());
    it->second = {};
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(const PinnedBytes source, SourceOf(part));
  BATON_ASSIGN_OR_RETURN(const MutableByteSpan to, writer->Next(part.bytes));
  const std::string name = PartKeyName(*tier_.options_.layout, part.key);
  PartCheck check = CheckOf(part, name);
  // Nobody else knows of `to`, so the digest of the copy is that of what rests there.
  check.found = verifier_.device->CopyDigest(*verifier_.digester, check.seed, to, source.bytes);
  return VerifyPart(verifier_, check, to);
}

}  // namespace

Status TierImpl::Put(const BundleSource& source, const CancelToken& cancel) {
  BATON_CHECK(source.seal != nullptr && source.chain != nullptr &&
              source.block_digests != nullptr && source.bytes != nullptr);
  PutJob job(this, source, cancel);
  const Status status = job.Run();
  job.Finish();
  MutexLock lock(&mu_);
  const std::optional<Reason> reason = ReasonOf(status);
  stats_.put_bytes += job.written_bytes;
  stats_.segments_shared += job.shared_segments;
  stats_.encoding_error_max = std::max(stats_.encoding_error_max, job.encoding_error);
  if (status.ok())
    ++(job.present ? stats_.puts_present : stats_.puts);
  else if (reason == Reason::kNoCapacity)
    ++stats_.puts_no_room;
  else if (reason == Reason::kPeerUnavailable || reason == Reason::kCancelled)
    ++stats_.puts_failed;
  else
    ++stats_.puts_refused;
  return status;
}

}  // namespace baton::tier_internal
