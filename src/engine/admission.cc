// How a sequence gets memory and a starting state: fork of a checkpoint, a pulled bundle, or
// nothing (a zero-filled slot at boundary 0).
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "engine/core.h"
#include "handoff/transfer_plan.h"

namespace baton::engine {
namespace {

// Deepest boundary a sequence may start from: a job may be served whole, a generation must compute
// at least its last known token.
int64_t StartLimit(const Sequence& s) {
  return s.is_job() ? s.target : HandoffBoundary(static_cast<int64_t>(s.tokens.size()));
}

// Of the endpoint, or of the one a transfer plan converses with.
std::string SchemeOf(const std::string& endpoint) {
  const StatusOr<TransferPlan> plan = ParseTransferPlan(endpoint);
  const std::string& control = plan.ok() ? plan->control : endpoint;
  return control.substr(0, control.find(':'));
}

}  // namespace

void Core::Admit() {
  if (preempted_ && !(running_.empty() && pulling_.empty() && NothingComesBack())) return;
  preempted_ = false;
  std::vector<SequencePtr> put_off;
  while (!waiting_.empty() &&
         static_cast<int64_t>(running_.size() + pulling_.size()) < options_.max_num_seqs) {
    SequencePtr s = std::move(waiting_.front());
    waiting_.pop_front();
    const Start start = TryStart(&s);
    if (start == Start::kDone) continue;
    if (start == Start::kWaits) {
      put_off.push_back(std::move(s));
      continue;
    }
    // No room. Somebody else will give some back, unless there is nobody.
    if (running_.empty() && pulling_.empty() && NothingComesBack()) {
      // What a peer let go of between the two looks is there now.
      if (TryStart(&s) == Start::kDone) continue;
      Notify(s.get(), FinishReason::kError,
             Reject(Reason::kNoCapacity,
                    absl::StrCat("the request's ", s->tokens.size(),
                                 " tokens do not fit in memory even alone; give the worker more "
                                 "KV blocks or state slots")));
      continue;
    }
    waiting_.push_front(std::move(s));
    break;
  }
  for (; !put_off.empty(); put_off.pop_back()) waiting_.push_front(std::move(put_off.back()));
  UpdateGauges();
}

// Somebody is computing a state that this sequence could go on from, and what it saves is worth the
// wait: both share the step's token budget, so waiting costs no more than computing the same.
bool Core::ComingSoon(const Sequence& s, int64_t held, int64_t limit) {
  if (!options_.prefix_caching || s.pull.has_value() || s.scores_prompt()) return false;
  const PrefixIndex::Pending pending =
      store_.index().DeepestPending({RootOf(s.base), s.block_hashes}, held, limit, s.owner);
  return pending.boundary > held;
}

// Done: the sequence was taken (it runs, pulls, or has ended). Otherwise it holds no memory.
Core::Start Core::TryStart(SequencePtr* sequence) {
  Sequence* s = sequence->get();
  if (s->block_hashes.size() != s->tokens.size() / kBlockTokens)
    s->block_hashes = PrefixChain::BlockHashes(s->base.scope, s->tokens);
  if (s->parked != nullptr) {
    const Status resumed = Unpark(s);
    if (resumed.ok()) {
      Run(std::move(*sequence));
      return Start::kDone;
    }
    if (ReasonOf(resumed) == Reason::kNoCapacity) return Start::kNoMemory;
    LogError(absl::StrCat("request ", s->owner.value,
                          ": parked bundle refused, computing again: ", resumed.message()));
    stats_.park_rejects.fetch_add(1);
    NoteRefused(s, "parking", static_cast<int64_t>(s->parked->boundary()), resumed);
    s->parked.reset();
  }
  const bool caching = options_.prefix_caching && !s->scores_prompt();
  const int64_t limit = StartLimit(*s);
  const std::vector<Sha256>& hashes = s->block_hashes;
  if (caching && !s->sight.has_value())
    s->sight = store_.index().See({RootOf(s->base), hashes}, limit);
  std::shared_ptr<const Checkpoint> hit;
  for (;;) {
    std::shared_ptr<const Checkpoint> best =
        caching ? store_.FindDeepest(s->base, hashes, static_cast<uint64_t>(limit)) : nullptr;
    const int64_t held = best == nullptr ? 0 : static_cast<int64_t>(best->boundary());
    if (deps_.tiers != nullptr && caching && s->restores_left > 0) {
      const auto found = deps_.tiers->FindDeepest(s->base, hashes, limit);
      if (found.has_value() && found->boundary > held && StartRestore(sequence, *found))
        return Start::kDone;
    }
    if (s->is_job() && held == s->target) {
      const ContentIdentity identity = best->seal().identity;
      const PrefixChain chain(s->base.scope, s->tokens);
      if (const Status ok = VerifyCheckpoint(*best, identity, chain); !ok.ok()) {
        LogError(absl::StrCat("checkpoint refused: ", ok.message()));
        stats_.checkpoint_rejects.fetch_add(1);
        store_.Remove(*best);
        continue;
      }
      stats_.jobs_served.fetch_add(1);
      stats_.jobs_from_cache.fetch_add(1);
      MaybeAudit(*s, best);
      std::exchange(s->deliver, nullptr)(std::move(best), s->target);
      sequence->reset();
      return Start::kDone;
    }
    if (s->is_job() && options_.serve_from_cache_only) {
      Notify(s, FinishReason::kError,
             Reject(Reason::kMissingPart, absl::StrCat("no checkpoint at boundary ", s->target,
                                                       " is held here any more")));
      sequence->reset();
      return Start::kDone;
    }
    if (s->pull.has_value() && s->pull->boundary > held && deps_.can_pull)
      return StartPull(sequence, std::move(best)) ? Start::kDone : Start::kNoMemory;
    if (ComingSoon(*s, held, limit)) {
      stats_.waits_for_prefix.fetch_add(1, std::memory_order_relaxed);
      return Start::kWaits;
    }
    const Status started = best != nullptr ? Fork(s, best) : StartFresh(s);
    if (started.ok()) {
      hit = std::move(best);
      break;
    }
    ReleaseMemory(s);
    if (ReasonOf(started) == Reason::kNoCapacity) {
      // Making room may have evicted the very checkpoint: then its memory is there now.
      if (best == nullptr || store_.Holds(*best)) return Start::kNoMemory;
      continue;
    }
    if (best == nullptr) {
      Notify(s, FinishReason::kError, started);
      sequence->reset();
      return Start::kDone;
    }
    LogError(absl::StrCat("checkpoint refused: ", started.message()));
    stats_.checkpoint_rejects.fetch_add(1);
    NoteRefused(s, "memory", static_cast<int64_t>(best->boundary()), started);
    store_.Remove(*best);
  }
  if (hit != nullptr) MaybeAudit(*s, hit);
  if (!s->is_job()) {
    s->result.usage.cached_tokens = std::min(s->boundary(), s->request.prompt_len);
    stats_.prefix_queries.fetch_add(static_cast<uint64_t>(s->request.prompt_len));
    stats_.prefix_hits.fetch_add(static_cast<uint64_t>(s->result.usage.cached_tokens));
  }
  Run(std::move(*sequence));
  return Start::kDone;
}

// Boundaries where this sequence leaves states behind besides its end, and the marks that let
// others wait for them.
void Core::PlanCheckpoints(Sequence* s) {
  if (!options_.prefix_caching || !s->sight.has_value() || s->audit != nullptr) return;
  const auto known = static_cast<int64_t>(s->tokens.size());
  PolicyRequest request;
  request.start = s->boundary();
  const int64_t end = s->is_job() ? s->target : HandoffBoundary(known);
  const int64_t conversation = FloorToGrid(std::min(s->request.conversation_len, known - 1));
  request.conversation_end = !s->is_job() && conversation > 0 ? conversation : end;
  for (const int64_t at : PlanStates(options_.checkpoint_policy, *s->sight, request))
    s->stops.insert(at);
  if (end > s->boundary()) s->stops.insert(end);
  for (const int64_t at : s->stops)
    store_.index().MarkPending(
        PrefixPath{RootOf(s->base), s->block_hashes}.First(static_cast<size_t>(at / kBlockTokens)),
        s->owner);
}

// A bundle of this process's own that did not verify shows in the answer like a peer's.
void Core::NoteRefused(Sequence* s, const char* from, int64_t boundary, const Status& why) {
  if (s->is_job()) return;
  HandoffRecord record;
  record.boundary = boundary;
  record.connector = from;
  if (const auto reason = ReasonOf(why)) record.reason = ReasonName(*reason);
  record.message = std::string(why.message());
  s->result.handoffs.push_back(std::move(record));
  ++s->result.usage.rejects;
}

void Core::Run(SequencePtr sequence) {
  Sequence* s = sequence.get();
  s->phase = Phase::kRunning;
  s->local_start = s->boundary();
  s->stops.clear();
  PlanCheckpoints(s);
  if (s->is_job()) {
    s->stops.insert(s->target);
    // What a checkpoint or a pull has brought can go to the peer at once.
    if (const Status streamed = StreamBlocks(s); !streamed.ok())
      LogWarning(absl::StrCat("blocks not offered early: ", streamed.message()));
  } else {
    const auto known = static_cast<int64_t>(s->tokens.size());
    s->result.usage.local_prefill_tokens = known - s->boundary();
  }
  // Arrival order is the order of owner ids.
  auto at = std::find_if(running_.begin(), running_.end(),
                         [&](const SequencePtr& r) { return r->owner > s->owner; });
  running_.insert(at, std::move(sequence));
}

Status Core::StartFresh(Sequence* s) {
  s->memory.Clear(pools_.blocks.size());
  if (layout().has_state()) {
    BATON_ASSIGN_OR_RETURN(s->memory.slot, ReserveSlot(s->owner, FillMode::kZero));
    BATON_RETURN_IF_ERROR(pools_.slots->Activate(*s->memory.slot));
  }
  s->record.emplace(s->base);
  return absl::OkStatus();
}

// Copies the checkpoint's state into an own slot and shares its blocks, after proving both.
Status Core::Fork(Sequence* s, std::shared_ptr<const Checkpoint> checkpoint) {
  const auto boundary = static_cast<size_t>(checkpoint->boundary());
  PrefixChain chain(s->base.scope, std::span<const TokenId>(s->tokens).first(boundary));
  BATON_RETURN_IF_ERROR(VerifyCheckpoint(*checkpoint, s->base.At(chain), chain));
  if (checkpoint->slot().has_value()) {
    BATON_ASSIGN_OR_RETURN(s->memory.slot, ReserveSlot(s->owner, FillMode::kGapsOnly));
    BATON_RETURN_IF_ERROR(pools_.slots->CopyInto(*checkpoint->slot(), *s->memory.slot));
    BATON_RETURN_IF_ERROR(pools_.slots->Activate(*s->memory.slot));
  }
  s->memory.Clear(pools_.blocks.size());
  SetFirstBlocks(s, static_cast<int64_t>(boundary));
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    for (const BlockHandle block : checkpoint->blocks()[g]) {
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->AddReference(block));
      s->memory.blocks[g].push_back(block);
    }
  }
  s->memory.block_digests = checkpoint->block_digests();
  s->memory.sealed = boundary / kBlockTokens;
  s->record.emplace(s->base, std::move(chain));
  s->parent = checkpoint->seal().state_id;
  return absl::OkStatus();
}

