#include "handoff/destination.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

Destination::Destination(const BundlePools& pools,
                         const Layout& layout,
                         const PullRequest& request,
                         Quarantine* quarantine)
    : pools_(pools), layout_(layout), request_(request), quarantine_(quarantine) {
  // A handle without a pool cannot be given back; CheckShape reports it.
  blocks_.resize(std::min(pools.blocks.size(), request.blocks.size()));
  for (size_t g = 0; g < blocks_.size(); ++g) {
    blocks_[g].resize(request.blocks[g].size());
    for (size_t i = 0; i < blocks_[g].size(); ++i) {
      blocks_[g][i].pool = pools.blocks[g];
      blocks_[g][i].handle = request.blocks[g][i];
    }
  }
  if (request.slot.has_value() && pools.slots != nullptr) {
    slot_.emplace();
    slot_->pool = pools.slots;
    slot_->handle = *request.slot;
  }
}

Destination::~Destination() { Abort(); }

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

template <class Fn>
auto Destination::WithUnit(const BundlePart& part, const Fn& fn) {
  return part.is_state ? fn(&*slot_) : fn(&blocks_[part.group][part.slot]);
}

template <class Kind>
Status Destination::LandUnit(Unit<Kind>* unit) {
  BATON_RETURN_IF_ERROR(unit->pool->Land(unit->handle, request_.ask.attempt));
  unit->stage = Stage::kLanding;
  BATON_ASSIGN_OR_RETURN(unit->stamp, unit->pool->StampOf(unit->handle));
  BATON_ASSIGN_OR_RETURN(unit->lease, unit->pool->Acquire(unit->handle, LeaseFor::kLand));
  return absl::OkStatus();
}

Status Destination::Land() {
  if (std::exchange(landing_, true)) return absl::OkStatus();
  return ForEach([this](auto& unit) { return LandUnit(&unit); });
}

MutableByteSpan Destination::BytesOf(const BundlePart& part) const {
  if (part.is_state)
    return slot_->lease.bytes().subspan(layout_.parts()[part.part].offset, part.bytes);
  return blocks_[part.group][part.slot].lease.bytes().first(part.bytes);
}

void Destination::Suspect(const BundlePart& part,
                          const std::string& connector,
                          std::shared_ptr<WritersLeft> writers) {
  WithUnit(part, [&](auto* unit) {
    unit->suspect = true;
    unit->connector = connector;
    unit->writers = std::move(writers);
  });
}

void Destination::Trust(const BundlePart& part) {
  WithUnit(part, [](auto* unit) { unit->suspect = false; });
}

// All fresh units are had before an old one is given back: memory that the dead connector was given
// must not come round as fresh.
Status Destination::Renew(const std::vector<BundlePart>& parts) {
  std::vector<std::pair<Unit<BlockKind>*, BlockHandle>> fresh_blocks;
  std::optional<SlotHandle> fresh_slot;
  Status status;
  for (const BundlePart& part : parts) {
    if (part.is_state) {
      if (fresh_slot.has_value()) continue;
      auto fresh = ReserveFor(*slot_);
      status = fresh.status();
      if (fresh.ok()) fresh_slot = *fresh;
    } else {
      Unit<BlockKind>* const unit = &blocks_[part.group][part.slot];
      auto fresh = ReserveFor(*unit);
      status = fresh.status();
      if (fresh.ok()) fresh_blocks.emplace_back(unit, *fresh);
    }
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    if (fresh_slot.has_value()) slot_->pool->Free(*fresh_slot).IgnoreError();
    for (const auto& [unit, fresh] : fresh_blocks) unit->pool->Free(fresh).IgnoreError();
    return status;
  }
  for (const auto& [unit, fresh] : fresh_blocks) {
    const Status replaced = Replace(unit, fresh);
    if (status.ok()) status = replaced;
  }
  if (!fresh_slot.has_value()) return status;
  if (status.ok()) return Replace(&*slot_, *fresh_slot);
  slot_->pool->Free(*fresh_slot).IgnoreError();
  return status;
}

template <class Kind>
StatusOr<UnitHandle<Kind>> Destination::ReserveFor(const Unit<Kind>& unit) {
  BATON_CHECK(unit.stage == Stage::kLanding);
  ReserveOptions reserve;
  reserve.owner = unit.stamp.owner;
  reserve.attempt = request_.ask.attempt;
  reserve.fill = FillMode::kGapsOnly;
  return unit.pool->Reserve(reserve);
}

template <class Kind>
Status Destination::Replace(Unit<Kind>* unit, UnitHandle<Kind> fresh) {
  GiveBack(unit);
  UnitPool<Kind>* const pool = unit->pool;
  *unit = Unit<Kind>();
  unit->pool = pool;
  unit->handle = fresh;
  return LandUnit(unit);
}

Status Destination::Landed() {
  return ForEach([](auto& unit) -> Status {
    if (unit.suspect)
      return absl::InternalError("a unit that may still be written to is not landed");
    unit.lease.Release();
    BATON_RETURN_IF_ERROR(unit.pool->Landed(unit.handle));
    unit.stage = Stage::kLanded;
    BATON_ASSIGN_OR_RETURN(unit.lease, unit.pool->Acquire(unit.handle, LeaseFor::kDigest));
    return absl::OkStatus();
  });
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
  ForEach([](auto& unit) {
    unit.lease.Release();
    return absl::OkStatus();
  }).IgnoreError();
  done_ = true;
  return absl::OkStatus();
}

// A handle that has gone stale belongs to someone else by now: nothing to give back.
template <class Kind>
void Destination::GiveBack(Unit<Kind>* unit) {
  QuarantinedRange range;
  range.pool = unit->handle.pool;
  range.offset = unit->lease.arena_offset();
  range.bytes = unit->lease.bytes().size();
  range.connector = unit->connector;
  unit->lease.Release();
  if (unit->stage != Stage::kLanding) {
    unit->pool->Free(unit->handle).IgnoreError();
    return;
  }
  if (!unit->pool->Quarantine(unit->handle).ok()) return;
  if (!unit->suspect) {
    unit->pool->ProvenQuiet(unit->handle).IgnoreError();
    return;
  }
  ++quarantined_;
  quarantine_->Add(std::move(range), unit->writers, [pool = unit->pool, handle = unit->handle] {
    return pool->ProvenQuiet(handle);
  });
}

void Destination::Abort() {
  if (std::exchange(done_, true)) return;
  ForEach([this](auto& unit) {
    GiveBack(&unit);
    return absl::OkStatus();
  }).IgnoreError();
}

std::vector<std::vector<BlockHandle>> Destination::blocks() const {
  std::vector<std::vector<BlockHandle>> out(blocks_.size());
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (const auto& unit : blocks_[g]) out[g].push_back(unit.handle);
  return out;
}

std::optional<SlotHandle> Destination::slot() const {
  if (!slot_.has_value()) return std::nullopt;
  return slot_->handle;
}

}  // namespace baton
