// Replay audit: finds what no digest can, a state that was wrong before it was sealed. A share of
// the hits is computed again from an earlier state, some of them from token 0, off the critical
// path, and compared part by part with the seal that was reused: digests of the same bytes under
// the same seed. A difference revokes the checkpoint and all its descendants.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/core.h"

namespace baton::engine {
namespace {

constexpr size_t kAuditsQueuedMax = 16;
// While something else runs, an audit gets this many tokens every so many steps.
constexpr int64_t kAuditChunk = kBlockTokens;

// "" if equal, else the first part that differs.
std::string FirstDifference(const Layout& layout,
                            const Seal& sealed,
                            const std::vector<std::vector<Digest128>>& sealed_blocks,
                            const Seal& again,
                            const std::vector<std::vector<Digest128>>& blocks) {
  for (size_t p = 0; p < layout.StatePartCount(); ++p)
    if (sealed.state_digests[p] != again.state_digests[p]) return layout.PartName(p);
  for (size_t g = 0; g < blocks.size(); ++g)
    for (size_t b = 0; b < blocks[g].size(); ++b)
      if (b >= sealed_blocks[g].size() || sealed_blocks[g][b] != blocks[g][b])
        return layout.BlockName(g, layout.FirstBlock(g, sealed.identity.boundary) + b);
  return "";
}

}  // namespace

// A hit on `checkpoint` by `s` has been served. Whether it is audited depends on the hit alone.
void Core::MaybeAudit(const Sequence& s, const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (options_.audit_share <= 0 || s.audit != nullptr) return;
  uint64_t id = 0;
  std::memcpy(&id, checkpoint->seal().state_id.bytes.data(), sizeof id);
  SplitMix64 rng(id ^ (++audit_hits_ * 0x9E3779B97F4A7C15ull));
  const auto unit = [&rng] { return static_cast<double>(rng.Next() >> 11) * 0x1p-53; };
  if (unit() >= options_.audit_share) return;
  if (audits_.size() >= kAuditsQueuedMax) {
    stats_.audits_skipped.fetch_add(1);
    return;
  }
  Audit audit;
  audit.seal = checkpoint->seal();
  audit.block_digests = checkpoint->block_digests();
  audit.from_zero = unit() < options_.audit_zero_share;
  auto sequence = std::make_unique<Sequence>();
  sequence->owner = OwnerId(kAuditOwner + ++audits_begun_);
  sequence->base = s.base;
  sequence->tokens.assign(s.tokens.begin(),
                          s.tokens.begin() + static_cast<int64_t>(checkpoint->boundary()));
  sequence->target = static_cast<int64_t>(checkpoint->boundary());
  sequence->audit = std::make_unique<Audit>(std::move(audit));
  audits_.push_back(std::move(sequence));
}

bool Core::AuditMayStart() const {
  return !audits_.empty() && waiting_.empty() &&
         static_cast<int64_t>(running_.size() + pulling_.size()) < options_.max_num_seqs;
}

// One audit at a time, if there is room that nobody waits for.
void Core::StartAudit() {
  if (!AuditMayStart() || AuditRunning() != nullptr) return;
  SequencePtr s = std::move(audits_.front());
  audits_.pop_front();
  std::shared_ptr<const Checkpoint> start;
  if (!s->audit->from_zero) {
    const std::vector<Sha256> hashes = PrefixChain::BlockHashes(s->base.scope, s->tokens);
    start = store_.FindDeepest(s->base, hashes, static_cast<uint64_t>(s->target) - kBlockTokens);
  }
  const Status started = start != nullptr ? Fork(s.get(), start) : StartFresh(s.get());
  if (!started.ok()) {
    ReleaseMemory(s.get());
    stats_.audits_skipped.fetch_add(1);
    return;
  }
  Run(std::move(s));
}

Sequence* Core::AuditRunning() {
  for (SequencePtr& s : running_)
    if (s->audit != nullptr && !IsFinished(s.get())) return s.get();
  return nullptr;
}

// What an audit may compute in this step: all it likes if it is alone, a little now and then if
// not.
int64_t Core::AuditTokens(bool alone) {
  if (alone) return options_.token_budget;
  return ++audit_wait_ % options_.audit_every_steps == 0 ? kAuditChunk : 0;
}

// Memory is short: an audit is the first to go.
bool Core::DropAudit() {
  Sequence* s = AuditRunning();
  if (s == nullptr) return false;
  stats_.audits_skipped.fetch_add(1);
  finished_.push_back(s);
  ReleaseMemory(s);
  return true;
}

void Core::FinishAudit(Sequence* s) {
  Status status;
  if (s->memory.slot.has_value()) status = pools_.slots->Seal(*s->memory.slot);
  StatusOr<Seal> again = status.ok() ? MakeSeal(*s, s->target, s->memory.slot) : status;
  const Audit& audit = *s->audit;
  finished_.push_back(s);
  if (!again.ok()) {
    LogWarning(absl::StrCat("audit not finished: ", again.status().message()));
    stats_.audits_skipped.fetch_add(1);
    ReleaseMemory(s);
    return;
  }
  const std::string difference =
      FirstDifference(layout(), audit.seal, audit.block_digests, *again, DigestsAt(*s, s->target));
  ReleaseMemory(s);
  stats_.audits.fetch_add(1);
  if (audit.from_zero) stats_.audits_from_zero.fetch_add(1);
  if (difference.empty()) return;
  stats_.audit_mismatches.fetch_add(1);
  const size_t revoked = Revoke(audit.seal.state_id);
  LogError(absl::StrCat("AUDIT: ", difference, " of state ", audit.seal.state_id.Hex(), " (",
                        audit.seal.identity.ToString(),
                        ") is not what its tokens give when computed again; sealed by node ",
                        audit.seal.producer.Hex(), ". ", revoked,
                        " checkpoints and sequences that came from it were revoked. Bytes and "
                        "digest agreed: look for a defect in a kernel or in host memory"));
}

// Drops the checkpoint, everything sealed from it, and ends the sequences that go on from any of
// them. How many.
size_t Core::Revoke(const StateId& id) {
  absl::flat_hash_set<StateId> revoked = {id};
  size_t count = store_.Revoke(&revoked);
  if (deps_.tiers != nullptr) count += deps_.tiers->Revoke(revoked);
  for (SequencePtr& s : running_) {
    if (IsFinished(s.get()) || !revoked.contains(s->parent)) continue;
    ++count;
    if (s->audit != nullptr) {
      finished_.push_back(s.get());
      ReleaseMemory(s.get());
      continue;
    }
    DropRolling(s.get());
    Finish(s.get(), FinishReason::kError,
           Reject(Reason::kAuditMismatch,
                  absl::StrCat("the cached state it went on from (", s->parent.Hex(),
                               ") was found wrong by a replay audit; send the request again")));
  }
  for (SequencePtr& s : waiting_)
    if (s->parked != nullptr && revoked.contains(s->parked_parent)) s->parked.reset();
  return count;
}

}  // namespace baton::engine
