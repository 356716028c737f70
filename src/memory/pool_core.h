// The life cycle of a unit of memory (a state slot, a KV block), in one place. SlotPool and
// BlockPool (pool.h) are its typed faces; nothing else uses it directly.
//
//  from \ to    RESERVED  LIVE      LANDING  LANDED  VERIFIED  SEALED     QUARANTINED  FREE
//  FREE         Reserve
//  RESERVED               Activate¹ Land                       Seal²                   Free
//  LIVE                   (advance)                            Seal                    Free
//  LANDING                                   Landed                       Quarantine
//  LANDED                                            Verified                          Free
//  VERIFIED               Activate                             Seal                    Free
//  SEALED                                                                              Free
//  QUARANTINED                                                                         ProvenQuiet
//
//  ¹ only if the unit was zero-filled or copied into; ² only if it was copied into (a checkpoint).
//  Every other edge is an error that names from and to. A unit freed while leased is DRAINING: its
//  generation has moved on, so no handle resolves to it, and it becomes FREE with its last lease.
//
// It keeps no clock, does no I/O, and knows nothing of sequences or prefixes.
// Thread rule: thread-safe, one mutex per pool. Bytes are filled, copied and digested outside it.
#ifndef BATON_MEMORY_POOL_CORE_H_
#define BATON_MEMORY_POOL_CORE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/digest.h"
#include "memory/arena.h"
#include "memory/device.h"
#include "memory/free_places.h"
#include "memory/handle.h"

namespace baton {

enum class UnitState : uint8_t {
  kFree,
  kReserved,
  kLive,
  kLanding,
  kLanded,
  kVerified,
  kSealed,
  kQuarantined,
  kDraining,
};
inline constexpr size_t kUnitStates = 9;
// "FREE", ...
std::string_view UnitStateName(UnitState state);

// What a lease is for; each purpose is allowed in certain states only (I1).
enum class LeaseFor : uint8_t {
  kCompute,  // LIVE; a block also SEALED, and is then only read
  kSend,     // SEALED: read by a connector, a tier
  kLand,     // LANDING: written by a connector
  kDigest,   // LIVE, LANDED, VERIFIED, SEALED: read to digest, seal, verify, audit
};
std::string_view LeaseForName(LeaseFor purpose);

// How a reserved unit is prepared. Nothing is ever multiplied by zero: a NaN would survive.
enum class FillMode : uint8_t {
  kZero,      // every byte: what a new sequence reads before it writes
  kGapsOnly,  // only bytes outside `extents`: a destination whose parts are all overwritten and
              // then verified where they landed, or a copy's destination
};

// Content inside a unit; the bytes between extents stay zero and are never digested.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Test builds of a fault's check-off twin set these; nothing else may (invariant I10). Bounds are
// never switched off.
struct PoolChecksOff {
  bool generation = false;  // a stale handle resolves to whatever lives there now (F04)
  bool fill = false;        // Reserve fills nothing (F16)
  bool lease_pin = false;   // Move ignores leases (F15)
  bool any() const { return generation || fill || lease_pin; }
};

struct PoolOptions {
  Arena* arena = nullptr;          // outlives the pool
  const Device* device = nullptr;  // outlives the pool
  uint64_t unit_bytes = 0;         // rounded up to `align`
  uint64_t align = 64;
  uint32_t units = 0;
  uint32_t pool_id = 0;  // unique within the process
  NodeId node;
  Epoch epoch;
  // Virtual ids start as a permutation of physical indices drawn from this seed, in production too,
  // so that code which confuses the two fails at once.
  uint64_t permute_seed = 0x9E3779B97F4A7C15ull;
  // Once this many units are quarantined, Land refuses with kNoCapacity.
  uint32_t quarantine_max = 16;
  // Empty: the whole unit is content.
  std::vector<Extent> extents;
#ifdef NDEBUG
  bool poison = false;
  bool guards = false;
#else
  bool poison = true;  // a unit that becomes FREE is filled with 0xFF, a NaN in every dtype
  bool guards =
      true;  // a canary before and after each unit, looked at by Seal, CopyInto, Move, Free
#endif
  PoolChecksOff checks_off;
};

struct ReserveOptions {
  OwnerId owner{};
  Attempt attempt{};
  FillMode fill = FillMode::kZero;
};

// Bytes of one unit with its padding and guard bands, and what a pool of `units` of them takes in
// its arena. `options` must be valid.
uint64_t UnitPitch(const PoolOptions& options);
uint64_t PoolBytes(const PoolOptions& options);

// A snapshot for metrics. used = units - free.
struct PoolStats {
  uint32_t units = 0;      // places the pool has now: all of them, or its side of a movable border
  uint32_t units_max = 0;  // places it could have
  uint32_t free = 0;
  uint32_t used = 0;
  uint32_t leased = 0;  // units with at least one lease
  uint32_t quarantined = 0;
  uint64_t leases = 0;                           // outstanding
  uint64_t references = 0;                       // holders of SEALED units
  uint64_t moves = 0;                            // since start
  uint64_t refusals = 0;                         // Reserve calls that got kNoCapacity, since start
  uint64_t unit_bytes = 0;                       // stride
  uint64_t unit_pitch = 0;                       // with guard bands
  std::array<uint32_t, kUnitStates> by_state{};  // indexed by UnitState
};

namespace memory_internal {

struct UnitRef {
  uint32_t pool = 0;
  uint32_t index = 0;
  uint64_t generation = 0;
};

// The same for one of many: a step pins every block of every sequence.
struct SlimPin {
  uint32_t index = 0;
  bool writer = false;
};

// Where the places of a pool lie in the arena, and whether they are the pool's from the start
// (elastic pools get and give them one by one, see border.h).
struct Placement {
  uint64_t base = 0;   // place 0 starts here; descending: ends here
  uint64_t pitch = 0;  // from place to place, at least UnitPitch
  bool descending = false;
  bool owned = true;
};

// Places [begin, end).
struct PlaceRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const PlaceRange&, const PlaceRange&) = default;
};