// Reserves the destination and hands the pull to the pull threads.
bool Core::StartPull(SequencePtr* sequence, std::shared_ptr<const Checkpoint> best) {
  Sequence* s = sequence->get();
  const int64_t boundary = s->pull->boundary;
  PullTask task;
  task.owner = s->owner;
  task.cancel = s->cancel->get_token();
  Ask& ask = task.request.ask;
  ask.attempt = Attempt(next_attempt_++);
  ask.tokens.assign(s->tokens.begin(), s->tokens.begin() + boundary);
  ask.expected = s->base.At(PrefixChain(s->base.scope, ask.tokens));
  ask.label = s->request.label;
  task.request.endpoint = s->pull->endpoint;
  if (best != nullptr && !s->is_job()) {
    for (const auto& [scheme, own] : options_.own_endpoints)
      if (scheme == SchemeOf(s->pull->endpoint)) ask.hint = PrefixHint{best->boundary(), own};
  }
  if (!ReserveBundle(s, boundary).ok()) {
    ReleaseMemory(s);
    return false;
  }
  task.request.slot = s->memory.slot;
  task.request.blocks = s->memory.blocks;
  s->phase = Phase::kPulling;
  pulling_.push_back(std::move(*sequence));
  deps_.start_pull(std::move(task));
  return true;
}

