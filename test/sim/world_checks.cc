// The invariants of design.md section 9, against the truth and not against what anybody said.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "handoff/parts.h"
#include "sim/world.h"

namespace baton::sim {

using engine::FinishReason;

// I7, I9: the right answer, all of it, or an error with a reason that the client caused.
void World::CheckAnswer(const Request& r) {
  const std::string name = absl::StrCat("r", r.index);
  if (r.got.size() > r.answer.size() || !std::equal(r.got.begin(), r.got.end(), r.answer.begin()))
    return Violation(absl::StrCat("I9: ", name, " was given wrong tokens"));
  switch (r.result->reason) {
    case FinishReason::kLength:
      if (r.got.size() != r.answer.size())
        Violation(absl::StrCat("I7: ", name, " ended after ", r.got.size(), " of ", r.answer.size(),
                               " tokens"));
      return;
    case FinishReason::kCancelled:
      if (!r.cancelled) Violation(absl::StrCat("I7: ", name, " was cancelled by nobody"));
      return;
    default:
      // Memory that some writer may still touch is nobody's; what does not fit beside it is
      // refused.
      if (ReasonOf(r.result->error) == Reason::kNoCapacity && Quarantined()) return;
      Violation(absl::StrCat("I7: ", name, " failed: ", r.result->error.ToString()));
  }
}

bool World::Quarantined() const {
  for (const auto& node : nodes_) {
    if (node->worker == nullptr) continue;
    const PoolSet pools = node->worker->memory().pools();
    if (pools.slots->Stats().quarantined + pools.blocks[0]->Stats().quarantined != 0) return true;
  }
  return false;
}

// The parts of a bundle, counted here once more: the oracle believes no table.
std::vector<BundlePart> Expected(const Layout& layout, uint64_t boundary) {
  std::vector<BundlePart> parts;
  for (uint64_t b = 0; b < boundary / kBlockTokens; ++b) {
    BundlePart part;
    part.key = BlockPartKey(0, b);
    part.block = b;
    part.bytes = layout.groups()[0].block_bytes;
    parts.push_back(part);
  }
  for (size_t p = 0; p < layout.parts().size(); ++p) {
    BundlePart part;
    part.key = StatePartKey(p);
    part.is_state = true;
    part.part = p;
    part.bytes = layout.parts()[p].bytes;
    parts.push_back(part);
  }
  return parts;
}

// The receiver has told its source that it holds a VERIFIED bundle: everything that must have been
// true of it, checked against the truth and not against what anybody said.
void World::Committed(const Session& s) {
  const Facts& f = *s.facts;
  const std::string name = Network::NameOf(s);
  trace_.Event("commit", s.id, 0, [&] { return name; });
  if (!f.ask.has_value() || !f.hello.has_value() || !f.offer.has_value())
    return Violation("commit of what was never asked or offered: " + name);
  if (f.offer->claim.attempt != f.ask->attempt)
    Violation("commit of another attempt's offer: " + name);
  if (f.offer->claim.epoch != f.hello->epoch)
    Violation("commit of another incarnation's offer: " + name);
  if (!(f.offer->claim.seal.identity == f.ask->expected))
    Violation("commit of another identity: " + name);
  uint64_t expected = 0;
  for (const BundlePart& part : Expected(model_.layout(), f.ask->expected.boundary)) {
    ++expected;
    const auto it = f.moved.find(part.key.value);
    const std::string part_name = PartKeyName(model_.layout(), part.key);
    if (it == f.moved.end()) {
      Violation(absl::StrCat("I4: commit without ", part_name, ": ", name));
      continue;
    }
    const MovedPart& moved = it->second;
    if (moved.posted != part.bytes || moved.reported != part.bytes)
      Violation(absl::StrCat("I4: commit of ", part_name, " with planned ", part.bytes, ", posted ",
                             moved.posted, ", landed ", moved.reported, ": ", name));
    if (f.suspect.contains(moved.destination.data()))
      Violation(absl::StrCat("commit of ", part_name, " while a writer is not quiet: ", name));
    const ByteSpan truth = oracle_.Part(f.ask->tokens, part.is_state, part.part, part.block);
    if (truth.size() != moved.destination.size() ||
        !std::equal(truth.begin(), truth.end(), moved.destination.begin()))
      Violation(absl::StrCat("I1: commit of ", part_name, " with wrong bytes: ", name));
  }
  if (f.moved.size() != expected) Violation("I6: commit with parts besides the expected: " + name);
}

// I2: a unit is taken and given back; its handle must never resolve again.
void World::Probe(Node* node) {
  SlotPool* slots = node->worker->memory().slots();
  for (const SlotHandle& handle : node->stale)
    if (slots->StateOf(handle).ok())
      return Violation(
          absl::StrCat("I2: ", node->name, ": a stale handle resolves: ", handle.ToString()));
  if (slots->Stats().free < 4) return;  // nobody shall go short
  const auto handle = slots->Reserve({OwnerId(1u << 30), Attempt(0), FillMode::kGapsOnly});
  if (!handle.ok()) return;
  slots->Free(*handle).IgnoreError();
  if (node->stale.size() < 8) node->stale.push_back(*handle);
}

void World::CheckNode(Node* node) {
  engine::NodeMemory& memory = node->worker->memory();
  Status ok;
  if (memory.elastic() != nullptr) {
    ok = memory.elastic()->CheckInvariants();
  } else {
    ok = memory.slots()->CheckInvariants();
    if (ok.ok()) ok = memory.blocks(0)->CheckInvariants();
  }
  if (!ok.ok()) Violation(absl::StrCat(node->name, ": ", ok.ToString()));
}

// Looks at one machine's tables between two events, at all of them in turn.
void World::Audit() {
  size_t next = 0;
  while (auditing_) {
    scheduler_->WaitOn(trace_.event_address(), Instant::max());
    if (!auditing_) break;
    next = (next + 1) % nodes_.size();
    if (!nodes_[next]->restarting) CheckNode(nodes_[next].get());
  }
}

uint64_t World::Rejects(const Node& node) const {
  uint64_t n = 0;
  for (const auto& r : node.worker->handoff_stats().rejects) n += r;
  return n;
}

// After Stop: every count is zero, but for what a connector never proved quiet.
void World::CheckQuiet(Node* node) {
  const HandoffStats& stats = node->worker->handoff_stats();
  result_.verified += stats.verified;
  result_.rejected += Rejects(*node);
  node->worker->client().quarantine().Sweep();
  PoolSet pools = node->worker->memory().pools();
  const auto check = [&](const PoolStats& s, std::string_view what) {
    result_.moves += s.moves;
    if (s.used != s.quarantined || s.leases != 0 || s.references != 0)
      Violation(absl::StrCat("I7: ", node->name, " is quiet with ", s.used, " ", std::string(what),
                             " in use (", s.quarantined, " quarantined), ", s.leases, " leases, ",
                             s.references, " references"));
  };
  check(pools.slots->Stats(), "slots");
  uint64_t quarantined = pools.slots->Stats().quarantined;
  for (BlockPool* pool : pools.blocks) {
    check(pool->Stats(), "blocks");
    quarantined += pool->Stats().quarantined;
  }
  // All that can be proven quiet has been.
  if (quarantined != 0 && node->machine->never_quiet == 0)
    Violation(absl::StrCat(node->name, ": ", quarantined, " units stay in quarantine"));
  result_.early_blocks += stats.early_blocks;
  for (const auto& [name, counts] : stats.connectors.Snapshot())
    result_.shares_moved += counts.shares_moved;
  if (stats.conversations_now != 0) Violation(node->name + ": conversations after Stop");
  if (node->worker->engine().active() != 0) Violation(node->name + ": requests after Stop");
}

}  // namespace baton::sim
