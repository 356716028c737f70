// The step: plan, give memory, lease, compute, absorb, sample.
#include "engine/core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sha256.h"
#include "model/prefill_cost.h"

namespace baton::engine {

namespace {

// Rows of one step whose logits are kept for the scores of a prompt: bounds their memory.
constexpr int64_t kScoredRowsMax = 16;

// Where the next chunk of `s` must end, or 0.
int64_t ChunkEnd(const Sequence& s) {
  const int64_t stop = s.NextStop();
  if (!s.scores_prompt() || s.boundary() >= s.request.prompt_len - 1) return stop;
  const int64_t scored = s.boundary() + kScoredRowsMax;
  return stop == 0 ? scored : std::min(stop, scored);
}

CheckpointStore::Options StoreOptions(const model::Model& model,
                                      uint64_t capacity_bytes,
                                      const EngineOptions& options) {
  CheckpointStore::Options o;
  for (const KvGroup& group : model.layout().groups()) {
    if (group.window == 0) o.index.block_bytes += group.block_bytes;
    o.window_block_bytes.push_back(group.window == 0 ? 0 : group.block_bytes);
  }
  o.slot_bytes = model.layout().slot_bytes() + model.slot_tail_bytes();
  o.capacity_bytes = std::max<uint64_t>(capacity_bytes, 1);
  o.eviction = options.eviction;
  const model::PrefillCost cost = model::CountPrefillCost(model.config());
  if (cost.per_token > 0) o.eviction.cost = {cost.per_token, cost.per_token_pair};
  return o;
}

}  // namespace

Core::Core(CoreDeps deps, EngineOptions options)
    : deps_(std::move(deps)),
      options_(std::move(options)),
      pools_(deps_.memory->pools()),
      thread_pool_(options_.threads),
      store_(StoreOptions(*deps_.model, deps_.memory->capacity_bytes(), options_)) {
  parking_.max = options_.park_bytes;
  BATON_CHECK(options_.token_budget >= 1 && options_.max_num_seqs >= 1);
}

Core::~Core() {
  BATON_CHECK(pulling_.empty());  // the shell waits for pulls before it lets go
  AbortAll(Reject(Reason::kCancelled, "the engine is shutting down"));
}

int64_t Core::max_model_len() const {
  const int64_t model = deps_.model->max_model_len();
  if (layout().groups().empty()) return model;
  const int64_t blocks = int64_t{deps_.memory->blocks_per_group()};
  // What a window holds does not grow: it must fit beside a step's tokens, however long the text.
  bool bounded = true;
  for (const KvGroup& group : layout().groups()) {
    bounded &= group.window > 0 &&
               blocks >= BlocksFor(group.window) + 1 + BlocksFor(options_.token_budget);
  }
  return bounded ? model : std::min(model, blocks * kBlockTokens);
}

IdentityBase Core::BaseOf(const std::string& cache_salt) const {
  return {deps_.model->fingerprint(), layout().fingerprint(), ScopeOf(cache_salt)};
}

void Core::Add(std::unique_ptr<Sequence> sequence) {
  sequence->base = BaseOf(sequence->request.cache_salt);
  waiting_.push_back(std::move(sequence));
  UpdateGauges();
}

void Core::AddJob(std::unique_ptr<Sequence> sequence, const IdentityBase& base) {
  sequence->base = base;
  waiting_.push_back(std::move(sequence));
  UpdateGauges();
}

void Core::Cancel(OwnerId owner) {
  const Status cancelled = Reject(Reason::kCancelled, "cancelled by the client");
  for (SequencePtr& s : pulling_)
    if (s->owner == owner) s->cancel->request_stop();  // ends through OnPulled
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if ((*it)->owner != owner) continue;
    SequencePtr s = std::move(*it);
    waiting_.erase(it);
    Notify(s.get(), FinishReason::kCancelled, cancelled);
    break;
  }
  for (SequencePtr& s : running_)
    if (s->owner == owner) Finish(s.get(), FinishReason::kCancelled, cancelled);
  RemoveFinished();
  UpdateGauges();
}

