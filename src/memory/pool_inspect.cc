// What can be asked of a pool without changing it: states, stamps, counters, invariants.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "memory/pool_core.h"

namespace baton {
namespace memory_internal {
namespace {

Status Broken(std::string_view what, uint32_t index) {
  return absl::InternalError(
      absl::StrCat("pool invariant broken: ", std::string(what), ", unit ", index));
}

}  // namespace

StatusOr<UnitState> PoolCore::StateOf(UnitRef ref) const {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Unit* unit, Resolve(ref));
  return unit->state;
}

StatusOr<uint32_t> PoolCore::ReferencesOf(UnitRef ref) const {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Unit* unit, Resolve(ref));
  return unit->references;
}

PlacementStamp PoolCore::StampOfUnit(uint32_t index, const Unit& unit) const {
  PlacementStamp stamp;
  stamp.node = options_.node;
  stamp.epoch = options_.epoch;
  stamp.pool = options_.pool_id;
  stamp.index = index;
  stamp.generation = unit.generation;
  stamp.owner = unit.owner;
  stamp.attempt = unit.attempt;
  return stamp;
}

StatusOr<PlacementStamp> PoolCore::StampOf(UnitRef ref) const {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Unit* unit, Resolve(ref));
  return StampOfUnit(ref.index, *unit);
}

Status PoolCore::CheckStamp(const PlacementStamp& stamp) const {
  const UnitRef ref{stamp.pool, stamp.index, stamp.generation};
  if (stamp.node != options_.node || stamp.epoch != options_.epoch)
    return Reject(
        Reason::kEpochMismatch,
        absl::StrCat(Name(ref), ": stamp of node ", stamp.node.Hex(), " epoch ", stamp.epoch.Hex(),
                     ", this is node ", options_.node.Hex(), " epoch ", options_.epoch.Hex()));
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Unit* unit, Resolve(ref));
  if (stamp.owner != unit->owner)
    return Reject(Reason::kStaleHandle,
                  absl::StrCat(Name(ref), ": stamp of owner ", stamp.owner.value,
                               ", the unit belongs to ", unit->owner.value));
  if (stamp.attempt != unit->attempt)
    return Reject(Reason::kAttemptMismatch,
                  absl::StrCat(Name(ref), ": stamp of attempt ", stamp.attempt.value,
                               ", the unit is at ", unit->attempt.value));
  return absl::OkStatus();
}

PoolStats PoolCore::Stats() const {
  MutexLock lock(&mu_);
  PoolStats s;
  s.units_max = static_cast<uint32_t>(units_.size());
  s.used = s.units_max - by_state_[static_cast<size_t>(UnitState::kFree)];
  s.free = free_.count() + move_targets_;
  s.units = s.used + s.free;
  s.leased = leased_units_;
  s.quarantined = by_state_[static_cast<size_t>(UnitState::kQuarantined)];
  s.leases = leases_;
  s.references = references_;
  s.moves = moves_;
  s.refusals = refusals_;
  s.unit_bytes = stride_;
  s.unit_pitch = UnitPitch(options_);
  s.by_state = by_state_;
  return s;
}

Status PoolCore::CheckUnit(uint32_t index) const {
  const Unit& u = units_[index];
  if (u.physical >= units_.size() || virtual_of_[u.physical] != index)
    return Broken("translation is not a bijection", index);
  if (u.generation == 0) return Broken("generation 0", index);
  if (u.writers > u.leases) return Broken("more writers than leases", index);
  if ((u.references > 0) != (u.state == UnitState::kSealed))
    return Broken("references without SEALED, or SEALED without", index);
  if (u.state == UnitState::kFree && u.leases != 0) return Broken("a FREE unit is leased", index);
  if (u.state == UnitState::kDraining && !u.pinned())
    return Broken("DRAINING with nothing to wait for", index);
  if (u.state != UnitState::kFree)
    BATON_RETURN_IF_ERROR(CheckGuards({options_.pool_id, index, u.generation}, u.physical));
  const bool may_be_written = u.state == UnitState::kLive || u.state == UnitState::kLanding ||
                              u.state == UnitState::kQuarantined ||
                              u.state == UnitState::kReserved || u.state == UnitState::kDraining;
  if (u.writers != 0 && !may_be_written)
    return Broken(absl::StrCat("a writer on a unit that is ", std::string(UnitStateName(u.state))),
                  index);
  return absl::OkStatus();
}

Status PoolCore::CheckTables() const {
  uint32_t listed = 0;
  for (uint32_t place = 0; place < units_.size(); ++place) {
    const Unit& u = units_[virtual_of_[place]];
    const bool free = u.state == UnitState::kFree && !u.moving && owned_[place] != 0;
    if (free_.Contains(place) != free)
      return Broken(
          free ? "a FREE unit leaked out of the free places" : "the free places hold a unit in use",
          virtual_of_[place]);
    listed += free;
    if (place >= top_ && (u.state != UnitState::kFree || u.moving))
      return Broken("in use above the top", virtual_of_[place]);
  }
  if (listed != free_.count()) return Broken("free counter", 0);
  std::array<uint32_t, kUnitStates> by_state{};
  uint64_t leases = 0;
  uint64_t references = 0;
  uint32_t leased = 0;
  for (uint32_t i = 0; i < units_.size(); ++i) {
    const Unit& u = units_[i];
    ++by_state[static_cast<size_t>(u.state)];
    leases += u.leases;
    references += u.references;
    leased += u.leases != 0;
  }
  if (by_state != by_state_) return Broken("state counters", 0);
  if (leases != leases_ || leased != leased_units_) return Broken("lease counters", 0);
  if (references != references_) return Broken("reference counter", 0);
  return absl::OkStatus();
}

Status PoolCore::CheckInvariants() const {
  MutexLock lock(&mu_);
  for (uint32_t i = 0; i < units_.size(); ++i) BATON_RETURN_IF_ERROR(CheckUnit(i));
  return CheckTables();
}

}  // namespace memory_internal
}  // namespace baton
