// Thousands of random actions against a model that a reader can check, with every invariant
// looked at after each: I2 (a stale handle never resolves), I3 (a leased unit keeps its place and
// its bytes), I8 (nobody else's bytes ever change).
#include <algorithm>
#include <string>
#include <vector>

#include "memory/pool_test_util.h"

namespace baton {
namespace {

using S = UnitState;

struct Action {
  const char* name;
  uint64_t weight;
  void (*run)(class Fuzz*);
};

class Fuzz {
 public:
  Fuzz(uint64_t seed, uint32_t units) : rng_(seed), units_(units), p_(units, Options(seed)) {}

  void Step();
  void Finish();

  struct Unit {
    BlockHandle handle;
    S state;
    uint64_t tag;  // pattern its bytes hold, once there is one
    uint32_t references = 1;
    bool copied = false;
  };
  struct Held {
    BlockLease lease;
    uint64_t tag;
    BlockHandle handle;
    bool writer;
  };

  static PoolOptions Options(uint64_t seed) {
    PoolOptions options;
    options.permute_seed = seed;
    options.quarantine_max = 3;
    return options;
  }
  Unit* Pick() { return live_.empty() ? nullptr : &live_[rng_.Below(live_.size())]; }
  uint32_t LeasesOn(BlockHandle h) const {
    return static_cast<uint32_t>(
        std::count_if(held_.begin(), held_.end(), [&](const Held& l) { return l.handle == h; }));
  }
  bool WriterOn(BlockHandle h) const {
    return std::any_of(held_.begin(), held_.end(),
                       [&](const Held& l) { return l.handle == h && l.writer; });
  }
  void Erase(Unit* u) {
    dead_.push_back(u->handle);
    if (dead_.size() > 64) dead_.erase(dead_.begin());
    *u = live_.back();
    live_.pop_back();
  }
  void Expect(const Status& s, bool ok, const char* what) {
    ASSERT_EQ(s.ok(), ok) << what << ": " << s;
  }

