#include "limited.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "identity/layout.h"
#include "model/config.h"
#include "model/model_layout.h"
#include "model/prefill_cost.h"

namespace baton::bench {
namespace {

ReplayOptions OptionsFor(const PolicyOptions& policy,
                         const Geometry& geometry,
                         const Weights& w,
                         uint64_t budget) {
  ReplayOptions options;
  options.policy = policy;
  options.policy.max_new_states = w.max_new_states;
  options.eviction.order = w.order;
  options.eviction.cost = geometry.cost;
  options.eviction.half_life = w.half_life;
  options.eviction.interior_weight = w.interior_weight;
  options.eviction.hits_exponent = w.hits_exponent;
  options.bytes = geometry.bytes;
  options.budget = budget;
  return options;
}

// Tries each value of `field` in turn and keeps the best hit rate; ties keep what was there.
template <class T, class Run>
void Improve(Weights* best, double* best_rate, T Weights::*field, std::vector<T> values, Run run) {
  const Weights start = *best;
  for (const T value : values) {
    Weights w = start;
    w.*field = value;
    const ReplayResult r = run(w);
    // What half of the trace turns over bounds the time constants that can be learnt from it.
    if (w.order == EvictionOrder::kFlopAware && 4 * w.half_life > r.turnovers) continue;
    if (r.hit_rate() <= *best_rate) continue;
    *best_rate = r.hit_rate();
    *best = w;
  }
}

// The number of states and the half-life together, then one weight after the other.
template <class Run>
Weights Tune(EvictionOrder order, Run run) {
  Weights best;
  double best_rate = -1;
  for (const int states : {1, 2, 4}) {
    Weights w{order, states, 0.25, 0.1, 1};
    double rate = run(w).hit_rate();
    if (order == EvictionOrder::kFlopAware)
      Improve(&w, &rate, &Weights::half_life, {0.5, 1, 2, 4, 8}, run);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = w;
  }
  if (order == EvictionOrder::kLru) return best;
  Improve(&best, &best_rate, &Weights::interior_weight, {1, 0.01}, run);
  Improve(&best, &best_rate, &Weights::hits_exponent, {0, 2}, run);
  return best;
}

void Print(const Weights& w, const ReplayResult& first, const ReplayResult& second) {
  if (w.order == EvictionOrder::kLru) {
    std::printf("    lru        %-56s", absl::StrFormat("states %d", w.max_new_states).c_str());
  } else {
    const std::string weights =
        absl::StrFormat("states %d, half-life %.2f, interior %.2f, hits^%.0f", w.max_new_states,
                        w.half_life, w.interior_weight, w.hits_exponent);
    std::printf("    flop-aware %-56s", weights.c_str());
  }
  std::printf("tuned %6.2f %%, reported %6.2f %%, operations spared %6.2f %%, states %.2f\n",
              100 * first.hit_rate(), 100 * second.hit_rate(),
              100 * second.flops_saved / second.flops, second.states_per_request());
  std::fflush(stdout);
}

}  // namespace

StatusOr<Geometry> ReadGeometry(const std::string& config_path) {
  BATON_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ReadConfig(config_path));
  BATON_ASSIGN_OR_RETURN(const Layout layout, model::BuildLayout(config, Sha256()));
  Geometry g;
  g.name = std::filesystem::path(config_path).stem().string();
  for (const StatePart& p : layout.parts()) {
    // The layout is f32 throughout; published checkpoints keep the window in bf16.
    g.bytes.state += p.component == model::kConvComponent ? p.bytes / 2 : p.bytes;
  }
  g.bytes.kv_block = layout.kv_bytes_per_token() / 2 * static_cast<uint64_t>(kTraceBlock);
  const model::PrefillCost cost = model::CountPrefillCost(config);
  g.cost = {cost.per_token, cost.per_token_pair};
  return g;
}

void CompareLimited(const std::vector<Prompt>& prompts,
                    const PolicyOptions& policy,
                    const Geometry& geometry,
                    const std::vector<double>& shares,
                    const std::optional<Weights>& asked) {
  const size_t half = prompts.size() / 2, all = prompts.size();
  const auto run = [&](const Weights& w, uint64_t budget, size_t from, size_t to) {
    return Replay(prompts, OptionsFor(policy, geometry, w, budget), from, to);
  };
  Weights unlimited;
  unlimited.max_new_states = policy.max_new_states;
  const ReplayResult second = run(unlimited, UINT64_MAX, half, all);
  std::printf("  unlimited: %.0f GB; second half %.2f %% of a bound of %.2f %%\n",
              static_cast<double>(second.bytes_peak) / 1e9, 100 * second.hit_rate(),
              100 * second.bound());
  for (const double share : shares) {
    const auto budget = static_cast<uint64_t>(share * static_cast<double>(second.bytes_peak));
    std::printf("  %g %% of the bytes: %.1f GB\n", 100 * share, static_cast<double>(budget) / 1e9);
    if (asked.has_value()) {
      Print(*asked, run(*asked, budget, 0, half), run(*asked, budget, half, all));
      continue;
    }
    for (const EvictionOrder order : {EvictionOrder::kLru, EvictionOrder::kFlopAware}) {
      const Weights best = Tune(order, [&](const Weights& w) { return run(w, budget, 0, half); });
      Print(best, run(best, budget, 0, half), run(best, budget, half, all));
    }
  }
}

}  // namespace baton::bench