Core::SequencePtr Core::TakePulling(OwnerId owner) {
  auto it = std::find_if(pulling_.begin(), pulling_.end(),
                         [&](const SequencePtr& s) { return s->owner == owner; });
  BATON_CHECK(it != pulling_.end());
  SequencePtr sequence = std::move(*it);
  pulling_.erase(it);
  return sequence;
}

void Core::OnPulled(OwnerId owner, PullResult pulled) {
  SequencePtr sequence = TakePulling(owner);
  Sequence* s = sequence.get();
  const PullReport& report = pulled.report;

  HandoffRecord record;
  record.state_id = report.state_id.Hex();
  record.boundary = s->pull->boundary;
  record.parts = static_cast<int64_t>(report.parts);
  record.kv_bytes = static_cast<int64_t>(report.kv_bytes);
  record.state_bytes = static_cast<int64_t>(report.state_bytes);
  record.milliseconds = 1e3 * (report.pull_seconds + report.verify_seconds);
  record.wait_milliseconds = 1e3 * report.wait_seconds;
  record.connector = report.connector.empty() ? SchemeOf(s->pull->endpoint) : report.connector;
  record.verified = pulled.status.ok();
  if (!pulled.status.ok()) {
    if (const auto reason = ReasonOf(pulled.status)) record.reason = ReasonName(*reason);
    record.message = std::string(pulled.status.message());
  }
  s->result.handoffs.push_back(std::move(record));

  if (!pulled.status.ok()) {
    // A later try may find at the peer what this one made it compute. If the offer came, the peer
    // has said what was there before; else nobody knows, and nothing is counted.
    if (report.offered)
      s->pull->reused_max =
          std::min(s->pull->reused_max, static_cast<int64_t>(report.reused_tokens));
    else if (report.asked)
      s->pull->reused_max = 0;
    s->memory = SequenceMemory();  // the client has given every unit back
    AfterFailedPull(std::move(sequence), pulled.status);
    return;
  }
  // Those reserved, or fresh ones where a connector died.
  s->memory.slot = pulled.slot;
  s->memory.blocks = std::move(pulled.blocks);
  SetFirstBlocks(s, s->pull->boundary);
  Status status;
  if (s->memory.slot.has_value()) status = pools_.slots->Activate(*s->memory.slot);
  for (size_t g = 0; g < pools_.blocks.size(); ++g)
    for (const BlockHandle block : s->memory.blocks[g])
      if (status.ok()) status = pools_.blocks[g]->Seal(block);
  if (!status.ok()) {
    ReleaseMemory(s);
    AfterFailedPull(std::move(sequence), status);
    return;
  }
  s->result.usage.cached_tokens = std::min(
      {static_cast<int64_t>(report.reused_tokens), s->pull->reused_max, s->request.prompt_len});
  s->memory.block_digests = report.block_digests;
  s->memory.sealed = static_cast<size_t>(s->pull->boundary / kBlockTokens);
  s->record.emplace(s->base,
                    PrefixChain(s->base.scope, std::span<const TokenId>(s->tokens).first(
                                                   static_cast<size_t>(s->pull->boundary))));
  s->parent = report.state_id;
  s->pull.reset();
  if (s->cancel->stop_requested()) {
    ReleaseMemory(s);
    Notify(s, FinishReason::kCancelled, Reject(Reason::kCancelled, "cancelled by the client"));
    return;
  }
  // The pulled state is about to be advanced in place: keep a copy, so that the same prompt and a
  // next turn find it here.
  if (options_.prefix_caching && !s->is_job()) TakeCheckpoint(s);
  Run(std::move(sequence));
}

