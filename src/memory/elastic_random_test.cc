// Thousands of random actions on slots and blocks over one budget, against a model that a reader
// can check: I2 (a stale handle never resolves), I3 (what is leased or in a transfer keeps its
// place, what is neither makes way), I8 (nobody else's bytes ever change). Every invariant is
// looked at after each action.
#include <algorithm>
#include <string>
#include <vector>

#include "memory/elastic_test_util.h"

namespace baton {
namespace {

using memory_internal::PlaceUse;
using S = UnitState;

// Actions on the units of one pool, and what is known of them.
template <class Kind>
class Side {
 public:
  using Handle = UnitHandle<Kind>;
  struct Unit {
    Handle handle;
    S state;
    uint64_t tag;  // pattern its bytes hold, once there is one
    uint32_t references = 1;
    bool copied = false;
  };
  struct Held {
    UnitLease<Kind> lease;
    uint64_t tag;
    Handle handle;
    bool writer;
    uint64_t offset;
  };

  Side(UnitPool<Kind>* pool, SplitMix64* rng, uint64_t* tags)
      : pool_(pool), rng_(*rng), next_tag_(*tags) {}

  Unit* Pick() { return live.empty() ? nullptr : &live[rng_.Below(live.size())]; }
  bool LeasedNow(Handle h) const {
    return std::any_of(held.begin(), held.end(), [&](const Held& l) { return l.handle == h; });
  }
  bool WriterOn(Handle h) const {
    return std::any_of(held.begin(), held.end(),
                       [&](const Held& l) { return l.handle == h && l.writer; });
  }
  bool Fixed(const Unit& u) const {
    return (u.state != S::kLive && u.state != S::kSealed) || LeasedNow(u.handle);
  }
  // Nothing of this side stands in anybody's way; freed units under a lease would.
  bool NothingFixed() const {
    return held.empty() &&
           std::none_of(live.begin(), live.end(), [&](const Unit& u) { return Fixed(u); });
  }
  void Erase(Unit* u) {
    dead.push_back(u->handle);
    if (dead.size() > 64) dead.erase(dead.begin());
    *u = live.back();
    live.pop_back();
  }
  void Expect(const Status& s, bool ok, const char* what) {
    ASSERT_EQ(s.ok(), ok) << what << ": " << s;
  }

