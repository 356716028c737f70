#include "handoff/conversation.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "connector/frame.h"
#include "handoff/parts.h"

namespace baton {
namespace {

constexpr Duration kSendTimeout = std::chrono::seconds(10);
constexpr Duration kLinger = std::chrono::seconds(1);

uint64_t Milliseconds(Duration d) {
  return static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(d).count());
}

// The bytes of a part, from the bundle's leases.
StatusOr<ByteSpan> BytesOf(const Layout& layout,
                           const ServedBundle& bundle,
                           const BundlePart& part) {
  if (part.is_state) {
    const uint64_t offset = layout.parts()[part.part].offset;
    const ByteSpan slot = bundle.slot.bytes();
    if (slot.size() >= offset + part.bytes) return slot.subspan(offset, part.bytes);
  } else if (part.group < bundle.blocks.size() && part.slot < bundle.blocks[part.group].size()) {
    const ByteSpan block = bundle.blocks[part.group][part.slot].bytes();
    if (block.size() >= part.bytes) return block.first(part.bytes);
  }
  return absl::InternalError("bundle without " + PartKeyName(layout, part.key));
}

}  // namespace

Conversation::Conversation(const HandoffServerOptions& options,
                           BundleProvider* provider,
                           SourceLink* link,
                           CancelSource cancel,
                           JoinRegistry* joins)
    : o_(options),
      provider_(provider),
      link_(link),
      cancel_(std::move(cancel)),
      joins_(joins),
      group_(std::make_shared<LinkGroup>(link)) {}

Conversation::~Conversation() = default;

void Conversation::Run() {
  const Instant hello_deadline = o_.clock->Now() + o_.hello_timeout;
  Status status = Greet(hello_deadline);
  if (status.ok()) status = Talk(hello_deadline);
  if (!status.ok()) SendError(status);
  link_->Close();
}

Status Conversation::Talk(Instant deadline) {
  BATON_ASSIGN_OR_RETURN(const Frame frame, link_->Receive(deadline));
  if (frame.type == FrameType::kError) return DecodeError(frame);
  if (frame.type == FrameType::kJoin) return JoinOther(frame, deadline);
  BATON_ASSIGN_OR_RETURN(const Ask ask, ReadAsk(frame));
  if (!joins_->Add(ask.join_key, group_)) {
    Status status = Reject(Reason::kMalformed, "the ask's join key is in use");
    CountProtocolError(status);
    return status;
  }
  Status status = Answer(ask);
  joins_->Remove(ask.join_key);
  return status;
}

Status Conversation::JoinOther(const Frame& frame, Instant deadline) {
  const auto key = DecodeJoin(frame);
  if (!key.ok()) {
    CountProtocolError(key.status());
    return key.status();
  }
  const auto group = joins_->Find(*key, deadline, *o_.clock, cancel_.get_token());
  if (group == nullptr)
    return Reject(Reason::kLeaseExpired, "no hand-off of this key waits to be joined");
  ++o_.stats->links_joined;
  // Its end is the first link's end, which closes this one; the bound is for a group that leaks.
  return group->Serve(link_, o_.clock->Now() + o_.provide_timeout_max + o_.lease);
}

// From here on memory may be granted: whatever happens, it is revoked on every link before the
// leases are dropped.
Status Conversation::Answer(const Ask& ask) {
  auto bundle = Provide(ask);
  Status status = bundle.status();
  if (status.ok()) {
    status = Serve(ask, bundle->get());
  } else {
    group_->End();
  }
  early_->End();
  return status;
}

Status Conversation::Greet(Instant deadline) {
  auto frame = link_->Receive(deadline);
  StatusOr<Hello> theirs = frame.ok() ? DecodeHello(*frame) : frame.status();
  if (!theirs.ok()) {
    CountProtocolError(theirs.status());
    return theirs.status();
  }
  const Hello mine = HelloOf(o_.self);
  // Both sides see both values, so that both logs say what differs.
  BATON_RETURN_IF_ERROR(link_->Send(EncodeHello(mine), deadline));
  if (!o_.checks.On(Check::kPeer)) return absl::OkStatus();
  Status match = MatchHello(mine, *theirs);
  if (!match.ok()) {
    o_.stats->CountRefusal(match);
    LogWarning(absl::StrCat(link_->peer(), ": refused: ", std::string(match.message())));
  }
  return match;
}

