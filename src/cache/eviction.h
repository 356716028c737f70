// Which state leaves first. Two orders over the same index:
//
//   lru         the one whose last use lies furthest back
//   flop-aware  the one whose memory saves least: with F the operations it spares a request that
//               starts from it, over starting from the deepest state above it, and B the bytes that
//               really leave with it (blocks that other states need stay and do not count), the
//               worth is
//                   w * (1 + hits)^hits_exponent * F / B * 2^(-idle / half_life)
//               w = interior_weight for a state on the way to exactly one other way on (a
//               conversation that has moved past it), else 1.
//
// Idle and half_life are in turnovers: bytes admitted since, over the bytes there are. LRU keeps an
// unused state for one turnover, so the unit means the same in small and large memory and under
// any load, and needs no clock. The logarithms of all worths fall alike with time, so the order of
// two states changes only when one is used or the tree changes: one half-life of idling weighs like
// half the operations per byte.
//
// Decides only. Costs a look at every state (a few microseconds per hundred); the number of states
// is bounded by the slots there are. Thread rule: that of the index.
#ifndef BATON_CACHE_EVICTION_H_
#define BATON_CACHE_EVICTION_H_

#include <cstdint>
#include <optional>

#include "cache/prefix_index.h"

namespace baton {

// Operations to compute a history of n tokens from nothing: per_token * n for everything linear in
// it (matrices of active parameters, recurrences) and per_token_pair * n * n for attention.
struct RecomputeCost {
  double per_token = 1;
  double per_token_pair = 0;

  double Of(int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    return per_token * n + per_token_pair * n * n;
  }
  // With the state at `from` at hand.
  double Between(int64_t from, int64_t to) const { return Of(to) - Of(from); }
};

enum class EvictionOrder : uint8_t { kLru, kFlopAware };

struct EvictionOptions {
  EvictionOrder order = EvictionOrder::kLru;
  RecomputeCost cost;
  double half_life = 1;          // turnovers, > 0
  double interior_weight = 0.1;  // > 0
  double hits_exponent = 1;
};

// Log2 of the worth above, plus a term common to all states at one time. Finite.
double Worth(const EvictionOptions& options, const PrefixIndex::StateView& state);

// The state to remove first; nothing if there is none. Ties go to the one not used for longer.
std::optional<IndexedState> ChooseVictim(const EvictionOptions& options, const PrefixIndex& index);

}  // namespace baton

#endif  // BATON_CACHE_EVICTION_H_