void Core::AfterFailedPull(SequencePtr sequence, const Status& status) {
  Sequence* s = sequence.get();
  if (s->cancel->stop_requested()) {
    Notify(s, FinishReason::kCancelled, status);
    return;
  }
  ++s->result.usage.rejects;
  LogWarning(absl::StrCat("hand-off for request ", s->owner.value, " at boundary ",
                          s->pull->boundary, " refused: ", status.message()));
  if (s->pull->tries_left > 0) {
    --s->pull->tries_left;
  } else if (options_.fail_on_reject && !s->is_job()) {
    Notify(s, FinishReason::kError, status);
    return;
  } else {
    if (!s->is_job()) {
      const auto computed = static_cast<uint64_t>(s->pull->boundary);
      s->result.usage.recomputed_tokens = s->pull->boundary;
      stats_.recomputed_tokens.fetch_add(computed);
    }
    s->pull.reset();
  }
  waiting_.push_front(std::move(sequence));
}

// Gives up something that nobody waits for, for an owner that is no audit itself. False if there is
// nothing left.
bool Core::MakeRoom(OwnerId owner) {
  return owner.value < kAuditOwner &&
         (store_.EvictOne() || (deps_.tiers != nullptr && deps_.tiers->Shed()) || DropAudit());
}

StatusOr<SlotHandle> Core::ReserveSlot(OwnerId owner, FillMode fill) {
  ReserveOptions options;
  options.owner = owner;
  options.fill = fill;
  for (;;) {
    StatusOr<SlotHandle> slot = pools_.slots->Reserve(options);
    if (slot.ok() || ReasonOf(slot.status()) != Reason::kNoCapacity || !MakeRoom(owner))
      return slot;
  }
}

