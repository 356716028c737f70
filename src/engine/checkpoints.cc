// Sealing what was computed, and proving what is about to be reused.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/core.h"
#include "handoff/seal_bundle.h"
#include "handoff/verify.h"

namespace baton::engine {

// Seals every block that has become full: digested once, under the identity at its own end.
Status Core::SealFullBlocks(Sequence* s) {
  const size_t full = static_cast<size_t>(s->boundary() / kBlockTokens);
  for (size_t b = s->memory.sealed; b < full; ++b) {
    const Sha256 end_key = s->record->BlockIdentity(b).Key();
    for (size_t g = 0; g < pools_.blocks.size(); ++g) {
      const BlockHandle handle = s->memory.Block(g, b);
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->Seal(handle));
      BATON_ASSIGN_OR_RETURN(BlockLease lease,
                             pools_.blocks[g]->Acquire(handle, LeaseFor::kDigest));
      BATON_ASSIGN_OR_RETURN(
          const Digest128 digest,
          DigestKvBlock(deps_.self, deps_.memory->device(), end_key, g, lease.bytes()));
      s->memory.block_digests[g].push_back(digest);
    }
    s->memory.sealed = b + 1;
  }
  return absl::OkStatus();
}

// Hands newly sealed blocks of a job to the peer that waits for it. Not after the last step: what
// is new then goes with the bundle's own offer, without a turn in between.
Status Core::StreamBlocks(Sequence* s) {
  if (s->stream == nullptr || s->boundary() >= s->target) return absl::OkStatus();
  const auto target = static_cast<uint64_t>(s->target);
  std::vector<EarlyBlock> early;
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    const size_t first = std::max<size_t>(s->streamed, layout().FirstBlock(g, target));
    for (size_t b = first; b < s->memory.sealed; ++b) {
      BATON_ASSIGN_OR_RETURN(BlockLease lease,
                             pools_.blocks[g]->Acquire(s->memory.Block(g, b), LeaseFor::kSend));
      const Digest128& digest = s->memory.block_digests[g][b - s->memory.first[g]];
      early.push_back({g, b, digest, std::move(lease)});
    }
  }
  s->streamed = s->memory.sealed;
  if (early.empty()) return absl::OkStatus();
  if (s->state_id.is_zero()) s->state_id = RandomBytes<StateId>();
  s->stream->Add(s->state_id, std::move(early));
  return absl::OkStatus();
}

// The job gives its memory back: what a peer was promised will never be sealed.
void Core::WithdrawBlocks(Sequence* s) {
  if (s->stream == nullptr || s->streamed == 0) return;
  ++withdrawing_;
  s->stream->Withdraw(s->on_blocks_released);
  s->state_id = {};
  s->streamed = 0;
}

std::vector<std::vector<Digest128>> Core::DigestsAt(const Sequence& s, int64_t boundary) const {
  std::vector<std::vector<Digest128>> out;
  for (size_t g = 0; g < s.memory.block_digests.size(); ++g) {
    const auto& held = s.memory.block_digests[g];
    const size_t begin = layout().FirstBlock(g, static_cast<uint64_t>(boundary));
    const size_t end = static_cast<size_t>(BlocksFor(boundary)), first = s.memory.first[g];
    const auto at = [&](size_t block) {
      const size_t i = block < first ? 0 : block - first;
      return held.begin() + static_cast<ptrdiff_t>(std::min(i, held.size()));
    };
    out.emplace_back(at(begin), at(end));
  }
  return out;
}