// What can be said of a place to whoever wants it.
enum class PlaceUse : uint8_t {
  kNotOwned,  // and no unit of this pool there
  kFree,
  kMovable,
  kFixed,  // leased, being moved, or in a state that never moves
};

class Border;

// A pinned unit: its bytes stay where they are until Unpin.
struct Pin {
  uint32_t index = 0;
  MutableByteSpan bytes;
  uint64_t offset = 0;  // from the start of the arena
  bool writer = false;
  PlacementStamp stamp;
};

class PoolCore {
 public:
  static StatusOr<std::unique_ptr<PoolCore>> Create(const PoolOptions& options,
                                                    const char* kind,
                                                    bool compute_reads_sealed);
  // A pool over a range that somebody else has set aside.
  static StatusOr<std::unique_ptr<PoolCore>> CreateAt(const PoolOptions& options,
                                                      const char* kind,
                                                      bool compute_reads_sealed,
                                                      const Placement& placement);
  ~PoolCore();

  StatusOr<UnitRef> Reserve(const ReserveOptions& options) BATON_EXCLUDES(mu_);
  Status Activate(UnitRef ref) BATON_EXCLUDES(mu_);
  Status Land(UnitRef ref, Attempt attempt) BATON_EXCLUDES(mu_);
  Status Landed(UnitRef ref) BATON_EXCLUDES(mu_);
  Status Verified(UnitRef ref) BATON_EXCLUDES(mu_);
  Status Seal(UnitRef ref) BATON_EXCLUDES(mu_);
  Status Free(UnitRef ref) BATON_EXCLUDES(mu_);
  Status Quarantine(UnitRef ref) BATON_EXCLUDES(mu_);
  Status ProvenQuiet(UnitRef ref) BATON_EXCLUDES(mu_);
  Status AddReference(UnitRef ref) BATON_EXCLUDES(mu_);
  Status DropReference(UnitRef ref) BATON_EXCLUDES(mu_);
  Status CopyInto(UnitRef src, UnitRef dst) BATON_EXCLUDES(mu_);
  Status Move(UnitRef ref) BATON_EXCLUDES(mu_);
  StatusOr<bool> CompactOne() BATON_EXCLUDES(mu_);

  StatusOr<UnitState> StateOf(UnitRef ref) const BATON_EXCLUDES(mu_);
  StatusOr<uint32_t> ReferencesOf(UnitRef ref) const BATON_EXCLUDES(mu_);
  StatusOr<PlacementStamp> StampOf(UnitRef ref) const BATON_EXCLUDES(mu_);
  Status CheckStamp(const PlacementStamp& stamp) const BATON_EXCLUDES(mu_);
  PoolStats Stats() const BATON_EXCLUDES(mu_);
  Status CheckInvariants() const BATON_EXCLUDES(mu_);

