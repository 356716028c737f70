#include "replay.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "cache/prefix_index.h"
#include "identity/prefix_chain.h"
#include "trace.h"

namespace baton::bench {
namespace {

// As many tokens of the past as the engine's index remembers by default.
constexpr uint64_t kSeenBlocks = PrefixIndex::Options().max_seen_blocks *
                                 static_cast<uint64_t>(kBlockTokens) /
                                 static_cast<uint64_t>(kTraceBlock);

class Replayer {
 public:
  explicit Replayer(const ReplayOptions& options)
      : options_(options), index_(IndexOptions(options.bytes)) {}

  void Serve(const Prompt& prompt, bool count) {
    const PrefixPath path{root_, prompt.blocks};
    // At least one token is computed to get logits.
    const int64_t limit = (prompt.tokens - 1) / kTraceBlock * kTraceBlock;
    const PrefixIndex::Sight sight = index_.See(path, limit);
    const int64_t bound = Bound(prompt, limit);
    BATON_CHECK(sight.usable_boundary <= bound);
    if (sight.usable.has_value()) index_.Touch(*sight.usable, Now());

    PolicyRequest request;
    request.start = sight.usable_boundary;
    request.conversation_end = static_cast<int64_t>(prompt.blocks.size()) * kTraceBlock;
    const std::vector<int64_t> made = PlanStates(options_.policy, sight, request, kTraceBlock);
    for (const int64_t boundary : made) {
      const auto blocks = static_cast<size_t>(boundary / kTraceBlock);
      BATON_CHECK(index_.Add(path.First(blocks), options_.bytes.state, Now()).ok());
    }
    MakeRoom();
    result_.bytes_peak = std::max(result_.bytes_peak, index_.bytes());
    if (!count) return;
    ++result_.requests;
    result_.prompt_tokens += prompt.tokens;
    result_.reused_tokens += sight.usable_boundary;
    result_.bound_tokens += bound;
    result_.flops += options_.eviction.cost.Of(prompt.tokens);
    result_.flops_saved += options_.eviction.cost.Of(sight.usable_boundary);
    result_.states += static_cast<int64_t>(made.size());
    result_.states_most = std::max(result_.states_most, static_cast<int64_t>(made.size()));
  }

  ReplayResult Finish() const {
    index_.CheckInvariants();
    ReplayResult result = result_;
    result.turnovers = Now();
    return result;
  }

 private:
  static PrefixIndex::Options IndexOptions(const Bytes& bytes) {
    PrefixIndex::Options options;
    options.block_tokens = kTraceBlock;
    options.block_bytes = bytes.kv_block;
    options.max_seen_blocks = kSeenBlocks;
    return options;
  }

  // Deliberately not the index: a set of all block hashes ever seen.
  int64_t Bound(const Prompt& prompt, int64_t limit) {
    int64_t blocks = 0;
    for (const Sha256& hash : prompt.blocks) {
      if (!seen_.contains(hash)) break;
      ++blocks;
    }
    seen_.insert(prompt.blocks.begin(), prompt.blocks.end());
    return std::min(blocks * kTraceBlock, limit);
  }

  double Now() const {
    return static_cast<double>(index_.admitted_bytes()) / static_cast<double>(options_.budget);
  }

  void MakeRoom() {
    while (index_.bytes() > options_.budget) {
      const std::optional<IndexedState> victim = ChooseVictim(options_.eviction, index_);
      BATON_CHECK(victim.has_value());
      const uint64_t before = index_.bytes();
      const uint64_t claimed = index_.View(*victim).freed;
      BATON_CHECK(index_.Remove(*victim) == claimed && before - index_.bytes() == claimed);
    }
  }

  const ReplayOptions options_;
  const Sha256 root_ = RootOf({{}, {}, ScopeOf("")});
  PrefixIndex index_;
  absl::flat_hash_set<Sha256> seen_;
  ReplayResult result_;
};

}  // namespace

StatusOr<std::vector<Prompt>> ReadPrompts(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const Trace trace, ReadTrace(path));
  std::vector<Prompt> prompts;
  const Sha256 scope = ScopeOf("");
  for (const TraceRequest& r : trace.requests) {
    const auto full = static_cast<size_t>(r.input / kTraceBlock);
    if (r.blocks.empty()) return std::vector<Prompt>();
    if (r.blocks.size() < full)
      return absl::InvalidArgumentError(path + ": a prompt with fewer block ids than full blocks");
    // The trace's id stands for the tokens of its block; sixteen copies fill one block of the
    // chain.
    std::vector<TokenId> tokens;
    tokens.reserve(full * kBlockTokens);
    for (size_t i = 0; i < full; ++i)
      tokens.insert(tokens.end(), kBlockTokens, static_cast<TokenId>(r.blocks[i]));
    prompts.push_back({r.input, PrefixChain::BlockHashes(scope, tokens)});
  }
  return prompts;
}

ReplayResult Replay(const std::vector<Prompt>& prompts,
                    const ReplayOptions& options,
                    size_t from,
                    size_t to) {
  Replayer replayer(options);
  for (size_t i = 0; i < to; ++i) replayer.Serve(prompts[i], i >= from);
  return replayer.Finish();
}

}  // namespace baton::bench