// A seal over `slot`, a SEALED slot that holds the state at `boundary`, and the blocks below it.
// The claim is derived from the request's tokens and compared with the record kept by the steps.
StatusOr<Seal> Core::MakeSeal(const Sequence& s, int64_t boundary, std::optional<SlotHandle> slot) {
  const PrefixChain claimed(
      s.base.scope, std::span<const TokenId>(s.tokens).first(static_cast<size_t>(boundary)));
  LiveRecord at_boundary = *s.record;
  if (static_cast<int64_t>(at_boundary.boundary()) != boundary) {
    // A rolling checkpoint: the record has moved on since the copy was taken on the grid.
    PrefixChain chain = s.record->chain();
    chain.TruncateToGrid(static_cast<uint64_t>(boundary));
    at_boundary = LiveRecord(s.base, std::move(chain));
  }
  SealRequest request;
  request.claim = s.base.At(claimed);
  request.live = &at_boundary;
  request.parent = s.parent;
  request.state_id = s.state_id;
  StateLease lease;
  if (slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(lease, pools_.slots->Acquire(*slot, LeaseFor::kDigest));
    request.slot = lease.bytes();
  }
  request.block_digests = DigestsAt(s, boundary);
  for (size_t g = 0; g < request.block_digests.size(); ++g) {
    // A bound, not a check: a drill that switches checks off may have let a shorter bundle in.
    const size_t held = request.block_digests[g].size();
    const size_t blocks = layout().BlockCount(g, static_cast<uint64_t>(boundary));
    if (held != blocks)
      return Reject(Reason::kMissingPart, absl::StrCat(held, " block digests held, ", blocks,
                                                       " needed at boundary ", boundary));
  }
  return SealBundle(deps_.self, deps_.memory->device(), request);
}

// A SEALED copy of the live slot, nothing if the layout has no state.
StatusOr<std::optional<SlotHandle>> Core::CopyOfSlot(Sequence* s) {
  if (!s->memory.slot.has_value()) return std::optional<SlotHandle>();
  BATON_ASSIGN_OR_RETURN(const SlotHandle copy, ReserveSlot(s->owner, FillMode::kGapsOnly));
  Status status = pools_.slots->CopyInto(*s->memory.slot, copy);
  if (status.ok()) status = pools_.slots->Seal(copy);
  if (!status.ok()) {
    (void)pools_.slots->Free(copy);
    return status;
  }
  return std::optional<SlotHandle>(copy);
}

// Takes ownership of `slot`, a SEALED copy of the state at `boundary`.
StatusOr<std::shared_ptr<const Checkpoint>> Core::StoreCheckpoint(Sequence* s,
                                                                  std::optional<SlotHandle> slot,
                                                                  int64_t boundary) {
  StatusOr<Seal> seal = MakeSeal(*s, boundary, slot);
  if (!seal.ok()) {
    if (slot.has_value()) (void)pools_.slots->Free(*slot);
    return seal.status();
  }
  const auto n = static_cast<ptrdiff_t>(boundary / kBlockTokens);
  std::vector<std::vector<BlockHandle>> blocks;
  std::vector<std::vector<Digest128>> digests = DigestsAt(*s, boundary);
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    const auto& held = s->memory.blocks[g];
    const auto first = static_cast<ptrdiff_t>(s->memory.first[g]);
    const auto begin =
        static_cast<ptrdiff_t>(layout().FirstBlock(g, static_cast<uint64_t>(boundary)));
    blocks.emplace_back(held.begin() + (begin - first), held.begin() + (n - first));
    for (const BlockHandle block : blocks.back())
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->AddReference(block));
  }
  auto checkpoint = std::make_shared<Checkpoint>(pools_, *std::move(seal), slot, std::move(blocks),
                                                 std::move(digests));
  s->parent = checkpoint->seal().state_id;
  store_.Insert(checkpoint, s->record->chain().block_hashes().first(static_cast<size_t>(n)));
  if (deps_.tiers != nullptr && deps_.tiers->count() > 0) {
    PrefixChain chain = s->record->chain();
    chain.TruncateToGrid(static_cast<uint64_t>(boundary));
    deps_.tiers->Demote(checkpoint, std::move(chain));
  }
  stats_.checkpoints_made.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

// Best effort: without room for a copy the sequence goes on without a checkpoint.
void Core::TakeCheckpoint(Sequence* s) {
  const StateId promised = std::exchange(s->state_id, {});  // to a peer, for a job's end
  StatusOr<std::optional<SlotHandle>> copy = CopyOfSlot(s);
  Status status = copy.status();
  if (copy.ok()) status = StoreCheckpoint(s, *copy, s->boundary()).status();
  s->state_id = promised;
  if (!status.ok() && ReasonOf(status) != Reason::kNoCapacity)
    LogWarning(absl::StrCat("no checkpoint at boundary ", s->boundary(), ": ", status.message()));
}

