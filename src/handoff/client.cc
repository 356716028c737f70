#include "handoff/client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "connector/frame.h"
#include "handoff/destination.h"
#include "handoff/parts.h"
#include "handoff/verify.h"
#include "handoff/wire.h"

namespace baton {
namespace {

// How long a release may take to leave; the bundle is verified already, so failure harms nobody.
constexpr Duration kReleaseTimeout = std::chrono::seconds(1);
constexpr Duration kErrorFrameTimeout = std::chrono::milliseconds(200);

Status CheckRequest(const LocalIdentity& self, const PullRequest& request) {
  const ContentIdentity& want = request.ask.expected;
  if (want.boundary == 0 || want.boundary % kBlockTokens != 0 || want.boundary > kAskTokensMax ||
      request.ask.tokens.size() != want.boundary)
    return absl::InvalidArgumentError(
        absl::StrCat("pull: boundary ", want.boundary, " with ", request.ask.tokens.size(),
                     " tokens; a hand-off needs as many tokens, a multiple of ", kBlockTokens));
  if (want.model != self.model || want.layout != self.layout->fingerprint())
    return absl::InvalidArgumentError("pull: the expected identity is not of this node's model");
  if (request.ask.hint.has_value() &&
      (request.ask.hint->endpoint.empty() || request.ask.hint->endpoint.size() > kAskTextMax))
    return absl::InvalidArgumentError("pull: the hint's endpoint is empty or too long");
  return absl::OkStatus();
}

// One pull from beginning to end.
class PullRun {
 public:
  PullRun(const HandoffClientOptions& options,
          const PullRequest& request,
          const CancelToken& cancel,
          std::atomic_flag* pool_busy)
      : o_(options),
        request_(request),
        cancel_(cancel),
        pool_busy_(pool_busy),
        layout_(*options.self.layout),
        destination_(options.pools, layout_, request) {
    report_.boundary = request.ask.expected.boundary;
  }

  PullResult Run() {
    Status status = Steps();
    if (status.ok()) {
      CountVerified();
    } else {
      // Closing first makes sure no byte is on its way when units are given back.
      if (link_ != nullptr) link_->Close();
      const uint64_t quarantined = destination_.Abort(quiet_);
      // What the cancel broke on its way is no news.
      if (cancel_.stop_requested() && ReasonOf(status) != Reason::kCancelled)
        status = Reject(Reason::kCancelled, absl::StrCat("cancelled while ", stage_));
      if (o_.stats != nullptr) {
        o_.stats->quarantined_units += quarantined;
        o_.stats->CountReject(status);
      }
      LogReject(status, quarantined);
    }
    return {std::move(status), std::move(report_)};
  }

 private:
  Status Steps() {
    BATON_RETURN_IF_ERROR(CheckRequest(o_.self, request_));
    BATON_RETURN_IF_ERROR(destination_.CheckShape());
    chain_.emplace(request_.ask.expected.scope, request_.ask.tokens);
    if (chain_->Hash() != request_.ask.expected.prefix)
      return absl::InvalidArgumentError("pull: the expected prefix is not the hash of the tokens");
    expected_.identity = request_.ask.expected;
    expected_.chain = &*chain_;
    expected_.attempt = request_.ask.attempt;

    BATON_RETURN_IF_ERROR(ConnectAndGreet());
    const CancelCallback on_cancel(cancel_, [this] { link_->Close(); });
    BATON_ASSIGN_OR_RETURN(const Offer offer, ReceiveOffer());
    BATON_RETURN_IF_ERROR(VerifyClaim(MakeVerifier(nullptr), expected_, offer.claim));
    BATON_RETURN_IF_ERROR(PullParts(offer));
    BATON_RETURN_IF_ERROR(Verify(offer.claim));
    BATON_RETURN_IF_ERROR(CheckWanted());
    stage_ = "committing";
    BATON_RETURN_IF_ERROR(destination_.Commit());
    link_->Send(ReleaseFrame(), o_.clock->Now() + kReleaseTimeout).IgnoreError();
    return absl::OkStatus();
  }

