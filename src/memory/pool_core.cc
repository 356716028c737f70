// Creation and the life-cycle edges. Leases: pool_lease.cc; copies and moves: pool_move.cc;
// counters, stamps and invariants: pool_inspect.cc.
#include "memory/pool_core.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "memory/border.h"
#include "memory/guard.h"

namespace baton {

std::string_view UnitStateName(UnitState state) {
  constexpr std::string_view kNames[kUnitStates] = {"FREE",    "RESERVED",    "LIVE",
                                                    "LANDING", "LANDED",      "VERIFIED",
                                                    "SEALED",  "QUARANTINED", "DRAINING"};
  return kNames[static_cast<size_t>(state)];
}

namespace {

uint64_t StrideOf(const PoolOptions& o) { return (o.unit_bytes + o.align - 1) / o.align * o.align; }
// At least a cache line, and no disturbance of the unit's alignment.
uint64_t GuardOf(const PoolOptions& o) { return o.guards ? std::max<uint64_t>(o.align, 64) : 0; }

}  // namespace

uint64_t UnitPitch(const PoolOptions& options) { return StrideOf(options) + 2 * GuardOf(options); }

uint64_t PoolBytes(const PoolOptions& options) {
  const uint64_t bytes = UnitPitch(options) * options.units;
  return (bytes + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
}

namespace memory_internal {
namespace {

// How often other threads may snatch the room that was made before Reserve gives up.
constexpr int kTriesMax = 1000;

void Shuffle(std::span<uint32_t> v, SplitMix64* rng) {
  for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[rng->Below(i)]);
}

// virtual -> physical: a seeded shuffle that is never the identity (unless there is one unit).
// Runs of 64 are shuffled, and the units within a run: units given out one after another are then
// near each other in the tables too, and a step's lease of 2,048 cold ones takes a quarter less
// time.
std::vector<uint32_t> Permutation(uint32_t n, uint64_t seed) {
  constexpr uint32_t kRun = 64;
  SplitMix64 rng(seed);
  std::vector<uint32_t> runs(n / kRun);
  std::iota(runs.begin(), runs.end(), 0u);
  Shuffle(runs, &rng);
  std::vector<uint32_t> p;
  p.reserve(n);
  for (uint32_t run : runs)
    for (uint32_t i = 0; i < kRun; ++i) p.push_back(run * kRun + i);
  while (p.size() < n) p.push_back(static_cast<uint32_t>(p.size()));
  for (uint32_t start = 0; start < n; start += kRun)
    Shuffle(std::span(p).subspan(start, std::min(kRun, n - start)), &rng);
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
  if (o.unit_bytes > UINT64_MAX / 2 ||
      __builtin_mul_overflow(UnitPitch(o), uint64_t{o.units}, &total))
    return bad(absl::StrCat(o.units, " units of ", o.unit_bytes, " bytes overflow"));
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<PoolCore>> PoolCore::Create(const PoolOptions& options,
                                                     const char* kind,
                                                     bool compute_reads_sealed) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, kind));
  Placement placement;
  placement.pitch = UnitPitch(options);
  BATON_ASSIGN_OR_RETURN(placement.base, options.arena->Carve(placement.pitch * options.units));
  return std::unique_ptr<PoolCore>(new PoolCore(options, kind, compute_reads_sealed, placement));
}

StatusOr<std::unique_ptr<PoolCore>> PoolCore::CreateAt(const PoolOptions& options,
                                                       const char* kind,
                                                       bool compute_reads_sealed,
                                                       const Placement& placement) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, kind));
  BATON_CHECK(placement.pitch >= UnitPitch(options));
  return std::unique_ptr<PoolCore>(new PoolCore(options, kind, compute_reads_sealed, placement));
}

PoolCore::PoolCore(const PoolOptions& options,
                   const char* kind,
                   bool compute_reads_sealed,
                   const Placement& placement)
    : options_(options),
      kind_(kind),
      compute_reads_sealed_(compute_reads_sealed),
      placement_(placement),
      stride_(StrideOf(options)),
      guard_(GuardOf(options)),
      free_(options.units) {
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
  owned_.assign(options_.units, placement_.owned ? 1 : 0);
  for (uint32_t v = 0; v < options_.units; ++v) {
    units_[v].physical = physical[v];
    virtual_of_[physical[v]] = v;
    if (placement_.owned) free_.Insert(v);
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

uint64_t PoolCore::OffsetOf(uint32_t physical) const {
  const uint64_t start = placement_.descending
                             ? placement_.base - (uint64_t{physical} + 1) * placement_.pitch
                             : placement_.base + uint64_t{physical} * placement_.pitch;
  return start + guard_;
}

MutableByteSpan PoolCore::BytesOf(uint32_t physical) const {
  return {options_.arena->data() + OffsetOf(physical), stride_};
}

void PoolCore::PaintGuards(uint32_t physical) const {
  if (guard_ == 0) return;
  const uint64_t unit = OffsetOf(physical);
  std::byte* arena = options_.arena->data();
  PaintGuard({arena + unit - guard_, guard_}, unit - guard_);
  PaintGuard({arena + unit + stride_, guard_}, unit + stride_);
}

Status PoolCore::CheckGuards(UnitRef ref, uint32_t physical) const {
  if (guard_ == 0) return absl::OkStatus();
  const uint64_t unit = OffsetOf(physical);
  const std::byte* arena = options_.arena->data();
  const std::string name = Name(ref);
  BATON_RETURN_IF_ERROR(CheckGuard({arena + unit - guard_, guard_}, unit - guard_, name, "before"));
  return CheckGuard({arena + unit + stride_, guard_}, unit + stride_, name, "after");
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
  uint32_t place = 0;
  for (int tries = 0;; ++tries) {
    {
      MutexLock lock(&mu_);
      if (TakeLowest(options, &ref, &place)) break;
      if (border_ == nullptr) ++refusals_;
    }
    if (border_ == nullptr || tries == kTriesMax)
      return Reject(Reason::kNoCapacity, absl::StrCat(kind_, " pool ", options_.pool_id, ": all ",
                                                      units_.size(), " units are in use"));
    BATON_RETURN_IF_ERROR(border_->MakeRoom(this));  // another thread may be first to use it
  }
  // Outside the mutex: nobody else has the handle yet, and a RESERVED unit never moves.
  Prepare(BytesOf(place), options.fill);
  return ref;
}

bool PoolCore::TakeLowest(const ReserveOptions& options, UnitRef* ref, uint32_t* place) {
  if (free_.empty()) return false;
  *place = free_.Lowest();
  free_.Erase(*place);
  top_ = std::max(top_, *place + 1);
  const uint32_t index = virtual_of_[*place];
  Unit& unit = units_[index];
  SetState(&unit, UnitState::kReserved);
  unit.zeroed = options.fill == FillMode::kZero;
  unit.copied = false;
  unit.owner = options.owner;
  unit.attempt = options.attempt;
  PaintGuards(*place);
  *ref = {options_.pool_id, index, unit.generation};
  return true;
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
  BATON_RETURN_IF_ERROR(CheckGuards(ref, unit->physical));
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
  const Status guards = CheckGuards(ref, unit->physical);
  Retire(ref.index);
  return guards;
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
  if (owned_[unit.physical] != 0) free_.Insert(unit.physical);
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
  if (unit->references > 1) {
    --unit->references;
    --references_;
    return absl::OkStatus();
  }
  const Status guards = CheckGuards(ref, unit->physical);
  Retire(ref.index);
  return guards;
}

}  // namespace memory_internal
}  // namespace baton
