// Creation and the life-cycle edges. Leases: pool_lease.cc; copies and moves: pool_move.cc;
// counters, stamps and invariants: pool_inspect.cc.
#include "memory/pool_core.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace baton {

std::string_view UnitStateName(UnitState state) {
  constexpr std::string_view kNames[kUnitStates] = {"FREE",    "RESERVED",    "LIVE",
                                                    "LANDING", "LANDED",      "VERIFIED",
                                                    "SEALED",  "QUARANTINED", "DRAINING"};
  return kNames[static_cast<size_t>(state)];
}

namespace memory_internal {
namespace {

// virtual -> physical: a seeded shuffle that is never the identity (unless there is one unit).
std::vector<uint32_t> Permutation(uint32_t n, uint64_t seed) {
  std::vector<uint32_t> p(n);
  std::iota(p.begin(), p.end(), 0u);
  SplitMix64 rng(seed);
  for (uint32_t i = n; i > 1; --i) std::swap(p[i - 1], p[rng.Below(i)]);
  if (std::is_sorted(p.begin(), p.end())) std::rotate(p.begin(), p.begin() + 1, p.end());
  return p;
}

Status CheckOptions(const PoolOptions& o, const char* kind) {
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, " pool ", o.pool_id, ": ", std::string(what)));
  };
  if (o.arena == nullptr || o.device == nullptr) return bad("arena and device are required");
  if (o.units == 0 || o.unit_bytes == 0) return bad("units and unit_bytes must be >= 1");
  if (o.align == 0 || (o.align & (o.align - 1)) != 0 || o.align > Arena::kAlign)
    return bad(absl::StrCat("align ", o.align, " is not a power of two up to 4096"));
  uint64_t end = 0;
  for (const Extent& e : o.extents) {
    if (e.offset < end || e.offset > o.unit_bytes || e.bytes > o.unit_bytes - e.offset)
      return bad("extents must be ascending, disjoint and inside the unit");
    end = e.offset + e.bytes;
  }
  uint64_t total = 0;
  if (o.unit_bytes > UINT64_MAX - o.align ||
      __builtin_mul_overflow((o.unit_bytes + o.align - 1) / o.align * o.align, uint64_t{o.units},
                             &total))
    return bad(absl::StrCat(o.units, " units of ", o.unit_bytes, " bytes overflow"));
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<PoolCore>> PoolCore::Create(const PoolOptions& options,
                                                     const char* kind,
                                                     bool compute_reads_sealed) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, kind));
  const uint64_t stride = (options.unit_bytes + options.align - 1) / options.align * options.align;
  BATON_ASSIGN_OR_RETURN(const uint64_t base, options.arena->Carve(stride * options.units));
  return std::unique_ptr<PoolCore>(new PoolCore(options, kind, compute_reads_sealed, base));
}

PoolCore::PoolCore(const PoolOptions& options,
                   const char* kind,
                   bool compute_reads_sealed,
                   uint64_t base)
    : options_(options),
      kind_(kind),
      compute_reads_sealed_(compute_reads_sealed),
      base_(base),
      stride_((options.unit_bytes + options.align - 1) / options.align * options.align) {
  uint64_t end = 0;
  if (!options_.extents.empty()) {
    for (const Extent& e : options_.extents) {
      if (e.offset > end) gaps_.push_back({end, e.offset - end});
      end = e.offset + e.bytes;
    }
  } else {
    end = options_.unit_bytes;
  }
  if (end < stride_) gaps_.push_back({end, stride_ - end});

  const std::vector<uint32_t> physical = Permutation(options_.units, options_.permute_seed);
  MutexLock lock(&mu_);
  units_.resize(options_.units);
  virtual_of_.resize(options_.units);
  free_.reserve(options_.units);
  for (uint32_t v = 0; v < options_.units; ++v) {
    units_[v].physical = physical[v];
    virtual_of_[physical[v]] = v;
    free_.push_back(options_.units - 1 - v);
  }
  by_state_[static_cast<size_t>(UnitState::kFree)] = options_.units;
}

PoolCore::~PoolCore() {
  MutexLock lock(&mu_);
  BATON_CHECK(leases_ == 0);  // a lease must not outlive its pool
}

std::string PoolCore::Name(UnitRef ref) const {
  return absl::StrCat(kind_, " ", ref.pool, "/", ref.index, "#", ref.generation);
}

MutableByteSpan PoolCore::BytesOf(uint32_t physical) const {
  return {options_.arena->data() + base_ + uint64_t{physical} * stride_, stride_};
}