  Status ConnectAndGreet() {
    stage_ = "connecting";
    BATON_RETURN_IF_ERROR(CheckWanted());
    const Instant start = o_.clock->Now();
    const Instant deadline = std::min(request_.deadline, start + o_.connect_timeout);
    BATON_ASSIGN_OR_RETURN(connector_, o_.connectors->For(request_.endpoint));
    report_.connector = std::string(connector_->name());
    BATON_ASSIGN_OR_RETURN(link_, connector_->Connect(request_.endpoint, deadline, cancel_));
    stage_ = "greeting";
    const CancelCallback on_cancel(cancel_, [this] { link_->Close(); });
    const Hello mine = HelloOf(o_.self);
    // The ask goes out with the greeting: each answer waited for costs a turn of both schedulers,
    // milliseconds where all cores compute. The peer looks at it only if the greetings agree.
    Ask ask = request_.ask;
    ask.deadline_ms = static_cast<uint64_t>(std::max<int64_t>(
        1, std::chrono::floor<std::chrono::milliseconds>(request_.deadline - start).count()));
    Status sent = link_->Send(EncodeHello(mine), deadline);
    if (sent.ok()) sent = link_->Send(EncodeAsk(ask), deadline);
    BATON_ASSIGN_OR_RETURN(const Frame frame, Answer(sent, deadline));
    BATON_ASSIGN_OR_RETURN(const Hello theirs, DecodeHello(frame));
    if (o_.checks.On(Check::kPeer)) {
      Status match = MatchHello(mine, theirs);
      if (!match.ok()) {
        link_->Send(EncodeError(match), o_.clock->Now() + kErrorFrameTimeout).IgnoreError();
        return match;
      }
    }
    report_.source_node = theirs.node;
    report_.source_epoch = theirs.epoch;
    expected_.epoch = theirs.epoch;
    report_.connect_seconds = Seconds(o_.clock->Now() - start);
    return absl::OkStatus();
  }

  StatusOr<Offer> ReceiveOffer() {
    stage_ = "waiting for the offer";
    const Instant start = o_.clock->Now();
    BATON_ASSIGN_OR_RETURN(const Frame frame, Answer(absl::OkStatus(), request_.deadline));
    BATON_ASSIGN_OR_RETURN(Offer offer, DecodeOffer(frame));
    const Instant now = o_.clock->Now();
    report_.wait_seconds = Seconds(now - start);
    report_.state_id = offer.claim.state_id;
    report_.seal = offer.claim.seal;
    report_.block_digests = offer.claim.block_digests;
    report_.reused_tokens = std::min(offer.reused_tokens, report_.boundary);
    // Pulling after the source lease would read what the source has given to someone else.
    pull_deadline_ =
        std::min(request_.deadline,
                 now + std::chrono::milliseconds(std::min<uint64_t>(offer.lease_ms, 86400000)));
    return offer;
  }

  // The peer's next frame; an error frame becomes its status, also if the peer sent it and hung up
  // while this side was still sending.
  StatusOr<Frame> Answer(const Status& sent, Instant deadline) {
    if (!sent.ok()) deadline = std::min(deadline, o_.clock->Now() + kErrorFrameTimeout);
    auto answer = link_->Receive(deadline);
    if (answer.ok() && answer->type == FrameType::kError) return DecodeError(*answer);
    if (!sent.ok()) return sent;
    return answer;
  }

  // The plan is made from the own layout and boundary; the offer only says where each part lies.
  Status PullParts(const Offer& offer) {
    stage_ = "pulling";
    BATON_RETURN_IF_ERROR(CheckWanted());
    const auto parts = BundleParts(layout_, request_.ask.expected.boundary);
    report_.parts = parts.size();
    absl::flat_hash_map<PartKey, const OfferPart*> offered;
    for (const OfferPart& part : offer.parts)
      if (!offered.emplace(part.key, &part).second && o_.checks.On(Check::kParts))
        return Reject(Reason::kUnknownPart, PartKeyName(layout_, part.key) + ": offered twice");
    BATON_RETURN_IF_ERROR(destination_.Land());
    std::vector<ReadExtent> extents;
    for (const BundlePart& part : parts) {
      landed_.parts.push_back({part, {}, part.bytes, 0, 0});
      report_.planned += part.bytes;
      const auto it = offered.find(part.key);
      if (it == offered.end()) {
        if (!o_.checks.On(Check::kParts)) continue;
        return Reject(Reason::kMissingPart, PartKeyName(layout_, part.key) + ": not offered");
      }
      const ExtentAddress& address = it->second->address;
      offered.erase(it);
      if (address.bytes != part.bytes)
        return Reject(Reason::kShortTransfer,
                      absl::StrCat(PartKeyName(layout_, part.key), ": offered ", address.bytes,
                                   " bytes, expected ", part.bytes));
      landed_.parts.back().posted = part.bytes;
      report_.posted += part.bytes;
      extents.push_back({offer.claim.state_id, part.key, address.region, address.offset, part.bytes,
                         destination_.BytesOf(part)});
    }
    if (!offered.empty() && o_.checks.On(Check::kParts))
      return Reject(Reason::kUnknownPart,
                    PartKeyName(layout_, offered.begin()->first) + ": no part of this bundle");
    return Move(extents);
  }