  void Reserve() {
    auto h = p_->Reserve({.owner = OwnerId(next_tag_)});
    const bool room = p_->Stats().free > 0 || h.ok();
    ASSERT_EQ(h.ok(), room);
    if (h.ok()) live_.push_back({*h, S::kReserved, 0});
  }
  void Activate() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kReserved || u->state == S::kVerified;
    Expect(p_->Activate(u->handle), ok, "Activate");
    if (!ok) return;
    const bool fresh = u->state == S::kReserved && !u->copied;
    u->state = S::kLive;
    BlockLease lease = Must(p_->Acquire(u->handle, LeaseFor::kCompute));
    if (fresh) {
      ASSERT_TRUE(AllBytes(lease.bytes(), std::byte{0}));  // a new sequence starts from zero
      u->tag = next_tag_++;
      WritePattern(lease.bytes(), u->tag);
    } else {
      ASSERT_TRUE(HasPattern(lease.bytes(), u->tag));
    }
  }
  void Advance() {
    Unit* u = Pick();
    if (u == nullptr || u->state != S::kLive || LeasesOn(u->handle) != 0) return;
    BlockLease lease = Must(p_->Acquire(u->handle, LeaseFor::kCompute));
    ASSERT_TRUE(HasPattern(lease.bytes(), u->tag));
    u->tag = next_tag_++;
    WritePattern(lease.bytes(), u->tag);
  }
  void Land() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kReserved && p_->Stats().quarantined < 3;
    Expect(p_->Land(u->handle, Attempt(1)), ok, "Land");
    if (!ok) return;
    u->state = S::kLanding;
    u->tag = next_tag_++;
    WritePattern(Must(p_->Acquire(u->handle, LeaseFor::kLand)).bytes(), u->tag);
  }
  void Landed() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kLanding && !WriterOn(u->handle);
    Expect(p_->Landed(u->handle), ok, "Landed");
    if (ok) u->state = S::kLanded;
  }
  void Verified() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kLanded;
    Expect(p_->Verified(u->handle), ok, "Verified");
    if (ok) u->state = S::kVerified;
  }
  void Seal() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = (u->state == S::kLive && !WriterOn(u->handle)) || u->state == S::kVerified ||
                    (u->state == S::kReserved && u->copied);
    Expect(p_->Seal(u->handle), ok, "Seal");
    if (ok) u->state = S::kSealed;
  }
  void Free() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state != S::kLanding && u->state != S::kQuarantined &&
                    !(u->state == S::kSealed && u->references > 1);
    Expect(p_->Free(u->handle), ok, "Free");
    if (ok) Erase(u);
  }
  void Quarantine() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kLanding;
    Expect(p_->Quarantine(u->handle), ok, "Quarantine");
    if (ok) u->state = S::kQuarantined;
  }
  void ProvenQuiet() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = u->state == S::kQuarantined && LeasesOn(u->handle) == 0;
    Expect(p_->ProvenQuiet(u->handle), ok, "ProvenQuiet");
    if (ok) Erase(u);
  }
  void AddReference() {
    Unit* u = Pick();
    if (u == nullptr) return;
    Expect(p_->AddReference(u->handle), u->state == S::kSealed, "AddReference");
    if (u->state == S::kSealed) ++u->references;
  }
  void DropReference() {
    Unit* u = Pick();
    if (u == nullptr) return;
    Expect(p_->DropReference(u->handle), u->state == S::kSealed, "DropReference");
    if (u->state == S::kSealed && --u->references == 0) Erase(u);
  }
  void Copy() {
    Unit* src = Pick();
    Unit* dst = Pick();
    if (src == nullptr) return;
    const bool ok = (src->state == S::kLive || src->state == S::kSealed) &&
                    dst->state == S::kReserved && !WriterOn(src->handle);
    Expect(p_->CopyInto(src->handle, dst->handle), ok, "CopyInto");
    if (!ok) return;
    dst->copied = true;
    dst->tag = src->tag;
  }
  void Move() {
    Unit* u = Pick();
    if (u == nullptr) return;
    const bool ok = (u->state == S::kLive || u->state == S::kSealed) && LeasesOn(u->handle) == 0 &&
                    p_->Stats().free > 0;
    Expect(p_->Move(u->handle), ok, "Move");
  }
  void Compact() { ASSERT_TRUE(p_->CompactOne().ok()); }
  void Lease() {
    Unit* u = Pick();
    if (u == nullptr || held_.size() > 40) return;
    const auto purpose = static_cast<LeaseFor>(rng_.Below(4));
    auto lease = p_->Acquire(u->handle, purpose);
    if (!lease.ok()) return;
    const bool writer =
        purpose == LeaseFor::kLand || (purpose == LeaseFor::kCompute && u->state == S::kLive);
    held_.push_back({std::move(*lease), u->tag, u->handle, writer});
  }
  void Release() {
    if (held_.empty()) return;
    const size_t i = rng_.Below(held_.size());
    std::swap(held_[i], held_.back());
    // I3: whatever happened since, the bytes under the lease are the ones it was given for.
    ASSERT_TRUE(HasPattern(held_.back().lease.bytes(), held_.back().tag));
    held_.pop_back();
  }
  void Inspect() {
    for (const BlockHandle& h : dead_)  // I2
      ASSERT_EQ(ReasonOf(p_->StateOf(h).status()), Reason::kStaleHandle);
    for (const Unit& u : live_) {
      ASSERT_EQ(Must(p_->StateOf(u.handle)), u.state);
      if (u.state == S::kReserved || u.state == S::kLanding || u.state == S::kQuarantined) continue;
      ASSERT_TRUE(p_.Holds(u.handle, u.tag)) << u.handle;
    }
  }

 private:
  SplitMix64 rng_;
  const uint32_t units_;
  TestPool<BlockKind> p_;
  std::vector<Unit> live_;
  std::vector<BlockHandle> dead_;
  std::vector<Held> held_;
  uint64_t next_tag_ = 1;
};

