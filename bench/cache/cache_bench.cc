// Question: how much of the prompts of a public trace does a cache of recurrent states reuse, when
// states are few, beside a model with attention only and unlimited KV?
//
// The index, policy and eviction are the engine's. A trace names 512-token blocks; a prompt's last,
// partial block is never counted as reusable. Hit rate = tokens reused / prompt tokens.
//
//   cache_bench --traces DIR [--states 4] [--branch-sights 2] [--spacing 2048] [--before-end 512]
//   cache_bench --traces DIR --config granite-4.0-h-small.json [--share 0.1] [--weights 4,0.5,0.1,1]
//
// The second also with few bytes, shares of what the unlimited run holds in the end: FLOP-aware
// eviction against LRU, weights (new states, half-life in turnovers, interior weight, exponent of
// hits) tuned on the first half of the trace and reported on the second, or those given.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "limited.h"
#include "replay.h"

namespace baton::bench {
namespace {

struct Arguments {
  std::vector<std::string> traces;
  std::string config;
  std::vector<double> shares = {0.1, 0.01};
  std::optional<Weights> weights;
  PolicyOptions policy;
};

bool ParseNumbers(const std::string& text, std::vector<int64_t>* out) {
  out->clear();
  for (const auto part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int64_t n = 0;
    if (!absl::SimpleAtoi(part, &n)) return false;
    out->push_back(n);
  }
  return true;
}

bool Parse(int argc, char** argv, Arguments* a) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--traces") {
      std::error_code failed;
      for (const auto& entry : std::filesystem::directory_iterator(value, failed))
        if (entry.path().extension() == ".jsonl") a->traces.push_back(entry.path().string());
      std::sort(a->traces.begin(), a->traces.end());
    } else if (flag == "--config") {
      a->config = value;
    } else if (flag == "--weights") {
      Weights w;
      w.order = EvictionOrder::kFlopAware;
      if (std::sscanf(value.c_str(), "%d,%lf,%lf,%lf", &w.max_new_states, &w.half_life,
                      &w.interior_weight, &w.hits_exponent) != 4)
        return false;
      a->weights = w;
    } else if (flag == "--share") {
      a->shares = {std::atof(value.c_str())};
      if (a->shares[0] <= 0 || a->shares[0] > 1) return false;
    } else if (flag == "--states") {
      a->policy.max_new_states = std::atoi(value.c_str());
    } else if (flag == "--branch-sights") {
      a->policy.branch_sights = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (flag == "--spacing") {
      a->policy.spacing_tokens = std::atoll(value.c_str());
    } else if (flag == "--before-end") {
      if (!ParseNumbers(value, &a->policy.before_end)) return false;
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !a->traces.empty();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: cache_bench --traces DIR [--states 4] [--branch-sights 2] "
                 "[--spacing 2048] [--before-end 512,1536] [--config FILE [--share 0.1] "
                 "[--weights STATES,HALF_LIFE,INTERIOR,HITS]]\n"
                 "DIR holds .jsonl traces with hash_ids\n");
    return 2;
  }
  std::optional<Geometry> geometry;
  if (!arguments.config.empty()) {
    StatusOr<Geometry> read = ReadGeometry(arguments.config);
    if (!read.ok()) {
      std::fprintf(stderr, "%s: %s\n", arguments.config.c_str(), read.status().ToString().c_str());
      return 1;
    }
    geometry = *std::move(read);
    std::printf(
        "%s: state %.1f MB, KV %llu bytes a token, %.2f GFLOP per token and %.0f per pair\n",
        geometry->name.c_str(), static_cast<double>(geometry->bytes.state) / 1e6,
        static_cast<unsigned long long>(geometry->bytes.kv_block / kTraceBlock),
        geometry->cost.per_token / 1e9, geometry->cost.per_token_pair);
  }
  for (const std::string& path : arguments.traces) {
    const auto prompts = ReadPrompts(path);
    if (!prompts.ok()) {
      std::fprintf(stderr, "%s\n", prompts.status().ToString().c_str());
      return 1;
    }
    if (prompts->empty()) continue;
    ReplayOptions options;
    options.policy = arguments.policy;
    const ReplayResult r = Replay(*prompts, options, 0, prompts->size());
    std::printf(
        "%s: hit rate %.2f %%, bound %.2f %%, %.2f states created per request (at most %lld)\n",
        std::filesystem::path(path).stem().c_str(), 100 * r.hit_rate(), 100 * r.bound(),
        r.states_per_request(), static_cast<long long>(r.states_most));
    if (geometry.has_value())
      CompareLimited(*prompts, arguments.policy, *geometry, arguments.shares, arguments.weights);
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
