// Shared by the pool tests: a small pool over its own arena, and bytes that say whose they are.
#ifndef BATON_MEMORY_POOL_TEST_UTIL_H_
#define BATON_MEMORY_POOL_TEST_UTIL_H_

#include <cstring>
#include <memory>
#include <utility>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "memory/pool.h"

namespace baton {

template <class T>
T Must(StatusOr<T> v) {
  EXPECT_TRUE(v.ok()) << v.status();
  BATON_CHECK(v.ok());
  return std::move(v).value();
}

// Every byte a function of (tag, position).
inline void WritePattern(MutableByteSpan bytes, uint64_t tag) {
  SplitMix64 rng(tag);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.Next() & 0x3f);
}

inline bool HasPattern(ByteSpan bytes, uint64_t tag) {
  SplitMix64 rng(tag);
  for (std::byte b : bytes)
    if (b != static_cast<std::byte>(rng.Next() & 0x3f)) return false;
  return true;
}

inline bool AllBytes(ByteSpan bytes, std::byte value) {
  for (std::byte b : bytes)
    if (b != value) return false;
  return true;
}

template <class Kind>
struct TestPool {
  explicit TestPool(uint32_t units, PoolOptions options = {}) {
    arena = Must(Arena::Create(uint64_t{units} * 4096 + 4096, {}));
    options.arena = arena.get();
    if (options.device == nullptr) options.device = &device;
    options.unit_bytes = options.unit_bytes == 0 ? 192 : options.unit_bytes;
    options.units = units;
    options.pool_id = options.pool_id == 0 ? 7 : options.pool_id;
    options.poison = true;
    pool = Must(UnitPool<Kind>::Create(options));
  }
  UnitPool<Kind>* operator->() { return pool.get(); }

  // A LIVE unit holding pattern `tag`.
  UnitHandle<Kind> Live(uint64_t tag) {
    const auto h = Must(pool->Reserve({}));
    EXPECT_TRUE(pool->Activate(h).ok());
    WritePattern(Must(pool->Acquire(h, LeaseFor::kCompute)).bytes(), tag);
    return h;
  }
  UnitHandle<Kind> Sealed(uint64_t tag) {
    const auto h = Live(tag);
    EXPECT_TRUE(pool->Seal(h).ok());
    return h;
  }
  uint64_t OffsetOf(UnitHandle<Kind> h) {
    return Must(pool->Acquire(h, LeaseFor::kDigest)).arena_offset();
  }
  bool Holds(UnitHandle<Kind> h, uint64_t tag) {
    return HasPattern(Must(pool->Acquire(h, LeaseFor::kDigest)).bytes(), tag);
  }

  std::unique_ptr<Arena> arena;
  HostDevice device;
  std::unique_ptr<UnitPool<Kind>> pool;
};

inline bool IsStale(const Status& s) { return ReasonOf(s) == Reason::kStaleHandle; }

// Drives a fresh unit into `state` along the table.
inline SlotHandle InState(TestPool<SlotKind>& p, UnitState state) {
  using S = UnitState;
  const SlotHandle h = Must(p->Reserve({}));
  const auto ok = [](const Status& s) { EXPECT_TRUE(s.ok()) << s; };
  switch (state) {
    case S::kReserved:
      break;
    case S::kLive:
      ok(p->Activate(h));
      break;
    case S::kSealed:
      ok(p->Activate(h));
      ok(p->Seal(h));
      break;
    default:
      ok(p->Land(h, Attempt(1)));
      if (state == S::kLanded || state == S::kVerified) ok(p->Landed(h));
      if (state == S::kVerified) ok(p->Verified(h));
      if (state == S::kQuarantined) ok(p->Quarantine(h));
  }
  EXPECT_EQ(Must(p->StateOf(h)), state);
  return h;
}

// Every state in which a unit has a handle.
inline constexpr UnitState kHandleStates[] = {
    UnitState::kReserved, UnitState::kLive,   UnitState::kLanding,    UnitState::kLanded,
    UnitState::kVerified, UnitState::kSealed, UnitState::kQuarantined};

}  // namespace baton

#endif  // BATON_MEMORY_POOL_TEST_UTIL_H_