  Status Move(const std::vector<ReadExtent>& extents) {
    const Instant start = o_.clock->Now();
    const PullOutcome outcome = connector_->Pull(*link_, extents, pull_deadline_);
    quiet_ = outcome.quiet;
    report_.pull_seconds = Seconds(o_.clock->Now() - start);
    size_t next = 0;
    for (LandedPart& part : landed_.parts) {
      if (part.posted == 0) continue;
      part.landed = next < outcome.landed.size() ? outcome.landed[next] : 0;
      ++next;
      report_.landed += part.landed;
      (part.part.is_state ? report_.state_bytes : report_.kv_bytes) += part.landed;
    }
    BATON_RETURN_IF_ERROR(outcome.status);
    if (!quiet_)
      return Reject(Reason::kPeerUnavailable,
                    absl::StrCat(report_.connector,
                                 ": the connector cannot prove that nobody "
                                 "writes any more"));
    return destination_.Landed();
  }

  Status Verify(const BundleClaim& claim) {
    stage_ = "verifying";
    BATON_RETURN_IF_ERROR(CheckWanted());
    const Instant start = o_.clock->Now();
    for (LandedPart& part : landed_.parts) part.bytes = destination_.BytesOf(part.part);
    landed_.check_handles = [this] { return destination_.CheckHandles(); };
    // A ThreadPool runs one loop at a time: whoever comes second verifies on its own thread.
    const bool pooled = o_.verify_pool != nullptr && !pool_busy_->test_and_set();
    Status status =
        VerifyBundle(MakeVerifier(pooled ? o_.verify_pool : nullptr), expected_, claim, landed_);
    if (pooled) pool_busy_->clear();
    report_.verify_seconds = Seconds(o_.clock->Now() - start);
    return status;
  }

  Verifier MakeVerifier(ThreadPool* pool) const {
    return {&layout_, &o_.self.digester, o_.device, pool, o_.checks};
  }

  // Transports that never had to wait have not looked at the deadline: it is looked at here, so
  // that what nobody waits for any more is not committed.
  Status CheckWanted() const {
    if (cancel_.stop_requested())
      return Reject(Reason::kCancelled, absl::StrCat("cancelled while ", stage_));
    if (o_.clock->Now() > request_.deadline)
      return Reject(Reason::kPeerUnavailable, absl::StrCat("deadline passed while ", stage_));
    return absl::OkStatus();
  }

  void CountVerified() {
    if (o_.stats == nullptr) return;
    const auto nanos = [](double seconds) { return static_cast<uint64_t>(seconds * 1e9); };
    ++o_.stats->verified;
    o_.stats->kv_bytes += report_.kv_bytes;
    o_.stats->state_bytes += report_.state_bytes;
    o_.stats->wait_nanoseconds += nanos(report_.wait_seconds);
    o_.stats->pull_nanoseconds += nanos(report_.pull_seconds);
    o_.stats->verify_nanoseconds += nanos(report_.verify_seconds);
  }

  void LogReject(const Status& status, uint64_t quarantined) const {
    if (ReasonOf(status) == Reason::kCancelled) return;  // the client's wish, not an event
    LogWarning(absl::StrCat(
        "hand-off rejected: ",
        std::string(ReasonName(ReasonOf(status).value_or(Reason::kPeerError))), ": ",
        std::string(status.message()), " (", request_.endpoint, ", boundary ",
        request_.ask.expected.boundary, ", attempt ", request_.ask.attempt.value, ", state-id ",
        report_.state_id.Hex(), request_.ask.label.empty() ? "" : ", ", request_.ask.label,
        quarantined == 0 ? "" : absl::StrCat(", ", quarantined, " units quarantined"), ")"));
  }

  const HandoffClientOptions& o_;
  const PullRequest& request_;
  const CancelToken& cancel_;
  std::atomic_flag* pool_busy_;
  const Layout& layout_;
  Connector* connector_ = nullptr;
  std::unique_ptr<Link> link_;
  Destination destination_;
  std::optional<PrefixChain> chain_;
  Expectation expected_;
  LandedBundle landed_;
  PullReport report_;
  Instant pull_deadline_{};
  bool quiet_ = true;
  const char* stage_ = "starting";
};

}  // namespace

HandoffClient::HandoffClient(HandoffClientOptions options) : options_(std::move(options)) {}

PullResult HandoffClient::Pull(const PullRequest& request, const CancelToken& cancel) {
  if (options_.stats != nullptr) ++options_.stats->pulls;
  return PullRun(options_, request, cancel, &pool_busy_).Run();
}

}  // namespace baton