  Status PinOne(UnitRef ref, LeaseFor purpose, Pin* out) BATON_EXCLUDES(mu_);
  void UnpinAll(std::span<const Pin> pins) BATON_EXCLUDES(mu_);
  // All or none, in the order of `refs`; the outputs must be empty.
  Status PinMany(std::span<const UnitRef> refs,
                 LeaseFor purpose,
                 std::vector<SlimPin>* pins,
                 std::vector<std::byte*>* pointers) BATON_EXCLUDES(mu_);
  void UnpinMany(std::span<const SlimPin> pins) BATON_EXCLUDES(mu_);

  // What the border does with the places of an elastic pool (pool_elastic.cc).
  // The border is asked for room when no place is free; it outlives the pool's last Reserve.
  void SetBorder(Border* border) { border_ = border; }
  bool HasFree() const BATON_EXCLUDES(mu_);
  bool Owns(uint32_t place) const BATON_EXCLUDES(mu_);
  // By place.
  std::vector<PlaceUse> Survey() const BATON_EXCLUDES(mu_);
  std::vector<PlaceUse> Survey(PlaceRange range) const BATON_EXCLUDES(mu_);
  // As many as Survey() would call kFree.
  uint32_t FreePlaceCount() const BATON_EXCLUDES(mu_);
  // The number of places if all are owned.
  uint32_t LowestNotOwned() const BATON_EXCLUDES(mu_);
  // No unit in use, and none on its way, lies on this place or above.
  uint32_t Top() BATON_EXCLUDES(mu_);
  uint32_t FixedUnits() const BATON_EXCLUDES(mu_);
  // Gives the places of `range` up, moving what lies there to the lowest free places outside. On
  // an error (something there is or has become fixed, nowhere to go, a copy that failed) some of
  // the range is given up and some not: Own puts that right.
  Status Vacate(PlaceRange range) BATON_EXCLUDES(mu_);
  // Takes `place`. False if the pool has it already.
  bool Own(uint32_t place) BATON_EXCLUDES(mu_);

  uint64_t stride() const { return stride_; }
  const char* kind() const { return kind_; }
  const PoolOptions& options() const { return options_; }

 private:
  struct Unit {
    uint64_t generation = 1;
    uint32_t physical = 0;
    uint32_t leases = 0;      // all pins, writers included
    uint32_t writers = 0;     // pins that may write
    uint32_t references = 0;  // > 0 exactly if SEALED
    UnitState state = UnitState::kFree;
    bool zeroed = false;  // RESERVED: every byte was filled
    bool copied = false;  // RESERVED: CopyInto has completed
    bool moving = false;  // bytes are being copied outside the mutex: leases wait, free drains
    OwnerId owner;
    Attempt attempt;

    bool pinned() const { return leases != 0 || moving; }
  };
  // A move between planning and flipping the table; both units are marked `moving`.
  struct MovePlan {
    uint32_t index = 0;  // the unit that moves
    uint32_t other = 0;  // the FREE unit it swaps places with
    uint32_t from = 0;   // physical
    uint32_t to = 0;     // physical
    uint64_t generation = 0;
  };

  PoolCore(const PoolOptions& options,
           const char* kind,
           bool compute_reads_sealed,
           const Placement& placement);
  std::string Name(UnitRef ref) const;
  uint64_t OffsetOf(uint32_t physical) const;  // of the unit's bytes, in the arena
  MutableByteSpan BytesOf(uint32_t physical) const;
  void PaintGuards(uint32_t physical) const;
  Status CheckGuards(UnitRef ref, uint32_t physical) const;
  void Prepare(MutableByteSpan bytes, FillMode fill) const;
  Status CopyVerified(MutableByteSpan dst, ByteSpan src, const std::string& what) const;
  bool LeaseAllowed(UnitState state, LeaseFor purpose) const;