void PoolCore::Prepare(MutableByteSpan bytes, FillMode fill) const {
  if (options_.checks_off.fill) return;
  if (fill == FillMode::kZero) {
    options_.device->Fill(bytes, std::byte{0});
    return;
  }
  for (const Extent& gap : gaps_)
    options_.device->Fill(bytes.subspan(gap.offset, gap.bytes), std::byte{0});
}

Status PoolCore::CheckRef(UnitRef ref) const {
  const auto stale = [&](std::string_view why) {
    return Reject(Reason::kStaleHandle, absl::StrCat(Name(ref), ": ", std::string(why)));
  };
  if (ref.pool != options_.pool_id)
    return stale(
        absl::StrCat("handle of another pool, this is ", kind_, " pool ", options_.pool_id));
  if (ref.index >= units_.size())
    return stale(absl::StrCat("no such unit, the pool has ", units_.size()));
  const Unit& unit = units_[ref.index];
  if (options_.checks_off.generation) return absl::OkStatus();
  if (unit.generation != ref.generation)
    return stale(absl::StrCat("stale handle, the unit's generation is ", unit.generation));
  // A handle of the current generation exists only while the unit is in use; this one was made up.
  if (unit.state == UnitState::kFree) return stale("the unit is FREE");
  return absl::OkStatus();
}

StatusOr<const PoolCore::Unit*> PoolCore::Resolve(UnitRef ref) const {
  BATON_RETURN_IF_ERROR(CheckRef(ref));
  return &units_[ref.index];
}

StatusOr<PoolCore::Unit*> PoolCore::Resolve(UnitRef ref) {
  BATON_RETURN_IF_ERROR(CheckRef(ref));
  return &units_[ref.index];
}

StatusOr<PoolCore::Unit*> PoolCore::ResolveStill(UnitRef ref) {
  for (;;) {
    BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
    if (!unit->moving) return unit;
    moved_.Wait(&mu_);
  }
}

Status PoolCore::WrongEdge(UnitRef ref, UnitState from, UnitState to) const {
  return absl::FailedPreconditionError(absl::StrCat(Name(ref), ": no edge from ",
                                                    std::string(UnitStateName(from)), " to ",
                                                    std::string(UnitStateName(to))));
}

Status PoolCore::Busy(UnitRef ref, const Unit& unit, std::string_view action) const {
  return absl::FailedPreconditionError(absl::StrCat(
      Name(ref), " is ", std::string(UnitStateName(unit.state)), " with ", unit.leases, " leases (",
      unit.writers, " writing), and cannot be ", std::string(action), " until they end"));
}

void PoolCore::SetState(Unit* unit, UnitState to) {
  --by_state_[static_cast<size_t>(unit->state)];
  ++by_state_[static_cast<size_t>(to)];
  unit->state = to;
}

StatusOr<UnitRef> PoolCore::Reserve(const ReserveOptions& options) {
  UnitRef ref;
  MutableByteSpan bytes;
  {
    MutexLock lock(&mu_);
    if (free_.empty())
      return Reject(Reason::kNoCapacity, absl::StrCat(kind_, " pool ", options_.pool_id, ": all ",
                                                      units_.size(), " units are in use"));
    const uint32_t index = free_.back();
    free_.pop_back();
    Unit& unit = units_[index];
    SetState(&unit, UnitState::kReserved);
    unit.zeroed = options.fill == FillMode::kZero;
    unit.copied = false;
    unit.owner = options.owner;
    unit.attempt = options.attempt;
    ref = {options_.pool_id, index, unit.generation};
    bytes = BytesOf(unit.physical);
  }
  // Outside the mutex: nobody else has the handle yet, and a RESERVED unit never moves.
  Prepare(bytes, options.fill);
  return ref;
}

Status PoolCore::Transition(UnitRef ref, UnitState from, UnitState to) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != from) return WrongEdge(ref, unit->state, to);
  if (unit->writers != 0) return Busy(ref, *unit, UnitStateName(to));
  SetState(unit, to);
  return absl::OkStatus();
}

Status PoolCore::Activate(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state == UnitState::kReserved) {
    if (unit->pinned()) return Busy(ref, *unit, "made LIVE");
    if (!unit->zeroed && !unit->copied)
      return absl::FailedPreconditionError(absl::StrCat(
          Name(ref), ": RESERVED but neither zero-filled nor copied into; reserve it with kZero"));
  } else if (unit->state != UnitState::kVerified) {
    return WrongEdge(ref, unit->state, UnitState::kLive);
  }
  SetState(unit, UnitState::kLive);
  return absl::OkStatus();
}

