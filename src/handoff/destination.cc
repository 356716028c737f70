#include "handoff/destination.h"

#include "absl/strings/str_cat.h"

namespace baton {

Destination::Destination(const BundlePools& pools, const Layout& layout, const PullRequest& request)
    : pools_(pools), layout_(layout), request_(request) {
  // A handle without a pool cannot be given back; CheckShape reports it.
  blocks_.resize(std::min(pools.blocks.size(), request.blocks.size()));
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (const BlockHandle& handle : request.blocks[g])
      blocks_[g].push_back({pools.blocks[g], handle, Stage::kReserved, {}});
  if (request.slot.has_value() && pools.slots != nullptr)
    slot_ = Unit<SlotKind>{pools.slots, *request.slot, Stage::kReserved, {}};
}

Destination::~Destination() { Abort(/*quiet=*/true); }

Status Destination::CheckShape() const {
  const uint64_t boundary = request_.ask.expected.boundary;
  const size_t groups = layout_.groups().size();
  if (request_.blocks.size() != groups || pools_.blocks.size() != groups)
    return absl::InvalidArgumentError(absl::StrCat("pull: blocks of ", request_.blocks.size(),
                                                   " groups and ", pools_.blocks.size(),
                                                   " pools, the layout has ", groups, " groups"));
  for (size_t g = 0; g < groups; ++g) {
    if (request_.blocks[g].size() != layout_.BlockCount(g, boundary))
      return absl::InvalidArgumentError(absl::StrCat(
          "pull: ", request_.blocks[g].size(), " blocks of group ", layout_.groups()[g].name,
          ", boundary ", boundary, " needs ", layout_.BlockCount(g, boundary)));
    if (pools_.blocks[g]->unit_bytes() < layout_.groups()[g].block_bytes)
      return absl::InvalidArgumentError("pull: the pool's blocks are smaller than the layout's");
  }
  if (request_.slot.has_value() != layout_.has_state() ||
      (layout_.has_state() && pools_.slots == nullptr))
    return absl::InvalidArgumentError("pull: a slot is needed exactly if the layout has state");
  if (layout_.has_state() && pools_.slots->unit_bytes() < layout_.slot_bytes())
    return absl::InvalidArgumentError("pull: the pool's slots are smaller than the layout's");
  return absl::OkStatus();
}

template <class Fn>
Status Destination::ForEach(const Fn& fn) {
  for (auto& group : blocks_)
    for (auto& unit : group) BATON_RETURN_IF_ERROR(fn(unit));
  if (slot_.has_value()) BATON_RETURN_IF_ERROR(fn(*slot_));
  return absl::OkStatus();
}

Status Destination::Lease(LeaseFor purpose) {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    BATON_ASSIGN_OR_RETURN(BlockLeaseSet set,
                           pools_.blocks[g]->AcquireAll(request_.blocks[g], purpose));
    block_leases_.push_back(std::move(set));
  }
  if (slot_.has_value()) {
    BATON_ASSIGN_OR_RETURN(slot_lease_, pools_.slots->Acquire(slot_->handle, purpose));
  }
  return absl::OkStatus();
}

void Destination::DropLeases() {
  block_leases_.clear();
  slot_lease_.Release();
}

Status Destination::Land() {
  BATON_RETURN_IF_ERROR(ForEach([this](auto& unit) {
    BATON_RETURN_IF_ERROR(unit.pool->Land(unit.handle, request_.ask.attempt));
    unit.stage = Stage::kLanding;
    BATON_ASSIGN_OR_RETURN(unit.stamp, unit.pool->StampOf(unit.handle));
    return absl::OkStatus();
  }));
  return Lease(LeaseFor::kLand);
}

MutableByteSpan Destination::BytesOf(const BundlePart& part) const {
  if (part.is_state)
    return slot_lease_.bytes().subspan(layout_.parts()[part.part].offset, part.bytes);
  return block_leases_[part.group].bytes(part.slot).first(part.bytes);
}

Status Destination::Landed() {
  DropLeases();
  BATON_RETURN_IF_ERROR(ForEach([](auto& unit) {
    BATON_RETURN_IF_ERROR(unit.pool->Landed(unit.handle));
    unit.stage = Stage::kLanded;
    return absl::OkStatus();
  }));
  return Lease(LeaseFor::kDigest);
}

Status Destination::CheckHandles() const {
  for (const auto& group : blocks_)
    for (const auto& unit : group) BATON_RETURN_IF_ERROR(unit.pool->CheckStamp(unit.stamp));
  if (slot_.has_value()) return slot_->pool->CheckStamp(slot_->stamp);
  return absl::OkStatus();
}

Status Destination::Commit() {
  BATON_RETURN_IF_ERROR(ForEach([](auto& unit) {
    BATON_RETURN_IF_ERROR(unit.pool->Verified(unit.handle));
    unit.stage = Stage::kVerified;
    return absl::OkStatus();
  }));
  DropLeases();
  done_ = true;
  return absl::OkStatus();
}

uint64_t Destination::Abort(bool quiet) {
  if (done_) return 0;
  done_ = true;
  DropLeases();
  uint64_t quarantined = 0;
  // A handle that has gone stale belongs to someone else by now: nothing to give back.
  ForEach([quiet, &quarantined](auto& unit) {
    if (unit.stage != Stage::kLanding) {
      unit.pool->Free(unit.handle).IgnoreError();
      return absl::OkStatus();
    }
    if (!unit.pool->Quarantine(unit.handle).ok()) return absl::OkStatus();
    if (quiet)
      unit.pool->ProvenQuiet(unit.handle).IgnoreError();
    else
      ++quarantined;
    return absl::OkStatus();
  }).IgnoreError();
  return quarantined;
}

}  // namespace baton