void Core::AbortAll(const Status& status) {
  audits_.clear();
  for (SequencePtr& s : pulling_) s->cancel->request_stop();
  while (!waiting_.empty()) {
    SequencePtr s = std::move(waiting_.front());
    waiting_.pop_front();
    Notify(s.get(), FinishReason::kCancelled, status);
  }
  for (SequencePtr& s : running_) Finish(s.get(), FinishReason::kCancelled, status);
  RemoveFinished();
  UpdateGauges();
}

void Core::DropCheckpoints() {
  if (deps_.tiers != nullptr) {
    deps_.tiers->Shed();
    deps_.tiers->Flush();
  }
  while (store_.EvictOne()) {
  }
  UpdateGauges();
}

void Core::Step() {
  RemoveFinished();
  StartAudit();
  std::vector<Row> rows = PlanRows();
  std::erase_if(rows, [&](Row& row) {
    const Status leased = Lease(&row);
    if (!leased.ok()) Finish(row.s, FinishReason::kError, leased);
    return !leased.ok();
  });
  if (!rows.empty()) {
    const Status computed = Forward(&rows);
    // All leases end before the first result is absorbed: what that reserves may need room that
    // only a move can make.
    for (Row& row : rows) {
      row.blocks.clear();
      row.slot.Release();
    }
    for (Row& row : rows) {
      if (!computed.ok()) {
        // Nobody knows how far each state got: every claim about it fails from now on.
        row.s->record->Invalidate();
        Finish(row.s, FinishReason::kError, computed);
        continue;
      }
      Absorb(&row);
    }
  }
  RemoveFinished();
  Compact(options_.step_compact_bytes);
  UpdateGauges();
}

bool Core::Compact(uint64_t bytes_max) {
  if (bytes_max == 0) return false;
  const StatusOr<CompactResult> packed = deps_.memory->Compact(bytes_max);
  if (!packed.ok()) {
    LogError(absl::StrCat("compaction: ", packed.status().message()));
    return false;
  }
  return packed->more;
}

std::vector<Core::Row> Core::PlanRows() {
  std::vector<Sequence*> sequences;
  std::vector<SchedulableSequence> schedulable;
  Sequence* const audit = AuditRunning();
  for (SequencePtr& s : running_) {
    if (s.get() == audit) continue;
    sequences.push_back(s.get());
    schedulable.push_back({s->boundary(), s->known(), ChunkEnd(*s)});
  }
  std::vector<Row> rows;
  int64_t left = options_.token_budget;
  const auto plan = [&](Sequence* s, int64_t tokens) {
    Row row;
    row.s = s;
    row.tokens = tokens;
    left -= tokens;
    rows.push_back(std::move(row));
  };
  for (const PlannedChunk& chunk : PlanStep(schedulable, options_.token_budget))
    plan(sequences[chunk.index], chunk.tokens);
  if (audit != nullptr) {
    const int64_t tokens =
        std::min({left, audit->target - audit->boundary(), AuditTokens(rows.empty())});
    if (tokens > 0) plan(audit, tokens);
  }
  // Blocks for the chunk, oldest sequence first; whoever is youngest gives way.
  bool held_back = false;
  for (Row& row : rows) {
    if (row.s->phase != Phase::kRunning || IsFinished(row.s)) continue;
    if (GiveBlocks(row.s, row.s->boundary() + row.tokens)) continue;
    row.tokens = 0;
    held_back = true;
  }
  std::erase_if(rows, [&](const Row& r) {
    return r.tokens == 0 || r.s->phase != Phase::kRunning || IsFinished(r.s);
  });
  stalled_ = held_back && rows.empty();
  // Preempted sequences go back to the front of the queue, oldest first.
  for (auto it = running_.end(); it != running_.begin();) {
    --it;
    if ((*it)->phase != Phase::kWaiting) continue;
    waiting_.push_front(std::move(*it));
    it = running_.erase(it);
  }
  return rows;
}