Status PoolCore::Land(UnitRef ref, Attempt attempt) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != UnitState::kReserved) return WrongEdge(ref, unit->state, UnitState::kLanding);
  if (unit->pinned()) return Busy(ref, *unit, "made LANDING");
  const uint32_t quarantined = by_state_[static_cast<size_t>(UnitState::kQuarantined)];
  if (quarantined >= options_.quarantine_max)
    return Reject(Reason::kNoCapacity,
                  absl::StrCat(kind_, " pool ", options_.pool_id, ": ", quarantined,
                               " units are quarantined, the cap is ", options_.quarantine_max,
                               "; no new hand-off until they are proven quiet"));
  unit->attempt = attempt;
  SetState(unit, UnitState::kLanding);
  return absl::OkStatus();
}

Status PoolCore::Landed(UnitRef ref) {
  return Transition(ref, UnitState::kLanding, UnitState::kLanded);
}

Status PoolCore::Verified(UnitRef ref) {
  return Transition(ref, UnitState::kLanded, UnitState::kVerified);
}

Status PoolCore::Quarantine(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != UnitState::kLanding)
    return WrongEdge(ref, unit->state, UnitState::kQuarantined);
  SetState(unit, UnitState::kQuarantined);  // with its leases: those are the writers we wait for
  return absl::OkStatus();
}

Status PoolCore::ProvenQuiet(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != UnitState::kQuarantined) return WrongEdge(ref, unit->state, UnitState::kFree);
  if (unit->pinned()) return Busy(ref, *unit, "proven quiet");
  Retire(ref.index);
  return absl::OkStatus();
}

Status PoolCore::Seal(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  const UnitState from = unit->state;
  if (from != UnitState::kReserved && from != UnitState::kLive && from != UnitState::kVerified)
    return WrongEdge(ref, from, UnitState::kSealed);
  if (unit->writers != 0) return Busy(ref, *unit, "sealed");
  if (from == UnitState::kReserved && !unit->copied)
    return absl::FailedPreconditionError(
        absl::StrCat(Name(ref), ": RESERVED and never copied into; there is nothing to seal"));
  SetState(unit, UnitState::kSealed);
  unit->references = 1;
  ++references_;
  return absl::OkStatus();
}

Status PoolCore::Free(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  switch (unit->state) {
    case UnitState::kReserved:
    case UnitState::kLive:
    case UnitState::kLanded:
    case UnitState::kVerified:
      break;
    case UnitState::kSealed:
      if (unit->references > 1)
        return absl::FailedPreconditionError(
            absl::StrCat(Name(ref), ": SEALED with ", unit->references,
                         " references; drop the own one instead of freeing it"));
      break;
    case UnitState::kLanding:
      return absl::FailedPreconditionError(absl::StrCat(
          Name(ref), ": no edge from LANDING to FREE, a writer may still touch it; quarantine it"));
    default:
      return WrongEdge(ref, unit->state, UnitState::kFree);
  }
  Retire(ref.index);
  return absl::OkStatus();
}

void PoolCore::Retire(uint32_t index) {
  Unit& unit = units_[index];
  ++unit.generation;
  references_ -= unit.references;
  unit.references = 0;
  if (unit.pinned()) {
    SetState(&unit, UnitState::kDraining);
  } else {
    ToFree(index);
  }
}

void PoolCore::ToFree(uint32_t index) {
  Unit& unit = units_[index];
  SetState(&unit, UnitState::kFree);
  unit.owner = OwnerId();
  unit.attempt = Attempt();
  unit.zeroed = unit.copied = false;
  if (options_.poison) options_.device->Fill(BytesOf(unit.physical), std::byte{0xFF});
  free_.push_back(index);
}

Status PoolCore::AddReference(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != UnitState::kSealed)
    return absl::FailedPreconditionError(absl::StrCat(Name(ref), ": is ",
                                                      std::string(UnitStateName(unit->state)),
                                                      ", only SEALED units are shared"));
  if (unit->references == UINT32_MAX)
    return Reject(Reason::kNoCapacity, absl::StrCat(Name(ref), ": reference count is full"));
  ++unit->references;
  ++references_;
  return absl::OkStatus();
}

Status PoolCore::DropReference(UnitRef ref) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Unit * unit, Resolve(ref));
  if (unit->state != UnitState::kSealed)
    return absl::FailedPreconditionError(absl::StrCat(Name(ref), ": is ",
                                                      std::string(UnitStateName(unit->state)),
                                                      ", only SEALED units have references"));
  if (unit->references == 1) {
    Retire(ref.index);
  } else {
    --unit->references;
    --references_;
  }
  return absl::OkStatus();
}

}  // namespace memory_internal
}  // namespace baton