StatusOr<Ask> Conversation::ReadAsk(const Frame& frame) {
  auto ask = DecodeAsk(frame);
  if (!ask.ok()) {
    CountProtocolError(ask.status());
    return ask.status();
  }
  Status status = CheckAsk(*ask);
  if (status.ok()) return ask;
  o_.stats->CountRefusal(status);
  LogWarning(absl::StrCat(link_->peer(), ": ask refused: ", std::string(status.message())));
  return status;
}

// The receiver derived the identity from its tokens; so does this side.
Status Conversation::CheckAsk(const Ask& ask) const {
  ContentIdentity mine;
  mine.model = o_.self.model;
  mine.layout = o_.self.layout->fingerprint();
  mine.scope = ask.expected.scope;
  mine.prefix = PrefixChain::HashOf(ask.expected.scope, ask.tokens);
  mine.boundary = ask.tokens.size();
  if (!o_.checks.On(Check::kPeer)) {
    mine.model = ask.expected.model;
    mine.layout = ask.expected.layout;
  }
  return MatchIdentity(mine, ask.expected);
}

StatusOr<std::unique_ptr<ServedBundle>> Conversation::Provide(const Ask& ask) {
  const Instant now = o_.clock->Now();
  const uint64_t ms = std::min<uint64_t>(ask.deadline_ms, Milliseconds(o_.provide_timeout_max));
  const Instant deadline = now + std::chrono::milliseconds(ms);
  EarlyOffers::Context context;
  context.options = &o_;
  context.link = link_;
  context.group = group_.get();
  context.attempt = ask.attempt;
  context.welcome = ask.early_blocks && o_.early_blocks;
  context.deadline = deadline;
  context.cancel = cancel_;
  early_ = std::make_shared<EarlyOffers>(std::move(context));
  auto bundle = provider_->ProvideStreaming(ask, deadline, cancel_.get_token(), early_);
  const Status early = early_->Over();
  if (bundle.ok() && *bundle == nullptr) bundle = absl::InternalError("provider gave no bundle");
  if (bundle.ok() && cancel_.stop_requested()) {
    (*bundle)->OnEnd(ServeEnd::kLinkClosed);
    bundle = Reject(Reason::kCancelled,
                    "the peer left, or its deadline passed, while its bundle was prepared");
  }
  // What went wrong with the peer says more than that the work was cancelled for it.
  if (!bundle.ok() && !early.ok() && ReasonOf(early) != Reason::kPeerUnavailable) bundle = early;
  if (!bundle.ok()) {
    early_->Join();
    o_.stats->CountRefusal(bundle.status());
  }
  return bundle;
}

StatusOr<Offer> Conversation::MakeOffer(const Ask& ask, const ServedBundle& bundle) {
  const Layout& layout = *o_.self.layout;
  Offer offer;
  offer.claim.attempt = ask.attempt;
  offer.claim.epoch = o_.self.epoch;
  offer.claim.state_id = bundle.seal.state_id;
  offer.claim.seal = bundle.seal;
  offer.claim.block_digests = bundle.block_digests;
  offer.lease_ms = Milliseconds(o_.lease);
  offer.reused_tokens = bundle.reused_tokens;
  // Blocks offered early are those of the bundle if it has the name it was to have; else the source
  // began again meanwhile, and they are nobody's.
  if (early_->state_id() != bundle.seal.state_id && !early_->granted().empty()) {
    group_->Revoke();
    early_->ForgetGranted();
  }
  std::vector<GrantedPart> grants;
  std::vector<size_t> places;
  for (const BundlePart& part : BundleParts(layout, bundle.seal.identity.boundary)) {
    BATON_ASSIGN_OR_RETURN(const ByteSpan bytes, BytesOf(layout, bundle, part));
    const auto early = early_->granted().find(part.key);
    if (early != early_->granted().end()) {
      offer.parts.push_back({part.key, early->second});
      continue;
    }
    grants.push_back({bundle.seal.state_id, part.key, bytes});
    places.push_back(offer.parts.size());
    offer.parts.push_back({part.key, {}});
  }
  BATON_ASSIGN_OR_RETURN(const auto addresses, group_->Grant(grants));
  for (size_t i = 0; i < grants.size(); ++i) offer.parts[places[i]].address = addresses[i];
  return offer;
}