  void Start(Unit* u) {
    u->state = S::kLive;
    const auto lease = Must(pool_->Acquire(u->handle, LeaseFor::kCompute));
    if (u->copied || u->tag != 0) {
      ASSERT_TRUE(HasPattern(lease.bytes(), u->tag));
    } else {
      ASSERT_TRUE(AllBytes(lease.bytes(), std::byte{0}));  // a new sequence starts from zero
      u->tag = next_tag_++;
      WritePattern(lease.bytes(), u->tag);
    }
  }
  void Activate() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kReserved || u->state == S::kVerified;
    Expect(pool_->Activate(u->handle), ok, "Activate");
    if (ok) Start(u);
  }
  void Advance() {
    Unit* u = Pick();
    if (u == nullptr || u->state != S::kLive || LeasedNow(u->handle)) return;
    const auto lease = Must(pool_->Acquire(u->handle, LeaseFor::kCompute));
    ASSERT_TRUE(HasPattern(lease.bytes(), u->tag));
    u->tag = next_tag_++;
    WritePattern(lease.bytes(), u->tag);
  }
  // One edge of a transfer, whichever comes next; sometimes the other way out.
  void Transfer() {
    Unit* u = Pick();
    if (u == nullptr) return;
    if (u->state == S::kReserved) {
      Expect(pool_->Land(u->handle, Attempt(1)), true, "Land");
      u->state = S::kLanding;
      u->copied = false;
      u->tag = next_tag_++;
      WritePattern(Must(pool_->Acquire(u->handle, LeaseFor::kLand)).bytes(), u->tag);
    } else if (u->state == S::kLanding && rng_.Below(3) == 0) {
      Expect(pool_->Quarantine(u->handle), true, "Quarantine");
      u->state = S::kQuarantined;
    } else if (u->state == S::kLanding) {
      const bool ok = !WriterOn(u->handle);
      Expect(pool_->Landed(u->handle), ok, "Landed");
      if (ok) u->state = S::kLanded;
    } else if (u->state == S::kLanded) {
      Expect(pool_->Verified(u->handle), true, "Verified");
      u->state = S::kVerified;
    } else if (u->state == S::kQuarantined) {
      const bool ok = !LeasedNow(u->handle);
      Expect(pool_->ProvenQuiet(u->handle), ok, "ProvenQuiet");
      if (ok) Erase(u);
    }
  }
  void Seal() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = (u->state == S::kLive && !WriterOn(u->handle)) || u->state == S::kVerified ||
                    (u->state == S::kReserved && u->copied);
    Expect(pool_->Seal(u->handle), ok, "Seal");
    if (ok) u->state = S::kSealed;
  }
  void Free() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state != S::kLanding && u->state != S::kQuarantined && u->references == 1;
    Expect(pool_->Free(u->handle), ok, "Free");
    if (ok) Erase(u);
  }
  void Share() {
    if constexpr (Kind::kComputeReadsSealed) {
      Unit* u = Pick();
      if (u == nullptr) return;
      const bool ok = u->state == S::kSealed;
      if (rng_.Below(2) == 0) {
        Expect(pool_->AddReference(u->handle), ok, "AddReference");
        if (ok) ++u->references;
      } else {
        Expect(pool_->DropReference(u->handle), ok, "DropReference");
        if (ok && --u->references == 0) Erase(u);
      }
    }
  }
  void Copy() {
    Unit* src = Pick();
    Unit* dst = Pick();
    if (src == nullptr) return;
    const bool ok = (src->state == S::kLive || src->state == S::kSealed) &&
                    dst->state == S::kReserved && !WriterOn(src->handle);
    Expect(pool_->CopyInto(src->handle, dst->handle), ok, "CopyInto");
    if (!ok) return;
    dst->copied = true;
    dst->tag = src->tag;
  }
  void Move() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = !Fixed(*u) && pool_->Stats().free > 0;
    Expect(pool_->Move(u->handle), ok, "Move");
  }
  void Lease() {
    Unit* u = Pick();
    if (u == nullptr || held.size() > 6) return;
    const auto purpose = static_cast<LeaseFor>(rng_.Below(4));
    auto lease = pool_->Acquire(u->handle, purpose);
    if (!lease.ok()) return;
    const bool writer =
        purpose == LeaseFor::kLand || (purpose == LeaseFor::kCompute && u->state == S::kLive);
    const uint64_t offset = lease->arena_offset();
    held.push_back({std::move(*lease), u->tag, u->handle, writer, offset});
  }
  void Release() {
    if (held.empty()) return;
    std::swap(held[rng_.Below(held.size())], held.back());
    // I3: whatever happened since, the bytes under the lease are the ones it was given for.
    ASSERT_TRUE(HasPattern(held.back().lease.bytes(), held.back().tag));
    if (pool_->StateOf(held.back().handle).ok() &&
        Must(pool_->StateOf(held.back().handle)) != S::kQuarantined &&
        Must(pool_->StateOf(held.back().handle)) != S::kLanding) {
      ASSERT_EQ(Must(pool_->Acquire(held.back().handle, LeaseFor::kDigest)).arena_offset(),
                held.back().offset);
    }
    held.pop_back();
  }
  void Inspect() {
    for (const Handle& h : dead)  // I2
      ASSERT_EQ(ReasonOf(pool_->StateOf(h).status()), Reason::kStaleHandle);
    for (const Unit& u : live) {
      ASSERT_EQ(Must(pool_->StateOf(u.handle)), u.state);
      if (u.state == S::kReserved || u.state == S::kLanding || u.state == S::kQuarantined) continue;
      const auto lease = Must(pool_->Acquire(u.handle, LeaseFor::kDigest));
      ASSERT_TRUE(HasPattern(lease.bytes(), u.tag)) << u.handle;
    }
  }
  // Gives everything back.
  void Finish() {
    Inspect();
    held.clear();
    while (!live.empty()) {
      Unit* u = &live.back();
      if (u->state == S::kLanding) {
        ASSERT_TRUE(pool_->Quarantine(u->handle).ok());
        u->state = S::kQuarantined;
      }
      if (u->state == S::kQuarantined) {
        ASSERT_TRUE(pool_->ProvenQuiet(u->handle).ok());
      } else {
        if constexpr (Kind::kComputeReadsSealed) {
          for (; u->references > 1; --u->references) {
            ASSERT_TRUE(pool_->DropReference(u->handle).ok());
          }
        }
        ASSERT_TRUE(pool_->Free(u->handle).ok());
      }
      Erase(u);
    }
    ASSERT_EQ(pool_->Stats().used, 0u);
  }

  std::vector<Unit> live;
  std::vector<Handle> dead;
  std::vector<Held> held;

 private:
  UnitPool<Kind>* pool_;
  SplitMix64& rng_;
  uint64_t& next_tag_;
};

