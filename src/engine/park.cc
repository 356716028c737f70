// Preemption: a whole sequence is sealed and leaves memory, and comes back through the same
// verification as a hand-off. Off the grid too, where its last block is partial: that one is sealed
// at the boundary itself and is LIVE again afterwards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/core.h"
#include "handoff/restore.h"
#include "handoff/seal_bundle.h"

namespace baton::engine {

void Core::SetFirstBlocks(Sequence* s, int64_t boundary) const {
  s->memory.first.resize(pools_.blocks.size());
  for (size_t g = 0; g < pools_.blocks.size(); ++g)
    s->memory.first[g] = layout().FirstBlock(g, static_cast<uint64_t>(boundary));
}

Status Core::ReserveBundle(Sequence* s, int64_t boundary) {
  if (layout().has_state()) {
    BATON_ASSIGN_OR_RETURN(s->memory.slot, ReserveSlot(s->owner, FillMode::kGapsOnly));
  }
  s->memory.Clear(pools_.blocks.size());
  SetFirstBlocks(s, boundary);
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    while (s->memory.blocks[g].size() < layout().BlockCount(g, static_cast<uint64_t>(boundary))) {
      BATON_ASSIGN_OR_RETURN(const BlockHandle block,
                             ReserveBlock(g, s->owner, FillMode::kGapsOnly));
      s->memory.blocks[g].push_back(block);
    }
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<ParkedBundle>> Core::SealAndCopyOut(Sequence* s) {
  const int64_t boundary = s->boundary();
  const auto count = static_cast<size_t>(BlocksFor(boundary));
  const Sha256 key = s->record->Identity().Key();
  if (s->memory.slot.has_value()) BATON_RETURN_IF_ERROR(pools_.slots->Seal(*s->memory.slot));
  std::vector<BlockLeaseSet> blocks;
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    auto& held = s->memory.blocks[g];
    // Beyond the boundary there may be blocks that the step would have filled.
    for (size_t b = s->memory.sealed; b < count; ++b)
      BATON_RETURN_IF_ERROR(pools_.blocks[g]->Seal(s->memory.Block(g, b)));
    const size_t first = s->memory.first[g];
    BATON_ASSIGN_OR_RETURN(
        BlockLeaseSet set,
        pools_.blocks[g]->AcquireAll(std::span(held).first(count - first), LeaseFor::kDigest));
    for (size_t b = s->memory.sealed; b < count; ++b) {
      BATON_ASSIGN_OR_RETURN(
          const Digest128 digest,
          DigestKvBlock(deps_.self, deps_.memory->device(), key, g, set.bytes(b - first)));
      s->memory.block_digests[g].push_back(digest);
    }
    blocks.push_back(std::move(set));
  }
  BATON_ASSIGN_OR_RETURN(Seal seal, MakeSeal(*s, boundary, s->memory.slot));
  StateLease slot;
  if (s->memory.slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(slot, pools_.slots->Acquire(*s->memory.slot, LeaseFor::kDigest));
  }
  BATON_ASSIGN_OR_RETURN(
      std::unique_ptr<ParkedBundle> parked,
      ParkedBundle::Take(
          layout(), std::move(seal), DigestsAt(*s, boundary),
          [&](const BundlePart& part) -> ByteSpan {
            return part.is_state
                       ? ByteSpan(slot.bytes()).subspan(layout().parts()[part.part].offset)
                       : ByteSpan(
                             blocks[part.group].bytes(part.block - s->memory.first[part.group]));
          },
          &parking_));
  if (const uint64_t tail = TailBytes(boundary); tail > 0) {
    const ByteSpan bytes = ByteSpan(slot.bytes()).subspan(layout().slot_bytes(), tail);
    BATON_RETURN_IF_ERROR(parked->KeepTail(bytes, TailDigest(key, bytes)));
  }
  return parked;
}

// Behind the slot of a sequence at `boundary`; on the grid a tail is empty.
uint64_t Core::TailBytes(int64_t boundary) const {
  return boundary % kBlockTokens == 0 ? 0 : deps_.model->slot_tail_bytes();
}

// Seeded with the content like a part of the layout.
Digest128 Core::TailDigest(const Sha256& key, ByteSpan tail) const {
  StatePart part;
  part.component = "tail";
  part.shape = {static_cast<int64_t>(tail.size() / sizeof(float))};
  part.bytes = tail.size();
  return deps_.self.digester.StateDigest(key, part, tail).digest;
}

// Into the slot of a sequence that is LIVE again, proven where it landed.
Status Core::PutTailBack(Sequence* s, const ParkedBundle& parked) {
  const uint64_t tail = TailBytes(static_cast<int64_t>(parked.boundary()));
  if (tail == 0) return absl::OkStatus();
  if (parked.tail().size() != tail)
    return Reject(Reason::kMissingPart,
                  absl::StrCat("tail: ", parked.tail().size(), " bytes parked, expected ", tail));
  BATON_ASSIGN_OR_RETURN(const StateLease slot,
                         pools_.slots->Acquire(*s->memory.slot, LeaseFor::kCompute));
  const MutableByteSpan to = slot.bytes().subspan(layout().slot_bytes(), tail);
  std::copy(parked.tail().begin(), parked.tail().end(), to.begin());
  if (deps_.checks.On(Check::kStateDigest) &&
      TailDigest(s->record->Identity().Key(), to) != parked.tail_digest())
    return Reject(Reason::kDigestMismatch, "tail: the parked bytes are not those that were sealed");
  return absl::OkStatus();
}

// Before the memory is given back; the units are no use for anything else afterwards. kNoCapacity
// if there is no room to park in.
Status Core::Park(Sequence* s) {
  s->parked.reset();
  if (parking_.max == 0 || s->boundary() == 0) return absl::OkStatus();
  const StateId parent = s->parent;
  StateId promised = std::exchange(s->state_id, {});  // to a peer, for another boundary
  StatusOr<std::unique_ptr<ParkedBundle>> parked = SealAndCopyOut(s);
  s->state_id = promised;
  BATON_RETURN_IF_ERROR(parked.status());
  s->parked = *std::move(parked);
  if (deps_.on_parked) deps_.on_parked(s->parked.get());
  s->parked_parent = parent;
  stats_.parked.fetch_add(1);
  return absl::OkStatus();
}

// On ok the sequence has exactly what it had. Otherwise it holds no memory: kNoCapacity to try
// again later, anything else if the parked bundle is not what it should be.
Status Core::Unpark(Sequence* s) {
  ParkedBundle& parked = *s->parked;
  const auto boundary = static_cast<int64_t>(parked.boundary());
  if (const Status reserved = ReserveBundle(s, boundary); !reserved.ok()) {
    ReleaseMemory(s);
    return reserved;
  }
  PrefixChain chain(s->base.scope,
                    std::span<const TokenId>(s->tokens).first(static_cast<size_t>(boundary)));
  Expectation expected;
  expected.identity = s->base.At(chain);
  expected.chain = &chain;
  PullRequest request;
  request.ask.attempt = Attempt(next_attempt_++);
  request.ask.expected = expected.identity;
  request.slot = std::exchange(s->memory.slot, std::nullopt);  // the restore's until it returns
  request.blocks = std::exchange(s->memory.blocks, {});
  Verifier verifier;
  verifier.layout = &layout();
  verifier.digester = &deps_.self.digester;
  verifier.device = &deps_.memory->device();
  verifier.pool = &thread_pool_;
  verifier.checks = deps_.checks;
  const auto fill = [&](const RestorePlace& place, PullReport* report) {
    const BundleClaim claim = parked.Claim();
    report->block_digests = claim.block_digests;
    LandedBundle landed;
    landed.parts = parked.CopyTo(layout(), place.bytes);
    landed.check_handles = place.check_handles;
    return VerifyBundle(verifier, expected, claim, landed);
  };
  PullResult back = RestoreBundle({pools_.slots, pools_.blocks}, layout(), request, fill);
  s->memory = SequenceMemory();
  BATON_RETURN_IF_ERROR(back.status);
  s->memory.slot = back.slot;
  s->memory.blocks = std::move(back.blocks);
  s->memory.block_digests = std::move(back.report.block_digests);
  s->memory.sealed = static_cast<size_t>(boundary / kBlockTokens);
  SetFirstBlocks(s, boundary);
  Status status;
  if (s->memory.slot.has_value()) status = pools_.slots->Activate(*s->memory.slot);
  for (size_t g = 0; g < pools_.blocks.size(); ++g) {
    for (size_t b = 0; b < s->memory.blocks[g].size() && status.ok(); ++b) {
      const BlockHandle block = s->memory.blocks[g][b];
      status = s->memory.first[g] + b < s->memory.sealed ? pools_.blocks[g]->Seal(block)
                                                         : pools_.blocks[g]->Activate(block);
    }
    const size_t first = s->memory.first[g];
    s->memory.block_digests[g].resize(s->memory.sealed - std::min(s->memory.sealed, first));
  }
  s->record.emplace(s->base, std::move(chain));
  if (status.ok()) status = PutTailBack(s, parked);
  if (!status.ok()) {
    ReleaseMemory(s);
    return status;
  }
  s->parent = s->parked_parent;
  s->parked.reset();
  stats_.resumed.fetch_add(1);
  return absl::OkStatus();
}

}  // namespace baton::engine