void Core::RollCheckpoint(Sequence* s) {
  DropRolling(s);
  StatusOr<std::optional<SlotHandle>> copy = CopyOfSlot(s);
  if (!copy.ok()) return;
  s->rolling_slot = *copy;
  s->rolling_boundary = s->boundary();
}

void Core::KeepRolling(Sequence* s) {
  if (s->rolling_boundary == 0 || !s->record.has_value()) return;
  const Status kept = StoreCheckpoint(s, std::exchange(s->rolling_slot, std::nullopt),
                                      std::exchange(s->rolling_boundary, 0))
                          .status();
  if (!kept.ok()) LogWarning(absl::StrCat("last checkpoint not kept: ", kept.message()));
}

void Core::DropRolling(Sequence* s) {
  if (s->rolling_slot.has_value()) (void)pools_.slots->Free(*s->rolling_slot);
  s->rolling_slot.reset();
  s->rolling_boundary = 0;
}

// The job's live slot itself becomes the bundle.
Status Core::SealJob(Sequence* s) {
  if (s->audit != nullptr) {
    FinishAudit(s);
    return absl::OkStatus();
  }
  if (s->memory.slot.has_value()) BATON_RETURN_IF_ERROR(pools_.slots->Seal(*s->memory.slot));
  const std::optional<SlotHandle> slot = std::exchange(s->memory.slot, std::nullopt);
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> bundle,
                         StoreCheckpoint(s, slot, s->target));
  if (!options_.prefix_caching) store_.Remove(*bundle);
  finished_.push_back(s);
  s->streamed = 0;  // the bundle holds them now
  ReleaseMemory(s);
  stats_.jobs_served.fetch_add(1, std::memory_order_relaxed);
  std::exchange(s->deliver, nullptr)(std::move(bundle), s->local_start);
  return absl::OkStatus();
}

// The same routine as for a hand-off: a checkpoint in memory is a peer that may have rotted.
Status Core::VerifyCheckpoint(const Checkpoint& checkpoint,
                              const ContentIdentity& expected,
                              const PrefixChain& chain) {
  const Layout& lay = layout();
  Verifier verifier;
  verifier.layout = &lay;
  verifier.digester = &deps_.self.digester;
  verifier.device = &deps_.memory->device();
  verifier.pool = &thread_pool_;
  verifier.checks = deps_.checks;
  Expectation expectation;
  expectation.identity = expected;
  expectation.chain = &chain;
  BundleClaim claim;
  claim.state_id = checkpoint.seal().state_id;
  claim.seal = checkpoint.seal();
  claim.block_digests = checkpoint.block_digests();

  StateLease slot;
  std::vector<BlockLeaseSet> blocks;
  if (checkpoint.slot().has_value()) {
    BATON_ASSIGN_OR_RETURN(slot, pools_.slots->Acquire(*checkpoint.slot(), LeaseFor::kDigest));
  }
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    BATON_ASSIGN_OR_RETURN(BlockLeaseSet set,
                           pools_.blocks[g]->AcquireAll(checkpoint.blocks()[g], LeaseFor::kDigest));
    blocks.push_back(std::move(set));
  }
  LandedBundle landed;
  for (const BundlePart& part : BundleParts(lay, expected.boundary)) {
    ByteSpan bytes;
    if (part.is_state) {
      if (!slot.held()) return Reject(Reason::kMissingPart, lay.PartName(part.part));
      bytes = ByteSpan(slot.bytes()).subspan(lay.parts()[part.part].offset, part.bytes);
    } else {
      if (part.slot >= blocks[part.group].size())
        return Reject(Reason::kMissingPart, lay.BlockName(part.group, part.block));
      bytes = ByteSpan(blocks[part.group].bytes(part.slot)).first(part.bytes);
    }
    landed.parts.push_back({part, bytes, part.bytes, part.bytes, part.bytes});
  }
  return VerifyBundle(verifier, expectation, claim, landed);
}

}  // namespace baton::engine