StatusOr<BlockHandle> Core::ReserveBlock(size_t group, OwnerId owner, FillMode fill) {
  ReserveOptions options;
  options.owner = owner;
  options.fill = fill;
  for (;;) {
    StatusOr<BlockHandle> block = pools_.blocks[group]->Reserve(options);
    if (block.ok() || ReasonOf(block.status()) != Reason::kNoCapacity || !MakeRoom(owner))
      return block;
  }
}

// No peer and no tier is reading from this node's memory, and nothing in quarantine will fall
// silent: to wait for memory is of no use.
bool Core::NothingComesBack() const {
  if (deps_.tiers != nullptr && deps_.tiers->Holding()) return false;
  uint64_t leases = pools_.slots == nullptr ? 0 : pools_.slots->Stats().leases;
  for (const BlockPool* pool : pools_.blocks) leases += pool->Stats().leases;
  return leases == 0 && (deps_.reclaim == nullptr || !deps_.reclaim());
}

void Core::ReleaseMemory(Sequence* s) {
  preempted_ = false;
  DropRolling(s);
  WithdrawBlocks(s);
  store_.index().ClearPending(s->owner);
  auto report = [](const Status& status) {
    if (!status.ok()) LogError(absl::StrCat("releasing memory: ", status.message()));
  };
  if (s->memory.slot.has_value()) report(pools_.slots->Free(*s->memory.slot));
  for (size_t g = 0; g < s->memory.blocks.size(); ++g) {
    const auto& blocks = s->memory.blocks[g];
    for (size_t b = 0; b < blocks.size(); ++b) {
      report(s->memory.first[g] + b < s->memory.sealed ? pools_.blocks[g]->DropReference(blocks[b])
                                                       : pools_.blocks[g]->Free(blocks[b]));
    }
  }
  s->memory = SequenceMemory();
  s->record.reset();
  s->parent = {};
}

// Gives back every unit. The sequence goes on from its parked bundle later or, without one, from
// its tokens (or a checkpoint); by canonical numerics with the same bits either way.
void Core::Preempt(Sequence* s) {
  stats_.preemptions.fetch_add(1);
  if (const Status parked = Park(s); !parked.ok() && ReasonOf(parked) != Reason::kNoCapacity)
    LogWarning(absl::StrCat("preempted without its state: ", parked.message()));
  ReleaseMemory(s);
  s->phase = Phase::kWaiting;
  preempted_ = true;
}

}  // namespace baton::engine