  // Ok if `ref` names a living unit of this pool, else kStaleHandle.
  Status CheckRef(UnitRef ref) const BATON_REQUIRES(mu_);
  // The living unit that `ref` names, or kStaleHandle.
  StatusOr<Unit*> Resolve(UnitRef ref) BATON_REQUIRES(mu_);
  StatusOr<const Unit*> Resolve(UnitRef ref) const BATON_REQUIRES(mu_);
  // The same, once no copy of its bytes is under way.
  StatusOr<Unit*> ResolveStill(UnitRef ref) BATON_REQUIRES(mu_);
  Status WrongEdge(UnitRef ref, UnitState from, UnitState to) const;
  Status Busy(UnitRef ref, const Unit& unit, std::string_view action) const;
  void SetState(Unit* unit, UnitState to) BATON_REQUIRES(mu_);
  // FREE -> RESERVED for the unit on the lowest free place; false if there is none.
  bool TakeLowest(const ReserveOptions& options, UnitRef* ref, uint32_t* place) BATON_REQUIRES(mu_);
  Status Transition(UnitRef ref, UnitState from, UnitState to) BATON_EXCLUDES(mu_);
  // Ends the unit's life: bumps the generation, then FREE or, while pinned, DRAINING.
  void Retire(uint32_t index) BATON_REQUIRES(mu_);
  void ToFree(uint32_t index) BATON_REQUIRES(mu_);
  // Ok once every unit of `refs` may be pinned now: nothing can come between this and the pins.
  Status CheckPins(std::span<const UnitRef> refs, LeaseFor purpose) BATON_REQUIRES(mu_);
  // Fetches the unit a few turns ahead: a step's units are cold, since it has read all weights
  // since it last touched them.
  template <class T>
  void Prefetch(std::span<const T> refs, size_t i) const BATON_REQUIRES(mu_) {
    constexpr size_t kAhead = 12;
    if (i + kAhead < refs.size() && refs[i + kAhead].index < units_.size())
      __builtin_prefetch(&units_[refs[i + kAhead].index], 1);
  }
  // Adds the pin; whether it may write.
  bool PinUnit(uint32_t index, LeaseFor purpose) BATON_REQUIRES(mu_);
  void AddPin(Unit* unit, bool writer) BATON_REQUIRES(mu_);
  void DropPin(uint32_t index, bool writer) BATON_REQUIRES(mu_);
  PlacementStamp StampOfUnit(uint32_t index, const Unit& unit) const;
  bool Movable(const Unit& unit) const;
  // To the lowest free place; there must be one.
  MovePlan BeginMove(uint32_t index) BATON_REQUIRES(mu_);
  Status FinishMove(const MovePlan& plan) BATON_EXCLUDES(mu_);
  uint32_t LowerTop() BATON_REQUIRES(mu_);
  PlaceUse UseOf(uint32_t place) const BATON_REQUIRES(mu_);
  // Begins moves away from `range`, a batch of them; none left to begin: no plans.
  Status BeginVacate(PlaceRange range, std::vector<MovePlan>* plans) BATON_REQUIRES(mu_);
  Status CheckTables() const BATON_REQUIRES(mu_);
  Status CheckUnit(uint32_t index) const BATON_REQUIRES(mu_);

  const PoolOptions options_;
  const char* const kind_;
  const bool compute_reads_sealed_;
  const Placement placement_;
  const uint64_t stride_;  // bytes of a unit, padded
  const uint64_t guard_;   // bytes of each of its two guard bands
  const Digester digester_;
  Border* border_ = nullptr;
  std::vector<Extent> gaps_;

  mutable Mutex mu_;
  CondVar moved_;
  std::vector<Unit> units_ BATON_GUARDED_BY(mu_);           // by virtual id
  std::vector<uint32_t> virtual_of_ BATON_GUARDED_BY(mu_);  // by physical index
  // By physical index: 1 if the place is this pool's. A unit in use on a place that is not is being
  // moved away from it.
  std::vector<uint8_t> owned_ BATON_GUARDED_BY(mu_);
  FreePlaces free_ BATON_GUARDED_BY(mu_);            // owned, unit FREE, nothing being moved there
  uint32_t move_targets_ BATON_GUARDED_BY(mu_) = 0;  // owned places something is being moved to
  // No unit in use lies on this place or above; LowerTop makes it exact. Packing and the border ask
  // every step, and a pool may have millions of places.
  uint32_t top_ BATON_GUARDED_BY(mu_) = 0;
  std::array<uint32_t, kUnitStates> by_state_ BATON_GUARDED_BY(mu_){};
  uint64_t leases_ BATON_GUARDED_BY(mu_) = 0;
  uint32_t leased_units_ BATON_GUARDED_BY(mu_) = 0;
  uint64_t references_ BATON_GUARDED_BY(mu_) = 0;
  uint64_t moves_ BATON_GUARDED_BY(mu_) = 0;
  uint64_t refusals_ BATON_GUARDED_BY(mu_) = 0;
};

}  // namespace memory_internal
}  // namespace baton

#endif  // BATON_MEMORY_POOL_CORE_H_