const Action kActions[] = {
    {"Reserve", 20, [](Fuzz* f) { f->Reserve(); }},
    {"Activate", 14, [](Fuzz* f) { f->Activate(); }},
    {"Advance", 10, [](Fuzz* f) { f->Advance(); }},
    {"Land", 8, [](Fuzz* f) { f->Land(); }},
    {"Landed", 8, [](Fuzz* f) { f->Landed(); }},
    {"Verified", 8, [](Fuzz* f) { f->Verified(); }},
    {"Seal", 8, [](Fuzz* f) { f->Seal(); }},
    {"Free", 10, [](Fuzz* f) { f->Free(); }},
    {"Quarantine", 3, [](Fuzz* f) { f->Quarantine(); }},
    {"ProvenQuiet", 6, [](Fuzz* f) { f->ProvenQuiet(); }},
    {"AddReference", 5, [](Fuzz* f) { f->AddReference(); }},
    {"DropReference", 6, [](Fuzz* f) { f->DropReference(); }},
    {"Copy", 20, [](Fuzz* f) { f->Copy(); }},
    {"Move", 8, [](Fuzz* f) { f->Move(); }},
    {"Compact", 6, [](Fuzz* f) { f->Compact(); }},
    {"Lease", 10, [](Fuzz* f) { f->Lease(); }},
    {"Release", 10, [](Fuzz* f) { f->Release(); }},
    {"Inspect", 3, [](Fuzz* f) { f->Inspect(); }},
};

void Fuzz::Step() {
  uint64_t total = 0;
  for (const Action& a : kActions) total += a.weight;
  uint64_t pick = rng_.Below(total);
  const Action* action = kActions;
  while (pick >= action->weight) pick -= (action++)->weight;
  SCOPED_TRACE(action->name);
  action->run(this);
  const Status invariants = p_->CheckInvariants();
  ASSERT_TRUE(invariants.ok()) << invariants;
  // A draining unit is in use, and nobody else's: live + draining + free is the whole pool.
  const PoolStats s = p_->Stats();
  ASSERT_EQ(s.used, live_.size() + s.by_state[static_cast<size_t>(S::kDraining)]);
  ASSERT_EQ(s.leases, held_.size());
}

void Fuzz::Finish() {
  Inspect();
  held_.clear();
  while (!live_.empty()) {
    Unit* u = &live_.back();
    if (u->state == S::kLanding) {
      ASSERT_TRUE(p_->Quarantine(u->handle).ok());
    }
    if (u->state == S::kLanding || u->state == S::kQuarantined) {
      ASSERT_TRUE(p_->ProvenQuiet(u->handle).ok());
    } else {
      while (u->references > 1) {
        ASSERT_TRUE(p_->DropReference(u->handle).ok());
        --u->references;
      }
      ASSERT_TRUE(p_->Free(u->handle).ok());
    }
    Erase(u);
  }
  ASSERT_EQ(p_->Stats().free, units_);  // nothing leaked
  ASSERT_TRUE(p_->CheckInvariants().ok());
}

class PoolRandomI2I3I8 : public ::testing::TestWithParam<uint64_t> {};

TEST_P(PoolRandomI2I3I8, ActionsKeepEveryInvariant) {
  Fuzz fuzz(GetParam(), 3 + static_cast<uint32_t>(GetParam() % 5) * 6);
  for (int i = 0; i < 4000 && !HasFatalFailure(); ++i) fuzz.Step();
  if (!HasFatalFailure()) fuzz.Finish();
}

INSTANTIATE_TEST_SUITE_P(Seeds, PoolRandomI2I3I8, ::testing::Range<uint64_t>(1, 13));

}  // namespace
}  // namespace baton
