#include "sim/oracle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/sampler.h"
#include "sim/links.h"

namespace baton::sim {
namespace {

testing::FakeModelOptions Options() {
  testing::FakeModelOptions o;
  o.vocab = 23;
  o.max_model_len = 512;
  return o;
}

}  // namespace

Oracle::Oracle(std::function<void(std::string)> violation)
    : model_(Options()), violation_(std::move(violation)) {}

std::vector<TokenId> Oracle::Answer(const engine::GenerateRequest& request) {
  const Layout& layout = model_.layout();
  const uint64_t block_bytes = layout.groups()[0].block_bytes;
  Stream s;
  s.tokens = request.prompt;
  s.prompt_len = static_cast<int64_t>(request.prompt.size());
  const size_t end = request.prompt.size() + static_cast<size_t>(request.sampling.max_tokens);
  const auto blocks = static_cast<size_t>(BlocksFor(static_cast<int64_t>(end)));
  s.kv.assign(blocks * block_bytes, std::byte{0});
  std::vector<std::byte*> pointers(blocks);
  for (size_t b = 0; b < blocks; ++b) pointers[b] = s.kv.data() + b * block_bytes;
  std::vector<std::byte> slot(layout.slot_bytes());
  std::vector<float> logits(static_cast<size_t>(model_.vocab_size()));
  engine::SamplerScratch scratch;
  model::Workspace workspace;
  for (size_t position = 0; position < end; ++position) {
    s.state.push_back(HashOf(slot));
    if (position % kBlockTokens == 0) s.grid_slot.push_back(slot);
    if (position >= s.tokens.size()) {
      engine::SampleInput input;
      input.logits = logits;
      input.history = s.tokens;
      input.position = static_cast<int64_t>(position);
      input.output_tokens = static_cast<int64_t>(position) - s.prompt_len;
      s.tokens.push_back(SampleToken(input, request.sampling, &scratch).token);
      if (position + 1 == end) break;
    }
    model::BatchItem item;
    item.tokens = std::span<const TokenId>(s.tokens).subspan(position, 1);
    item.position = static_cast<int64_t>(position);
    item.slot = slot.data();
    item.blocks.push_back(pointers);
    item.logits_mode =
        position + 1 >= request.prompt.size() ? model::LogitsMode::kLast : model::LogitsMode::kNone;
    item.logits = logits.data();
    model_.Forward(std::span(&item, 1), &workspace, nullptr).IgnoreError();
  }
  for (size_t b = 0; b < s.state.size(); ++b)
    by_state_[{static_cast<int64_t>(b), s.state[b]}].push_back(streams_.size());
  std::vector<TokenId> answer(s.tokens.begin() + s.prompt_len, s.tokens.end());
  streams_.push_back(std::move(s));
  return answer;
}

void Oracle::CheckStep(const model::BatchItem& item) const {
  const Layout& layout = model_.layout();
  const uint64_t hash = HashOf({item.slot, layout.slot_bytes()});
  const auto found = by_state_.find({item.position, hash});
  if (found == by_state_.end())
    return violation_(absl::StrCat("I1: a step at boundary ", item.position,
                                   " is about to compute from a state that no history has"));
  const auto position = static_cast<size_t>(item.position);
  const uint64_t block_bytes = layout.groups()[0].block_bytes;
  for (const size_t index : found->second) {
    const Stream& s = streams_[index];
    if (s.tokens.size() < position + item.tokens.size() ||
        !std::equal(item.tokens.begin(), item.tokens.end(), s.tokens.begin() + item.position))
      continue;
    for (size_t b = 0; b * kBlockTokens < position; ++b) {
      // Of the block that is being filled, what lies before the position: one float per token.
      const size_t filled = std::min<size_t>(kBlockTokens, position - b * kBlockTokens);
      const uint64_t bytes = filled == kBlockTokens ? block_bytes : filled * sizeof(float);
      if (std::memcmp(item.blocks[0][b], s.kv.data() + b * block_bytes, bytes) != 0)
        return violation_(absl::StrCat("I1: KV block ", b, " under a step at boundary ",
                                       item.position, " is not that of its history"));
    }
    return;
  }
  violation_(absl::StrCat("I1: a step at boundary ", item.position,
                          " computes from the state of another request"));
}

ByteSpan Oracle::Part(std::span<const TokenId> tokens,
                      bool is_state,
                      size_t part,
                      uint64_t block) const {
  for (const Stream& s : streams_) {
    // The last token of a stream is in its text, not in its state.
    if (s.state.size() <= tokens.size() ||
        !std::equal(tokens.begin(), tokens.end(), s.tokens.begin()))
      continue;
    if (!is_state) {
      const uint64_t bytes = model_.layout().groups()[0].block_bytes;
      return ByteSpan(s.kv).subspan(block * bytes, bytes);
    }
    const StatePart& p = model_.layout().parts()[part];
    return ByteSpan(s.grid_slot[tokens.size() / kBlockTokens]).subspan(p.offset, p.bytes);
  }
  return {};
}

Status SimModel::Forward(std::span<const model::BatchItem> batch,
                         model::Workspace* workspace,
                         ThreadPool* pool) const {
  for (const model::BatchItem& item : batch) oracle_->CheckStep(item);
  size_t tokens = 0;
  for (const model::BatchItem& item : batch) tokens += item.tokens.size();
  scheduler_->SleepUntil(scheduler_->now() + std::chrono::microseconds(20 + 10 * tokens));
  // Nobody else may have touched what the step has leased meanwhile.
  for (const model::BatchItem& item : batch) oracle_->CheckStep(item);
  return inner_.Forward(batch, workspace, pool);
}

}  // namespace baton::sim
