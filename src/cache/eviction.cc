#include "cache/eviction.h"

#include <algorithm>
#include <cmath>

namespace baton {

double Worth(const EvictionOptions& options, const PrefixIndex::StateView& state) {
  const double saved = std::max(options.cost.Between(state.base, state.boundary), 1.0);
  const double bytes = std::max(static_cast<double>(state.freed), 1.0);
  double worth = std::log2(saved / bytes) + state.last_use / std::max(options.half_life, 1e-9);
  worth += options.hits_exponent * std::log2(1.0 + state.hits);
  if (state.branches == 1) worth += std::log2(std::max(options.interior_weight, 1e-30));
  return worth;
}

std::optional<IndexedState> ChooseVictim(const EvictionOptions& options, const PrefixIndex& index) {
  std::optional<IndexedState> victim;
  double least = 0;
  uint64_t oldest = 0;
  index.ForEachState([&](const PrefixIndex::StateView& state) {
    const double worth = options.order == EvictionOrder::kFlopAware ? Worth(options, state) : 0.0;
    if (victim.has_value() && (worth > least || (worth == least && state.last_order > oldest)))
      return;
    victim = state.state;
    least = worth;
    oldest = state.last_order;
  });
  return victim;
}

}  // namespace baton
