// One request inside the engine: tokens, memory, progress. Internal to the engine; everything here
// belongs to the engine's thread unless said otherwise.
#ifndef BATON_ENGINE_SEQUENCE_H_
#define BATON_ENGINE_SEQUENCE_H_

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "cache/checkpoint_store.h"
#include "engine/generator.h"
#include "engine/parked.h"
#include "handoff/provider.h"
#include "memory/live_record.h"
#include "memory/pool.h"

namespace baton::engine {

enum class Phase {
  kWaiting,  // holds no memory
  kPulling,  // memory reserved, in the hands of the hand-off client
  kRunning,  // LIVE
};

// A bundle to fetch before the sequence runs.
struct PullPlan {
  std::string endpoint;
  int64_t boundary = 0;
  int tries_left = 0;
  // Bound on what counts as cached: a later try finds what an earlier one had computed.
  int64_t reused_max = std::numeric_limits<int64_t>::max();
};

// Blocks and slot of a sequence. Blocks are counted from token 0; those below `sealed` are SEALED
// (shared), the rest LIVE. A group with a window holds no blocks that nothing will see again.
struct SequenceMemory {
  std::optional<SlotHandle> slot;
  std::vector<size_t> first;                          // per group, the first block held
  std::vector<std::vector<BlockHandle>> blocks;       // per group, from `first` on
  std::vector<std::vector<Digest128>> block_digests;  // per group, of sealed blocks from `first` on
  size_t sealed = 0;                                  // full blocks sealed, same for all groups

  // No blocks, of `groups` groups.
  void Clear(size_t groups) {
    first.assign(groups, 0);
    blocks.assign(groups, {});
    block_digests.assign(groups, {});
    sealed = 0;
  }
  BlockHandle Block(size_t group, size_t block) const {
    return blocks[group][block - first[group]];
  }
};

// What a prefill job delivers; called once, on the engine's thread. `reused` tokens of it were not
// computed for this job.
using BundleCallback =
    std::function<void(StatusOr<std::shared_ptr<const Checkpoint>>, int64_t reused)>;

// What a replay audit compares with.
struct Audit {
  Seal seal;
  std::vector<std::vector<Digest128>> block_digests;
  bool from_zero = false;
};

struct Sequence {
  OwnerId owner;
  IdentityBase base;
  std::vector<TokenId> tokens;  // prompt and output
  Phase phase = Phase::kWaiting;

  // Generation.
  GenerateRequest request;
  std::shared_ptr<GenerationSink> sink;
  GenerateResult result;
  Sha256 logits_hash;

  // Prefill job: compute to `target` and seal there. 0 for a generation.
  int64_t target = 0;
  BundleCallback deliver;
  std::shared_ptr<BlockStream> stream;       // takes blocks as they become final; may be null
  std::function<void()> on_blocks_released;  // when withdrawn ones are free; any thread
  StateId state_id;                          // promised with them; zero: none yet
  size_t streamed = 0;                       // full blocks handed over, same for all groups

  std::unique_ptr<Audit> audit;  // a job that delivers nothing

  std::optional<PullPlan> pull;
  std::optional<int64_t> restoring;  // boundary of the bundle that a tier is asked for
  int restores_left = 2;             // a damaged object must not be met for ever
  std::shared_ptr<CancelSource> cancel = std::make_shared<CancelSource>();

  SequenceMemory memory;
  std::optional<LiveRecord> record;
  StateId parent;  // the bundle it was forked or pulled from; zero: from token 0
  std::unique_ptr<ParkedBundle> parked;  // preempted: what it goes on from
  StateId parked_parent;
  std::vector<Sha256> block_hashes;  // of the full blocks of `tokens`, as admission needs them
  std::optional<PrefixIndex::Sight> sight;  // how its prompt lay when it first came
  std::set<int64_t> stops;                  // boundaries where a checkpoint is taken
  int64_t local_start = 0;                  // boundary from which this worker computes

  // Copy of the state at the last grid boundary while decoding: becomes a checkpoint at the end.
  std::optional<SlotHandle> rolling_slot;
  int64_t rolling_boundary = 0;

  bool is_job() const { return target != 0; }
  int64_t boundary() const {
    return record.has_value() ? static_cast<int64_t>(record->boundary()) : 0;
  }
  int64_t known() const { return is_job() ? target : static_cast<int64_t>(tokens.size()); }
  // The logits of the prompt are asked for: it is computed here, from its first token.
  bool scores_prompt() const { return !is_job() && request.sampling.prompt_logprobs >= 0; }
  int64_t output_tokens() const { return static_cast<int64_t>(tokens.size()) - request.prompt_len; }
  // The next boundary at which a chunk must end, or 0.
  int64_t NextStop() const {
    auto it = stops.upper_bound(boundary());
    return it == stops.end() ? 0 : *it;
  }
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_SEQUENCE_H_