// Who gives way: the youngest, since it has the least to lose. One whose blocks a peer reads gives
// nothing back at once, so it is left alone while such memory is on its way. Null: nobody.
Sequence* Core::Victim() {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    Sequence* s = it->get();
    if (s->phase != Phase::kRunning || IsFinished(s) || s->audit != nullptr) continue;
    if (withdrawing_ == 0 || s->streamed == 0) return s;
  }
  return nullptr;
}

// Blocks for `s` up to `end`, taken from others if need be. False if `s` is to be left out of this
// step, as it is: memory is coming. On true it has them, or it has given way or ended itself.
bool Core::GiveBlocks(Sequence* s, int64_t end) {
  Status status = EnsureBlocks(s, end);
  if (!status.ok() && s->audit != nullptr) {
    DropAudit();
    return true;
  }
  while (!status.ok() && s->phase == Phase::kRunning) {
    const auto runs = [&](const SequencePtr& r) {
      return r->phase == Phase::kRunning && !IsFinished(r.get()) && r->audit == nullptr;
    };
    if (std::count_if(running_.begin(), running_.end(), runs) == 1 && pulling_.empty() &&
        NothingComesBack()) {
      // What a peer let go of between the two looks is there now.
      status = EnsureBlocks(s, end);
      if (!status.ok()) Finish(s, FinishReason::kError, status);
      return true;
    }
    Sequence* const victim = Victim();
    if (victim == nullptr) return false;
    Preempt(victim);
    if (victim != s) status = EnsureBlocks(s, end);
  }
  return true;
}

Status Core::EnsureBlocks(Sequence* s, int64_t end) {
  BATON_RETURN_IF_ERROR(DropPassedBlocks(s));
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    std::vector<BlockHandle>& blocks = s->memory.blocks[g];
    while (static_cast<int64_t>(s->memory.first[g] + blocks.size()) < BlocksFor(end)) {
      BATON_ASSIGN_OR_RETURN(const BlockHandle block, ReserveBlock(g, s->owner, FillMode::kZero));
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->Activate(block));
      blocks.push_back(block);
    }
  }
  return absl::OkStatus();
}

// A window slides with the boundary; a state kept at an earlier one still needs what it saw.
Status Core::DropPassedBlocks(Sequence* s) {
  int64_t seen_from = s->boundary();
  if (s->rolling_boundary > 0) seen_from = std::min(seen_from, s->rolling_boundary);
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    const size_t keep = layout().FirstBlock(g, static_cast<uint64_t>(seen_from));
    size_t& first = s->memory.first[g];
    if (keep <= first) continue;
    auto& blocks = s->memory.blocks[g];
    auto& digests = s->memory.block_digests[g];
    const auto passed = static_cast<ptrdiff_t>(keep - first);
    for (ptrdiff_t b = 0; b < passed; ++b)  // full, so sealed
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->DropReference(blocks[b]));
    blocks.erase(blocks.begin(), blocks.begin() + passed);
    digests.erase(digests.begin(), digests.begin() + passed);
    first = keep;
  }
  return absl::OkStatus();
}

Status Core::Lease(Row* row) {
  Sequence* s = row->s;
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    BATON_ASSIGN_OR_RETURN(BlockLeaseSet set,
                           pools_.blocks[g]->AcquireAll(s->memory.blocks[g], LeaseFor::kCompute));
    row->blocks.push_back(std::move(set));
  }
  if (s->memory.slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(row->slot, pools_.slots->Acquire(*s->memory.slot, LeaseFor::kCompute));
  }
  return absl::OkStatus();
}

