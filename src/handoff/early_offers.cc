#include "handoff/early_offers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "connector/frame.h"
#include "handoff/parts.h"
#include "handoff/wire.h"

namespace baton {
namespace {

constexpr Duration kSendTimeout = std::chrono::seconds(10);

}  // namespace

EarlyOffers::EarlyOffers(Context context) : c_(std::move(context)), thread_([this] { Main(); }) {}

EarlyOffers::~EarlyOffers() { End(); }

void EarlyOffers::Add(StateId state_id, std::vector<EarlyBlock> blocks) {
  // What is not taken is dropped after the lock: a lease's end may wake others.
  MutexLock lock(&mu_);
  if (over_ || ended_ || !c_.welcome || blocks.empty()) return;
  queued_id_ = state_id;
  std::move(blocks.begin(), blocks.end(), std::back_inserter(queued_));
  c_.link->Interrupt();  // under the lock: End has not come, so the link is there
}

void EarlyOffers::Withdraw(std::function<void()> released) {
  std::vector<EarlyBlock> unsent;
  {
    MutexLock lock(&mu_);
    unsent.swap(queued_);
    if (!ended_) {
      withdrawals_.push_back(std::exchange(released, nullptr));
      if (!over_) c_.link->Interrupt();  // else End drops them
    }
  }
  unsent.clear();
  if (released != nullptr) released();
}

Status EarlyOffers::Over() {
  MutexLock lock(&mu_);
  over_ = true;
  while (peers_turn_) turn_.Wait(&mu_);
  // Does not wait for the thread to notice: on a busy machine that would cost the hand-off a turn
  // of the scheduler.
  c_.link->Interrupt();
  return status_;
}

void EarlyOffers::Join() {
  if (thread_.joinable()) thread_.join();
}

void EarlyOffers::End() {
  {
    MutexLock lock(&mu_);
    if (ended_) return;
  }
  (void)Over();
  Join();
  std::vector<std::function<void()>> released;
  std::vector<EarlyBlock> unsent;
  {
    MutexLock lock(&mu_);
    ended_ = true;
    released.swap(withdrawals_);
    unsent.swap(queued_);
  }
  unsent.clear();
  Drop();
  for (auto& fn : released) fn();
}

void EarlyOffers::Drop() {
  granted_.clear();
  held_.clear();
}

void EarlyOffers::Main() {
  for (;;) {
    const Link::Event event = c_.link->WaitReadable(c_.deadline);
    if (event == Link::Event::kInterrupted) {
      if (!SpeakAll()) return;
      continue;
    }
    {
      MutexLock lock(&mu_);
      if (over_) return;  // what comes now is the conversation's to read
    }
    return Fail(Reject(Reason::kPeerUnavailable,
                       event == Link::Event::kDeadline
                           ? "the peer's deadline passed while its bundle was prepared"
                           : "the peer left, or spoke out of turn, while its bundle was prepared"));
  }
}

bool EarlyOffers::SpeakAll() {
  for (;;) {
    std::vector<EarlyBlock> blocks;
    std::vector<std::function<void()>> released;
    StateId state_id;
    {
      MutexLock lock(&mu_);
      if (over_) return false;
      if (queued_.empty() && withdrawals_.empty()) return true;
      released.swap(withdrawals_);
      state_id = queued_id_;
      const auto end =
          queued_.begin() + static_cast<ptrdiff_t>(std::min(queued_.size(), kOfferedBlocksMax));
      blocks.assign(std::make_move_iterator(queued_.begin()), std::make_move_iterator(end));
      queued_.erase(queued_.begin(), end);
      peers_turn_ = true;
    }
    if (!released.empty()) {
      c_.group->Revoke();
      Drop();
      for (auto& fn : released) fn();
    }
    Status status;
    if (!blocks.empty()) status = Offer(state_id, std::move(blocks));
    if (!status.ok()) {
      Fail(std::move(status));
      return false;
    }
    MutexLock lock(&mu_);
    peers_turn_ = false;
    turn_.NotifyAll();
  }
}

// Sends the blocks and serves the peer until it gives the turn back.
Status EarlyOffers::Offer(StateId state_id, std::vector<EarlyBlock> blocks) {
  const HandoffServerOptions& o = *c_.options;
  const Instant lease_end = o.clock->Now() + o.lease;
  BlockOffer offer;
  offer.attempt = c_.attempt;
  offer.epoch = o.self.epoch;
  offer.state_id = state_id;
  offer.lease_ms =
      static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(o.lease).count());
  std::vector<GrantedPart> parts;
  for (const EarlyBlock& block : blocks) {
    const PartKey key = BlockPartKey(block.group, block.block);
    parts.push_back(
        {state_id, key,
         ByteSpan(block.lease.bytes()).first(o.self.layout->groups()[block.group].block_bytes)});
    offer.blocks.push_back({key, block.digest, {}});
  }
  BATON_ASSIGN_OR_RETURN(const auto addresses, c_.group->Grant(parts));
  state_id_ = state_id;
  for (size_t i = 0; i < parts.size(); ++i) {
    offer.blocks[i].address = addresses[i];
    granted_[parts[i].part] = addresses[i];
  }
  std::move(blocks.begin(), blocks.end(), std::back_inserter(held_));
  BATON_RETURN_IF_ERROR(
      c_.link->Send(EncodeBlocks(offer), std::min(lease_end, o.clock->Now() + kSendTimeout)));
  ++o.stats->block_offers;
  o.stats->blocks_offered += offer.blocks.size();
  const StatusOr<Frame> frame = c_.link->ServeUntilFrame(lease_end);
  if (!frame.ok()) {
    if (o.clock->Now() < lease_end) return frame.status();
    ++o.stats->leases_expired;
    return Reject(Reason::kLeaseExpired, absl::StrCat(offer.blocks.size(), " blocks were kept for ",
                                                      offer.lease_ms, " ms and not pulled"));
  }
  if (frame->type == FrameType::kError) return DecodeError(*frame);
  if (frame->type != FrameType::kNext)
    return Reject(Reason::kMalformed, absl::StrCat("frame of type ", static_cast<int>(frame->type),
                                                   " where a next was expected"));
  return absl::OkStatus();
}

void EarlyOffers::Fail(Status status) {
  {
    MutexLock lock(&mu_);
    status_ = std::move(status);
    peers_turn_ = false;
    over_ = true;
    turn_.NotifyAll();
  }
  CancelSource(c_.cancel).request_stop();
}

}  // namespace baton
