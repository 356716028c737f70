// With few bytes: FLOP-aware eviction against LRU, weights tuned on the first half of a trace and
// reported on the second. Thread rule: free functions.
#ifndef BATON_BENCH_CACHE_LIMITED_H_
#define BATON_BENCH_CACHE_LIMITED_H_

#include <optional>
#include <string>
#include <vector>

#include "replay.h"

namespace baton::bench {

// What a model's states, KV and operations cost.
struct Geometry {
  std::string name;
  Bytes bytes;  // as published: KV and conv windows bf16, recurrent tensors f32
  RecomputeCost cost;
};
StatusOr<Geometry> ReadGeometry(const std::string& config_path);

// One candidate of the tuning; the last three are for the FLOP-aware order.
struct Weights {
  EvictionOrder order = EvictionOrder::kLru;
  int max_new_states = 4;
  double half_life = 0;
  double interior_weight = 1;
  double hits_exponent = 0;
};

// Prints, for each share of the bytes of the unlimited run, both orders with the weights that were
// best on the first half; if weights are `asked` for, those alone.
void CompareLimited(const std::vector<Prompt>& prompts,
                    const PolicyOptions& policy,
                    const Geometry& geometry,
                    const std::vector<double>& shares,
                    const std::optional<Weights>& asked);

}  // namespace baton::bench

#endif  // BATON_BENCH_CACHE_LIMITED_H_
