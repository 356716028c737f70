// A bundle at rest in a tier comes back as a checkpoint; the sequence then forks it like any other.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "engine/core.h"

namespace baton::engine {

// False if memory is short: the sequence goes on without.
bool Core::StartRestore(SequencePtr* sequence, const Tiering::Found& found) {
  Sequence* s = sequence->get();
  --s->restores_left;
  if (!ReserveBundle(s, found.boundary).ok()) {
    ReleaseMemory(s);
    s->restores_left = 0;
    return false;
  }
  PullTask task;
  task.owner = s->owner;
  task.cancel = s->cancel->get_token();
  task.tier = found.tier;
  Ask& ask = task.request.ask;
  ask.attempt = Attempt(next_attempt_++);
  ask.tokens.assign(s->tokens.begin(), s->tokens.begin() + found.boundary);
  ask.expected = s->base.At(PrefixChain(s->base.scope, ask.tokens));
  task.request.slot = s->memory.slot;
  task.request.blocks = s->memory.blocks;
  s->restoring = found.boundary;
  s->phase = Phase::kPulling;
  pulling_.push_back(std::move(*sequence));
  deps_.start_pull(std::move(task));
  return true;
}

// VERIFIED units become a checkpoint in memory.
Status Core::KeepRestored(Sequence* s, PullResult pulled) {
  Status status;
  if (pulled.slot.has_value()) status = pools_.slots->Seal(*pulled.slot);
  for (size_t g = 0; g < pools_.blocks.size(); ++g)
    for (const BlockHandle block : pulled.blocks[g])
      if (status.ok()) status = pools_.blocks[g]->Seal(block);
  if (!status.ok()) {
    s->memory.slot = pulled.slot;
    s->memory.blocks = std::move(pulled.blocks);
    SetFirstBlocks(s, static_cast<int64_t>(pulled.report.seal.identity.boundary));
    ReleaseMemory(s);  // frees VERIFIED and SEALED units alike
    return status;
  }
  auto checkpoint = std::make_shared<Checkpoint>(pools_, std::move(pulled.report.seal), pulled.slot,
                                                 std::move(pulled.blocks),
                                                 std::move(pulled.report.block_digests));
  const auto blocks = static_cast<size_t>(checkpoint->boundary() / kBlockTokens);
  store_.Insert(checkpoint, std::span<const Sha256>(s->block_hashes).first(blocks));
  // Up into the faster tiers as well; those that have it say so.
  const auto tokens = std::span<const TokenId>(s->tokens).first(checkpoint->boundary());
  deps_.tiers->Demote(std::move(checkpoint), PrefixChain(s->base.scope, tokens));
  return absl::OkStatus();
}

void Core::OnRestored(OwnerId owner, PullResult pulled) {
  SequencePtr sequence = TakePulling(owner);
  Sequence* s = sequence.get();
  s->phase = Phase::kWaiting;
  s->memory = SequenceMemory();  // with the restore, or free again
  const int64_t boundary = *std::exchange(s->restoring, std::nullopt);
  Status status = pulled.status;
  HandoffRecord record;
  record.state_id = pulled.report.state_id.Hex();
  record.boundary = boundary;
  record.parts = static_cast<int64_t>(pulled.report.parts);
  record.kv_bytes = static_cast<int64_t>(pulled.report.kv_bytes);
  record.state_bytes = static_cast<int64_t>(pulled.report.state_bytes);
  record.connector = pulled.report.connector;
  if (status.ok()) status = KeepRestored(s, std::move(pulled));
  if (status.ok()) {
    stats_.restores.fetch_add(1);
    s->restores_left = 0;
  } else if (!absl::IsNotFound(status)) {
    stats_.restore_rejects.fetch_add(1);
    if (!s->is_job()) ++s->result.usage.rejects;
    LogWarning(absl::StrCat("restore from the ", record.connector, " tier at boundary ", boundary,
                            " refused: ", status.message()));
  }
  if (s->cancel->stop_requested()) {
    Notify(s, FinishReason::kCancelled, Reject(Reason::kCancelled, "cancelled by the client"));
    return;
  }
  record.verified = status.ok();
  if (!status.ok()) {
    if (const auto reason = ReasonOf(status)) record.reason = ReasonName(*reason);
    record.message = std::string(status.message());
  }
  if (!absl::IsNotFound(status)) s->result.handoffs.push_back(std::move(record));
  waiting_.push_front(std::move(sequence));
}

}  // namespace baton::engine
