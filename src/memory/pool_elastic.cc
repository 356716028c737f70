// How an elastic pool gives places to the border and takes them: see border.h. The pool's own rules
// decide what may move; the border decides what should.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "memory/pool_core.h"

namespace baton {
namespace memory_internal {
namespace {

// Bytes begun at once: a lease asked for meanwhile waits for one batch.
constexpr uint64_t kBatchBytes = uint64_t{4} << 20;

}  // namespace

bool PoolCore::HasFree() const {
  MutexLock lock(&mu_);
  return !free_.empty();
}

bool PoolCore::Owns(uint32_t place) const {
  MutexLock lock(&mu_);
  return owned_[place] != 0;
}

PlaceUse PoolCore::UseOf(uint32_t place) const {
  const Unit& unit = units_[virtual_of_[place]];
  // A FREE unit that is `moving`: something is on its way to this place.
  if (unit.state == UnitState::kFree && !unit.moving)
    return owned_[place] != 0 ? PlaceUse::kFree : PlaceUse::kNotOwned;
  return Movable(unit) ? PlaceUse::kMovable : PlaceUse::kFixed;
}

std::vector<PlaceUse> PoolCore::Survey() const {
  return Survey({0, static_cast<uint32_t>(options_.units)});
}

std::vector<PlaceUse> PoolCore::Survey(PlaceRange range) const {
  MutexLock lock(&mu_);
  std::vector<PlaceUse> uses;
  uses.reserve(range.end - range.begin);
  for (uint32_t place = range.begin; place < range.end; ++place) uses.push_back(UseOf(place));
  return uses;
}

uint32_t PoolCore::FreePlaceCount() const {
  MutexLock lock(&mu_);
  return free_.count();
}

uint32_t PoolCore::LowestNotOwned() const {
  MutexLock lock(&mu_);
  return static_cast<uint32_t>(std::find(owned_.begin(), owned_.end(), 0) - owned_.begin());
}

uint32_t PoolCore::Top() {
  MutexLock lock(&mu_);
  return LowerTop();
}

uint32_t PoolCore::FixedUnits() const {
  MutexLock lock(&mu_);
  return static_cast<uint32_t>(std::count_if(units_.begin(), units_.end(), [&](const Unit& u) {
    return u.state != UnitState::kFree && !Movable(u);
  }));
}

bool PoolCore::Own(uint32_t place) {
  MutexLock lock(&mu_);
  if (owned_[place] != 0) return false;
  owned_[place] = 1;
  const Unit& unit = units_[virtual_of_[place]];
  if (unit.state == UnitState::kFree && !unit.moving) free_.Insert(place);
  return true;
}

Status PoolCore::Vacate(PlaceRange range) {
  {
    // First nothing new may come to lie here, neither a reservation nor something that moves.
    MutexLock lock(&mu_);
    for (uint32_t place = range.begin; place < range.end; ++place) {
      if (owned_[place] == 0) continue;
      owned_[place] = 0;
      if (free_.Contains(place)) free_.Erase(place);
    }
  }
  std::vector<MovePlan> plans;
  do {
    plans.clear();
    Status status;
    {
      MutexLock lock(&mu_);
      status = BeginVacate(range, &plans);
    }
    for (const MovePlan& plan : plans) {  // what was begun is finished, whatever happens
      const Status moved = FinishMove(plan);
      if (status.ok()) status = moved;
    }
    BATON_RETURN_IF_ERROR(status);
  } while (!plans.empty());
  return absl::OkStatus();
}

Status PoolCore::BeginVacate(PlaceRange range, std::vector<MovePlan>* plans) {
  uint64_t bytes = 0;
  for (uint32_t place = range.begin; place < range.end; ++place) {
    const PlaceUse use = UseOf(place);
    if (use == PlaceUse::kNotOwned) continue;
    const uint32_t index = virtual_of_[place];
    const UnitRef ref{options_.pool_id, index, units_[index].generation};
    if (use != PlaceUse::kMovable) return Busy(ref, units_[index], "moved");
    if (free_.empty())
      return Reject(Reason::kNoCapacity, absl::StrCat(Name(ref), ": no free place to move to"));
    plans->push_back(BeginMove(index));
    bytes += stride_;
    if (bytes >= kBatchBytes) break;
  }
  return absl::OkStatus();
}

}  // namespace memory_internal
}  // namespace baton