class Fuzz {
 public:
  Fuzz(uint64_t seed, const ElasticSpec& spec)
      : rng_(seed), t_(spec), slots_(t_.memory->slots(), &rng_, &next_tag_) {
    for (size_t g = 0; g < t_.memory->groups(); ++g)
      blocks_.emplace_back(t_.memory->blocks(g), &rng_, &next_tag_);
  }

  void Step() {
    // Phases of growth and of shrinking, of more slots and of more blocks.
    if (rng_.Below(200) == 0) grow_ = rng_.Below(80);
    if (rng_.Below(200) == 0) slot_share_ = rng_.Below(100);
    const bool slot = rng_.Below(100) < slot_share_;
    const size_t g = rng_.Below(blocks_.size());
    if (rng_.Below(100) < grow_ / 2) {
      slot ? ReserveSlot() : ReserveBlock(g);
    } else if (rng_.Below(40) == 0) {
      Compact();
    } else if (slot) {
      Act(slots_);
    } else {
      Act(blocks_[g]);
    }
    t_.Check();
    const PoolStats s = t_.memory->slots()->Stats();
    ASSERT_EQ(s.used, slots_.live.size() + s.by_state[static_cast<size_t>(S::kDraining)]);
    ASSERT_LE(t_.memory->Stats().bytes_used, t_.budget);
  }

  void Finish() {
    slots_.Finish();
    for (auto& side : blocks_) side.Finish();
    ASSERT_EQ(t_.memory->Stats().bytes_used, 0u);
    t_.Check();
    // And either side can have it all again.
    uint32_t n = 0;
    while (t_.memory->slots()->Reserve({}).ok()) ++n;
    ASSERT_EQ(n, t_.budget / t_.slot_pitch);
    ASSERT_GT(refused_, 0);
    ASSERT_GT(t_.memory->Stats().bytes_moved, 0u);
  }

 private:
  template <class Kind>
  void Act(Side<Kind>& side) {
    using Action = void (Side<Kind>::*)();
    static constexpr Action kActions[] = {
        &Side<Kind>::Activate, &Side<Kind>::Activate, &Side<Kind>::Advance, &Side<Kind>::Transfer,
        &Side<Kind>::Transfer, &Side<Kind>::Transfer, &Side<Kind>::Seal,    &Side<Kind>::Free,
        &Side<Kind>::Share,    &Side<Kind>::Share,    &Side<Kind>::Copy,    &Side<Kind>::Copy,
        &Side<Kind>::Move,     &Side<Kind>::Lease,    &Side<Kind>::Release, &Side<Kind>::Release,
        &Side<Kind>::Free,     &Side<Kind>::Inspect};
    (side.*kActions[rng_.Below(std::size(kActions))])();
  }

  bool NothingFixed() const {
    return slots_.NothingFixed() && std::all_of(blocks_.begin(), blocks_.end(),
                                                [](const auto& b) { return b.NothingFixed(); });
  }
  // Bytes that lie between slots standing apart from the others cannot be used by whole rows.
  uint64_t LostToIslands() const {
    const auto tiles = t_.memory->SurveySlots();
    uint64_t islands = 0;
    for (size_t i = 1; i < tiles.size(); ++i)
      islands += tiles[i] != PlaceUse::kNotOwned && tiles[i - 1] == PlaceUse::kNotOwned;
    return islands * 2 * t_.row_pitch;
  }