Status Core::Forward(std::vector<Row>* rows) {
  const auto vocab = static_cast<size_t>(deps_.model->vocab_size());
  size_t sampled = 0;
  int64_t total = 0;
  for (Row& row : *rows) {
    row.sample = !row.s->is_job() && row.s->boundary() + row.tokens == row.s->known();
    row.score = row.s->scores_prompt() && row.s->boundary() < row.s->request.prompt_len - 1;
    sampled += row.score ? static_cast<size_t>(row.tokens) : row.sample;
    total += row.tokens;
  }
  if (logits_.size() < sampled * vocab) logits_.resize(sampled * vocab);
  std::vector<model::BatchItem> batch(rows->size());
  float* next_logits = logits_.data();
  for (size_t i = 0; i < rows->size(); ++i) {
    Row& row = (*rows)[i];
    model::BatchItem& item = batch[i];
    item.tokens =
        std::span<const TokenId>(row.s->tokens)
            .subspan(static_cast<size_t>(row.s->boundary()), static_cast<size_t>(row.tokens));
    item.position = row.s->boundary();
    item.slot = row.slot.held() ? row.slot.bytes().data() : nullptr;
    row.tables.resize(row.blocks.size());
    for (size_t g = 0; g < row.blocks.size(); ++g) {
      const auto held = row.blocks[g].pointers();
      const size_t passed = row.s->memory.first[g];
      if (passed == 0) {
        item.blocks.push_back(held);
        continue;
      }
      row.tables[g].assign(passed, nullptr);
      row.tables[g].insert(row.tables[g].end(), held.begin(), held.end());
      item.blocks.push_back(row.tables[g]);
    }
    item.logits_mode = row.sample ? model::LogitsMode::kLast : model::LogitsMode::kNone;
    if (row.score) item.logits_mode = model::LogitsMode::kAll;
    if (row.sample || row.score) {
      row.logits = next_logits;
      item.logits = next_logits;
      next_logits += vocab * (row.score ? static_cast<size_t>(row.tokens) : 1);
    }
  }
  stats_.steps.fetch_add(1, std::memory_order_relaxed);
  stats_.computed_rows.fetch_add(static_cast<uint64_t>(total), std::memory_order_relaxed);
  if (total > stats_.longest_step_rows.load(std::memory_order_relaxed))
    stats_.longest_step_rows.store(total, std::memory_order_relaxed);
  return deps_.model->Forward(batch, &workspace_, &thread_pool_);
}

// The logits after token p say how likely token p + 1 was. False if they are not finite: the
// request has then ended.
bool Core::ScoreRows(const Row& row) {
  Sequence* s = row.s;
  const auto vocab = static_cast<size_t>(deps_.model->vocab_size());
  std::vector<PromptScore>& scores = s->result.prompt_scores;
  scores.resize(static_cast<size_t>(s->request.prompt_len - 1));
  for (int64_t i = 0; i < row.tokens && s->boundary() + i < s->request.prompt_len - 1; ++i) {
    const auto at = static_cast<size_t>(s->boundary() + i);
    const std::span<const float> logits(row.logits + static_cast<size_t>(i) * vocab, vocab);
    if (!AllFinite(ElementType::kF32, std::as_bytes(logits))) {
      Finish(s, FinishReason::kError,
             Reject(Reason::kNonFinite,
                    absl::StrCat("logits at position ", at + 1, " are not finite")));
      return false;
    }
    scores[at] =
        ScoreToken(logits, s->tokens[at + 1], s->request.sampling.prompt_logprobs, &scratch_);
  }
  return true;
}

void Core::Absorb(Row* row) {
  Sequence* s = row->s;
  if (row->score && !ScoreRows(*row)) return;
  // The record moves in the same place as the state: this is what sealing is checked against.
  s->record->Advance(std::span<const TokenId>(s->tokens).subspan(static_cast<size_t>(s->boundary()),
                                                                 static_cast<size_t>(row->tokens)));
  if (const Status sealed = SealFullBlocks(s); !sealed.ok()) {
    Finish(s, FinishReason::kError, sealed);
    return;
  }
  if (s->is_job()) {
    if (s->boundary() < s->target) {
      if (s->stops.contains(s->boundary())) TakeCheckpoint(s);
      if (const Status streamed = StreamBlocks(s); !streamed.ok())
        Finish(s, FinishReason::kError, streamed);
      return;
    }
    if (const Status sealed = SealJob(s); !sealed.ok()) Finish(s, FinishReason::kError, sealed);
    return;
  }
  if (options_.prefix_caching) {
    if (s->stops.contains(s->boundary())) {
      TakeCheckpoint(s);
      // Made or not: nobody is to wait through the output for a state of the prompt.
      if (s->NextStop() == 0) store_.index().ClearPending(s->owner);
    }
    if (s->boundary() % kBlockTokens == 0 && s->boundary() >= s->request.prompt_len)
      RollCheckpoint(s);
  }
  if (row->sample) SampleRow(row);
}

