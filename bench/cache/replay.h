// Replays a trace of prompts through the prefix index, the checkpoint policy and the eviction that
// the engine uses. Thread rule: free functions on plain values.
#ifndef BATON_BENCH_CACHE_REPLAY_H_
#define BATON_BENCH_CACHE_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/checkpoint_policy.h"
#include "cache/eviction.h"

namespace baton::bench {

// The traces name blocks of this many tokens, so prompts can be compared at its multiples only: one
// block of the index stands for one of the trace.
inline constexpr int64_t kTraceBlock = 512;

struct Prompt {
  int64_t tokens = 0;
  std::vector<Sha256> blocks;  // chain hashes of the full blocks
};

// Prompts of a trace file; empty if the file names no blocks.
StatusOr<std::vector<Prompt>> ReadPrompts(const std::string& path);

struct Bytes {
  uint64_t state = 0;     // one recurrent state
  uint64_t kv_block = 0;  // KV of kTraceBlock tokens
};

struct ReplayOptions {
  PolicyOptions policy;
  EvictionOptions eviction;
  Bytes bytes;
  uint64_t budget = UINT64_MAX;
};

// Over the requests [from, to) that were counted.
struct ReplayResult {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t bound_tokens = 0;  // that a model with attention only would reuse, with unlimited KV
  double flops = 0;          // of all prompts without reuse
  double flops_saved = 0;
  int64_t states = 0;       // made
  int64_t states_most = 0;  // by one request
  uint64_t bytes_peak = 0;  // over all requests
  double turnovers = 0;     // of the budget, over all requests

  double hit_rate() const { return Share(reused_tokens); }
  double bound() const { return Share(bound_tokens); }
  double states_per_request() const {
    return static_cast<double>(states) / static_cast<double>(requests);
  }

 private:
  double Share(int64_t tokens) const {
    return static_cast<double>(tokens) / static_cast<double>(prompt_tokens);
  }
};

// Replays prompts [0, to) in order and counts from `from`. No request sees the future: what a
// request finds is what earlier ones left, and it leaves its own states when it ends; the next one
// starts after that, for the bound as for the index. CHECKs what the index claims: that no request
// reuses more than the bound, that removals free what they said, that bytes stay in the budget.
ReplayResult Replay(const std::vector<Prompt>& prompts,
                    const ReplayOptions& options,
                    size_t from,
                    size_t to);

}  // namespace baton::bench

#endif  // BATON_BENCH_CACHE_REPLAY_H_