  void ReserveSlot() {
    const bool fits = t_.SlotFits();
    auto h = t_.memory->slots()->Reserve({});
    if (h.ok()) {
      ASSERT_TRUE(fits);
      slots_.live.push_back({*h, S::kReserved, 0});
      return;
    }
    ++refused_;
    ASSERT_EQ(ReasonOf(h.status()), Reason::kNoCapacity);
    if (NothingFixed()) {
      ASSERT_TRUE(!fits || LostToIslands() > 0) << h.status();
    }
    ASSERT_FALSE(SomeTileCouldBeVacated()) << h.status();
  }
  // Byte by byte: a tile without a fixed unit, whose other units have as many free places
  // elsewhere.
  bool SomeTileCouldBeVacated() const {
    const auto tiles = t_.memory->SurveySlots();
    for (size_t tile = 0; tile < tiles.size(); ++tile) {
      if (tiles[tile] == PlaceUse::kFree) return true;
      if (tiles[tile] != PlaceUse::kNotOwned) continue;
      const uint64_t end = t_.budget - tile * t_.slot_pitch;
      bool possible = true;
      for (size_t g = 0; g < blocks_.size(); ++g) {
        const auto rows = t_.memory->SurveyBlocks(g);
        int64_t spare = 0;
        for (size_t r = 0; r < rows.size(); ++r) {
          const bool under = r * t_.row_pitch < end && (r + 1) * t_.row_pitch > end - t_.slot_pitch;
          if (under && rows[r] == PlaceUse::kFixed) possible = false;
          if (under && rows[r] == PlaceUse::kMovable) --spare;
          if (!under && rows[r] == PlaceUse::kFree) ++spare;
        }
        possible &= spare >= 0;
      }
      if (possible) return true;
    }
    return false;
  }

  void ReserveBlock(size_t g) {
    const bool fits = t_.BlockFits(g);
    auto h = t_.memory->blocks(g)->Reserve({});
    if (h.ok()) {
      ASSERT_TRUE(fits);
      blocks_[g].live.push_back({*h, S::kReserved, 0});
      return;
    }
    ++refused_;
    ASSERT_EQ(ReasonOf(h.status()), Reason::kNoCapacity);
    if (NothingFixed()) {
      ASSERT_TRUE(!fits || LostToIslands() > 0) << h.status();
    }
    ASSERT_FALSE(SomeRowCouldBeWon(g)) << h.status();
  }
  bool SomeRowCouldBeWon(size_t g) const {
    const auto rows = t_.memory->SurveyBlocks(g);
    const auto tiles = t_.memory->SurveySlots();
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r] == PlaceUse::kFree) return true;
      if (rows[r] != PlaceUse::kNotOwned) continue;
      bool possible = true;
      int64_t spare = 0;
      for (size_t tile = 0; tile < tiles.size(); ++tile) {
        const uint64_t end = t_.budget - tile * t_.slot_pitch;
        const bool over = r * t_.row_pitch < end && (r + 1) * t_.row_pitch > end - t_.slot_pitch;
        if (over && tiles[tile] == PlaceUse::kFixed) possible = false;
        if (over && tiles[tile] == PlaceUse::kMovable) --spare;
        if (!over && tiles[tile] == PlaceUse::kFree) ++spare;
      }
      if (possible && spare >= 0) return true;
    }
    return false;
  }

  void Compact() {
    const uint64_t max = rng_.Below(20000);
    const CompactResult r = Must(t_.memory->Compact(max));
    // A unit is moved whole, and an island takes what lay under its new tile along.
    ASSERT_LE(r.bytes_moved, max + 4 * t_.slot_pitch + 4 * t_.row_pitch);
  }

  SplitMix64 rng_;
  uint64_t next_tag_ = 1;
  TestElastic t_;
  Side<SlotKind> slots_;
  std::vector<Side<BlockKind>> blocks_;
  uint64_t grow_ = 70;
  uint64_t slot_share_ = 40;
  int refused_ = 0;
};

class ElasticRandomI2I3I8 : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ElasticRandomI2I3I8, ActionsKeepEveryInvariantAndWhatFitsIsGiven) {
  const ElasticSpec kSpecs[] = {
      {.slot_bytes = 4096, .block_bytes = {640}},
      {.slot_bytes = 2048, .block_bytes = {512}, .guards = false},  // even grids
      {.slot_bytes = 256, .block_bytes = {1024}, .bytes = 6 * 4096},
      {.slot_bytes = 1500, .block_bytes = {200, 900}, .bytes = 10 * 4096},
      {.slot_bytes = 12000, .block_bytes = {64}, .bytes = 10 * 4096, .guards = false},
      {.slot_bytes = 700, .block_bytes = {700, 64, 300}, .bytes = 8 * 4096},
  };
  ElasticSpec spec = kSpecs[GetParam() % std::size(kSpecs)];
  spec.seed = GetParam();
  Fuzz fuzz(GetParam(), spec);
  for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) fuzz.Step();
  if (!HasFatalFailure()) fuzz.Finish();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ElasticRandomI2I3I8, ::testing::Range<uint64_t>(1, 25));

}  // namespace
}  // namespace baton
