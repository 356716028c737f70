// Copies and moves. The bytes are copied outside the pool's mutex; meanwhile the unit is marked
// `moving`: a lease waits for it, a Free drains it, and nothing else can touch its bytes. There is
// no gate over the whole pool, so compaction makes progress under sustained transfer.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "memory/pool_core.h"

namespace baton {
namespace memory_internal {

// Digested: the source as it is copied, then the destination, then the source again. A copy that
// went wrong differs in the second; a write that slipped in while the copy ran, which would leave a
// torn state behind, differs in the third.
Status PoolCore::CopyVerified(MutableByteSpan dst, ByteSpan src, const std::string& what) const {
  const DigestSeed seed;  // identity does not change in a copy: any one seed serves all three
  const Digest128 copied = options_.device->CopyDigest(digester_, seed, dst, src).digest;
  const Digest128 landed = options_.device->Digest(digester_, seed, dst).digest;
  if (copied != landed)
    return Reject(Reason::kDigestMismatch,
                  absl::StrCat(what, ": expected ", copied.Hex(), ", found ", landed.Hex(),
                               " at the destination"));
  const Digest128 after = options_.device->Digest(digester_, seed, src).digest;
  if (after != copied)
    return Reject(Reason::kDigestMismatch,
                  absl::StrCat(what, ": expected ", copied.Hex(), ", found ", after.Hex(),
                               " at the source after the copy; something wrote to it meanwhile"));
  return absl::OkStatus();
}

Status PoolCore::CopyInto(UnitRef src, UnitRef dst) {
  MutableByteSpan from;
  MutableByteSpan to;
  bool exclusive = false;
  {
    MutexLock lock(&mu_);
    BATON_ASSIGN_OR_RETURN(Unit * source, ResolveStill(src));
    BATON_ASSIGN_OR_RETURN(Unit * target, Resolve(dst));
    if (source->state != UnitState::kLive && source->state != UnitState::kSealed)
      return absl::FailedPreconditionError(absl::StrCat(Name(src), ": is ",
                                                        std::string(UnitStateName(source->state)),
                                                        ", only LIVE and SEALED units are copied"));
    if (target->state != UnitState::kReserved)
      return absl::FailedPreconditionError(absl::StrCat(Name(dst), ": is ",
                                                        std::string(UnitStateName(target->state)),
                                                        ", a copy goes into a RESERVED unit"));
    if (source->writers != 0) return Busy(src, *source, "copied");
    if (target->pinned()) return Busy(dst, *target, "copied into");
    BATON_RETURN_IF_ERROR(CheckGuards(src, source->physical));
    // A SEALED source cannot change and may be read by many; a LIVE one could be leased by a step.
    exclusive = source->state == UnitState::kLive;
    source->moving = exclusive;
    AddPin(source, false);
    AddPin(target, true);
    target->zeroed = false;  // a copy that fails half way leaves neither zeros nor a copy
    target->copied = false;
    from = BytesOf(source->physical);
    to = BytesOf(target->physical);
  }
  Status status = CopyVerified(to, from, absl::StrCat("copy of ", Name(src), " to ", Name(dst)));
  MutexLock lock(&mu_);
  if (exclusive) {
    units_[src.index].moving = false;
    moved_.NotifyAll();
  }
  DropPin(src.index, false);
  const StatusOr<Unit*> target = Resolve(dst);  // freed meanwhile: stale
  if (status.ok()) status = target.status();
  if (status.ok()) (*target)->copied = true;  // a leased RESERVED unit can only be freed
  DropPin(dst.index, true);
  return status;
}

bool PoolCore::Movable(const Unit& unit) const {
  if (unit.state != UnitState::kLive && unit.state != UnitState::kSealed) return false;
  if (unit.moving) return false;
  return unit.leases == 0 || options_.checks_off.lease_pin;
}

PoolCore::MovePlan PoolCore::BeginMove(uint32_t index) {
  MovePlan plan;
  plan.index = index;
  plan.generation = units_[index].generation;
  plan.to = free_.Lowest();
  plan.from = units_[index].physical;
  plan.other = virtual_of_[plan.to];
  free_.Erase(plan.to);
  top_ = std::max(top_, plan.to + 1);
  ++move_targets_;
  units_[plan.index].moving = true;
  units_[plan.other].moving = true;
  return plan;
}

Status PoolCore::FinishMove(const MovePlan& plan) {
  Status status = CheckGuards({options_.pool_id, plan.index, plan.generation}, plan.from);
  if (status.ok()) {
    PaintGuards(plan.to);
    status = CopyVerified(BytesOf(plan.to), BytesOf(plan.from),
                          absl::StrCat("move of ", kind_, " ", options_.pool_id, "/", plan.index));
  }
  MutexLock lock(&mu_);
  Unit& unit = units_[plan.index];
  Unit& other = units_[plan.other];
  unit.moving = false;
  other.moving = false;
  --move_targets_;
  if (status.ok()) {
    std::swap(unit.physical, other.physical);
    virtual_of_[unit.physical] = plan.index;
    virtual_of_[other.physical] = plan.other;
    ++moves_;
  }
  if (options_.poison) options_.device->Fill(BytesOf(other.physical), std::byte{0xFF});
  if (owned_[other.physical] != 0) free_.Insert(other.physical);
  if (unit.state == UnitState::kDraining && !unit.pinned()) ToFree(plan.index);
  moved_.NotifyAll();
  return status;
}

Status PoolCore::Move(UnitRef ref) {
  MovePlan plan;
  {
    MutexLock lock(&mu_);
    BATON_ASSIGN_OR_RETURN(Unit * unit, ResolveStill(ref));
    if (unit->state != UnitState::kLive && unit->state != UnitState::kSealed)
      return absl::FailedPreconditionError(absl::StrCat(Name(ref), ": is ",
                                                        std::string(UnitStateName(unit->state)),
                                                        ", only LIVE and SEALED units move"));
    if (!Movable(*unit)) return Busy(ref, *unit, "moved");
    if (free_.empty())
      return Reject(Reason::kNoCapacity,
                    absl::StrCat(Name(ref), ": no free place to move to in ", units_.size()));
    plan = BeginMove(ref.index);
  }
  return FinishMove(plan);
}

uint32_t PoolCore::LowerTop() {
  const auto in_use = [&](const Unit& unit) {
    return unit.state != UnitState::kFree || unit.moving;
  };
  while (top_ > 0 && !in_use(units_[virtual_of_[top_ - 1]])) --top_;
  return top_;
}

StatusOr<bool> PoolCore::CompactOne() {
  MovePlan plan;
  {
    MutexLock lock(&mu_);
    if (free_.empty()) return false;
    const uint32_t to = free_.Lowest();
    uint32_t from = LowerTop();
    while (from > to + 1 && !Movable(units_[virtual_of_[from - 1]])) --from;
    if (from <= to + 1) return false;
    plan = BeginMove(virtual_of_[from - 1]);
  }
  BATON_RETURN_IF_ERROR(FinishMove(plan));
  return true;
}

}  // namespace memory_internal
}  // namespace baton
