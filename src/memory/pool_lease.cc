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

Status PoolCore::CheckPins(std::span<const UnitRef> refs, LeaseFor purpose) {
  // Waiting for one unit's copy releases the mutex, so a wait starts the checks over.
  for (size_t i = 0; i < refs.size();) {
    Prefetch(refs, i);
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
  return absl::OkStatus();
}

bool PoolCore::PinUnit(uint32_t index, LeaseFor purpose) {
  Unit& unit = units_[index];
  const bool writer = purpose == LeaseFor::kLand ||
                      (purpose == LeaseFor::kCompute && unit.state == UnitState::kLive);
  AddPin(&unit, writer);
  return writer;
}

Status PoolCore::PinOne(UnitRef ref, LeaseFor purpose, Pin* out) {
  MutexLock lock(&mu_);
  BATON_RETURN_IF_ERROR(CheckPins(std::span(&ref, 1), purpose));
  const Unit& unit = units_[ref.index];
  const bool writer = PinUnit(ref.index, purpose);
  *out = {ref.index, BytesOf(unit.physical), OffsetOf(unit.physical), writer,
          StampOfUnit(ref.index, unit)};
  return absl::OkStatus();
}

void PoolCore::UnpinAll(std::span<const Pin> pins) {
  MutexLock lock(&mu_);
  for (const Pin& pin : pins) DropPin(pin.index, pin.writer);
}

Status PoolCore::PinMany(std::span<const UnitRef> refs,
                         LeaseFor purpose,
                         std::vector<SlimPin>* pins,
                         std::vector<std::byte*>* pointers) {
  pins->reserve(refs.size());
  pointers->reserve(refs.size());
  MutexLock lock(&mu_);
  BATON_RETURN_IF_ERROR(CheckPins(refs, purpose));
  for (const UnitRef& ref : refs) {
    pins->push_back({ref.index, PinUnit(ref.index, purpose)});
    pointers->push_back(options_.arena->data() + OffsetOf(units_[ref.index].physical));
  }
  return absl::OkStatus();
}

void PoolCore::UnpinMany(std::span<const SlimPin> pins) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < pins.size(); ++i) {
    Prefetch(pins, i);
    DropPin(pins[i].index, pins[i].writer);
  }
}

}  // namespace memory_internal
}  // namespace baton