Status Conversation::Serve(const Ask& ask, ServedBundle* bundle) {
  const Instant lease_end = o_.clock->Now() + o_.lease;
  auto offer = MakeOffer(ask, *bundle);
  Status status = offer.status();
  if (status.ok()) {
    status = link_->Send(EncodeOffer(*offer), std::min(lease_end, o_.clock->Now() + kSendTimeout));
    ++o_.stats->offers;
  }
  early_->Join();  // before this thread reads from the link again
  if (status.ok()) {
    auto frame = link_->ServeUntilFrame(lease_end);
    status = frame.status();
    if (frame.ok() && frame->type == FrameType::kError) {
      status = DecodeError(*frame);
    } else if (frame.ok() && frame->type != FrameType::kRelease) {
      status =
          Reject(Reason::kMalformed, absl::StrCat("frame of type ", static_cast<int>(frame->type),
                                                  " where a release was expected"));
      CountProtocolError(status);
    }
  }
  const ServeEnd end = EndOf(status, lease_end);
  // Only now: from here on nothing reads through the leases.
  group_->End();
  bundle->OnEnd(end);
  if (end == ServeEnd::kReleased) ++o_.stats->released;
  if (end == ServeEnd::kLeaseExpired) {
    ++o_.stats->leases_expired;
    status = Reject(Reason::kLeaseExpired,
                    absl::StrCat("bundle ", bundle->seal.state_id.Hex(), " was kept for ",
                                 Milliseconds(o_.lease), " ms and not released"));
    LogWarning(absl::StrCat(link_->peer(), ": ", std::string(status.message())));
  }
  return status;
}

ServeEnd Conversation::EndOf(const Status& served, Instant lease_end) const {
  if (served.ok()) return ServeEnd::kReleased;
  if (cancel_.stop_requested()) return ServeEnd::kStopped;
  if (o_.clock->Now() >= lease_end) return ServeEnd::kLeaseExpired;
  return ReasonOf(served) == Reason::kPeerUnavailable ? ServeEnd::kLinkClosed : ServeEnd::kRefused;
}

void Conversation::SendError(const Status& status) {
  // A peer that is gone, or that reported an error itself, wants no answer.
  if (ReasonOf(status) == Reason::kPeerUnavailable) return;
  const Instant deadline = o_.clock->Now() + kLinger;
  if (!link_->Send(EncodeError(status), deadline).ok()) return;
  while (!cancel_.stop_requested() && link_->Receive(deadline).ok()) {
  }
}

void Conversation::CountProtocolError(const Status& status) {
  // A connection that came and went without a word (a port scan, a health check) is no error.
  if (ReasonOf(status) == Reason::kPeerUnavailable) return;
  const uint64_t n = ++o_.stats->protocol_errors;
  // Whoever floods the port must not flood the log.
  if (n <= 16 || (n & (n - 1)) == 0)
    LogWarning(absl::StrCat(link_->peer(), ": not a hand-off peer: ", std::string(status.message()),
                            " (", n, " so far)"));
}

std::string_view ServeEndName(ServeEnd end) {
  switch (end) {
    case ServeEnd::kReleased:
      return "released";
    case ServeEnd::kLinkClosed:
      return "link_closed";
    case ServeEnd::kLeaseExpired:
      return "lease_expired";
    case ServeEnd::kRefused:
      return "refused";
    case ServeEnd::kStopped:
      return "stopped";
  }
  return "unknown";
}

}  // namespace baton