void Core::SampleRow(Row* row) {
  Sequence* s = row->s;
  const auto vocab = static_cast<size_t>(deps_.model->vocab_size());
  const size_t last = row->score ? static_cast<size_t>(row->tokens - 1) : 0;
  const std::span<const float> logits(row->logits + last * vocab, vocab);
  if (!AllFinite(ElementType::kF32, std::as_bytes(logits))) {
    Finish(s, FinishReason::kError,
           Reject(Reason::kNonFinite,
                  absl::StrCat("logits at position ", s->boundary(), " are not finite")));
    return;
  }
  SampleInput input;
  input.logits = logits;
  input.history = s->tokens;
  input.position = s->boundary();
  input.output_tokens = s->output_tokens();
  Sample sample = SampleToken(input, s->request.sampling, &scratch_);

  Sha256Hasher hasher;
  hasher.Update(std::as_bytes(std::span(s->logits_hash.bytes)));
  hasher.Update(std::as_bytes(logits));
  s->logits_hash = hasher.Finish();

  const auto& stops = s->request.sampling.stop_token_ids;
  const bool forced =
      input.output_tokens < static_cast<int64_t>(s->request.sampling.forced_tokens.size());
  if (!forced && std::find(stops.begin(), stops.end(), sample.token) != stops.end()) {
    s->result.stop_token = sample.token;
    Finish(s, FinishReason::kStop);
    return;
  }
  s->tokens.push_back(sample.token);
  ++s->result.usage.completion_tokens;
  stats_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
  TokenEvent event;
  event.token = sample.token;
  event.logprob = sample.logprob;
  event.top = std::move(sample.top);
  event.logits_hash = s->logits_hash;
  s->sink->OnTokens(std::span(&event, 1));
  if (s->output_tokens() >= s->request.sampling.max_tokens ||
      static_cast<int64_t>(s->tokens.size()) >= max_model_len())
    Finish(s, FinishReason::kLength);
}

bool Core::IsFinished(const Sequence* s) const {
  return std::find(finished_.begin(), finished_.end(), s) != finished_.end();
}

void Core::Finish(Sequence* s, FinishReason reason, Status error) {
  if (IsFinished(s)) return;
  finished_.push_back(s);
  // The checkpoint is stored before the client can know of the end, so that a second turn sent at
  // once finds it.
  if (!s->is_job() && reason != FinishReason::kError) KeepRolling(s);
  ReleaseMemory(s);
  Notify(s, reason, std::move(error));
}

void Core::Notify(Sequence* s, FinishReason reason, Status error) {
  if (s->is_job()) {
    if (s->deliver == nullptr) return;  // an audit, or delivered already
    s->deliver(error.ok() ? absl::InternalError("prefill ended without a bundle")
                          : StatusOr<std::shared_ptr<const Checkpoint>>(std::move(error)),
               0);
    return;
  }
  s->result.reason = reason;
  if (reason == FinishReason::kError || reason == FinishReason::kCancelled)
    s->result.error = std::move(error);
  if (reason == FinishReason::kError)
    LogError(absl::StrCat("request ", s->owner.value, " failed: ", s->result.error.message()));
  s->sink->OnFinish(s->result);
}

void Core::RemoveFinished() {
  if (finished_.empty()) return;
  running_.remove_if([&](const SequencePtr& s) { return IsFinished(s.get()); });
  finished_.clear();
}

void Core::UpdateGauges() {
  stats_.running.store(static_cast<int64_t>(running_.size()), std::memory_order_relaxed);
  stats_.waiting.store(static_cast<int64_t>(waiting_.size()), std::memory_order_relaxed);
  stats_.pulling.store(static_cast<int64_t>(pulling_.size()), std::memory_order_relaxed);
  stats_.parked_bytes.store(parking_.used, std::memory_order_relaxed);
  stats_.checkpoints_held.store(static_cast<int64_t>(store_.size()), std::memory_order_relaxed);
}

}  // namespace baton::engine
