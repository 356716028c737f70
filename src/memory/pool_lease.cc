// Leases: which purpose may pin a unit in which state, and what ends with the last one.
#include "absl/strings/str_cat.h"
#include "memory/pool_core.h"

namespace baton {

std::string_view LeaseForName(LeaseFor purpose) {
  constexpr std::string_view kNames[] = {"compute", "send", "land", "digest"};
  return kNames[static_cast<size_t>(purpose)];
}

namespace memory_internal {

bool PoolCore::LeaseAllowed(UnitState state, LeaseFor purpose) const {
  switch (purpose) {
    case LeaseFor::kCompute:
      return state == UnitState::kLive || (compute_reads_sealed_ && state == UnitState::kSealed);
    case LeaseFor::kSend:
      return state == UnitState::kSealed;
    case LeaseFor::kLand:
      return state == UnitState::kLanding;
    case LeaseFor::kDigest:
      return state == UnitState::kLive || state == UnitState::kLanded ||
             state == UnitState::kVerified || state == UnitState::kSealed;
  }
  return false;
}

void PoolCore::AddPin(Unit* unit, bool writer) {
  if (unit->leases++ == 0) ++leased_units_;
  if (writer) ++unit->writers;
  ++leases_;
}

void PoolCore::DropPin(uint32_t index, bool writer) {
  Unit& unit = units_[index];
  if (writer) --unit.writers;
  if (--unit.leases == 0) --leased_units_;
  --leases_;
  if (unit.state == UnitState::kDraining && !unit.pinned()) ToFree(index);
}

Status PoolCore::PinAll(std::span<const UnitRef> refs, LeaseFor purpose, std::vector<Pin>* out) {
  MutexLock lock(&mu_);
  // First everything is checked, then everything is pinned: waiting for one unit's copy releases
  // the mutex, so a wait starts the checks over.
  for (size_t i = 0; i < refs.size();) {
    BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(refs[i]));
    if (unit->moving) {
      moved_.Wait(&mu_);
      i = 0;
      continue;
    }
    if (!LeaseAllowed(unit->state, purpose))
      return absl::FailedPreconditionError(
          absl::StrCat(Name(refs[i]), ": is ", std::string(UnitStateName(unit->state)),
                       ", which cannot be leased to ", std::string(LeaseForName(purpose))));
    ++i;
  }
  out->clear();
  out->reserve(refs.size());
  for (const UnitRef& ref : refs) {
    Unit& unit = units_[ref.index];
    const bool writer = purpose == LeaseFor::kLand ||
                        (purpose == LeaseFor::kCompute && unit.state == UnitState::kLive);
    AddPin(&unit, writer);
    const uint64_t offset = OffsetOf(unit.physical);
    out->push_back(
        {ref.index, BytesOf(unit.physical), offset, writer, StampOfUnit(ref.index, unit)});
  }
  return absl::OkStatus();
}

void PoolCore::UnpinAll(std::span<const Pin> pins) {
  MutexLock lock(&mu_);
  for (const Pin& pin : pins) DropPin(pin.index, pin.writer);
}

}  // namespace memory_internal
}  // namespace baton
