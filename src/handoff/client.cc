#include "handoff/client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "connector/frame.h"
#include "handoff/destination.h"
#include "handoff/parts.h"
#include "handoff/transfer.h"
#include "handoff/transfer_plan.h"
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
          Quarantine* quarantine,
          std::atomic_flag* pool_busy)
      : o_(options),
        request_(request),
        cancel_(cancel),
        quarantine_(quarantine),
        pool_busy_(pool_busy),
        layout_(*options.self.layout),
        destination_(options.pools, layout_, request, quarantine) {
    report_.boundary = request.ask.expected.boundary;
  }

  PullResult Run() {
    PullResult result;
    result.status = Steps();
    if (transfer_.has_value()) report_.connector = transfer_->ConnectorNames();
    if (result.status.ok()) {
      CountVerified();
      result.blocks = destination_.blocks();
      result.slot = destination_.slot();
    } else {
      // Closing first makes sure no byte is on its way when units are given back.
      if (transfer_.has_value()) transfer_->CloseAll();
      destination_.Abort();
      // What the cancel broke on its way is no news.
      if (cancel_.stop_requested() && ReasonOf(result.status) != Reason::kCancelled)
        result.status = Reject(Reason::kCancelled, absl::StrCat("cancelled while ", stage_));
      if (o_.stats != nullptr) o_.stats->CountReject(result.status);
      LogReject(result.status);
    }
    if (o_.stats != nullptr) o_.stats->quarantined_units += destination_.quarantined();
    result.report = std::move(report_);
    return result;
  }

 private:
  Status Steps() {
    BATON_RETURN_IF_ERROR(CheckRequest(o_.self, request_));
    BATON_RETURN_IF_ERROR(destination_.CheckShape());
    BATON_ASSIGN_OR_RETURN(const TransferPlan plan, ParseTransferPlan(request_.endpoint));
    chain_.emplace(request_.ask.expected.scope, request_.ask.tokens);
    if (chain_->Hash() != request_.ask.expected.prefix)
      return absl::InvalidArgumentError("pull: the expected prefix is not the hash of the tokens");
    expected_.identity = request_.ask.expected;
    expected_.chain = &*chain_;
    expected_.attempt = request_.ask.attempt;
    verifier_ = {&layout_, &o_.self.digester, o_.device, nullptr, o_.checks};
    digester_.emplace(verifier_, expected_);
    transfer_.emplace(BundleParts(layout_, request_.ask.expected.boundary), &destination_, o_.clock,
                      o_.stats, o_.checks);
    stage_ = "connecting";
    BATON_RETURN_IF_ERROR(CheckWanted());
    BATON_RETURN_IF_ERROR(quarantine_->Admit());

    BATON_RETURN_IF_ERROR(ConnectAndGreet(plan));
    const CancelCallback on_cancel(cancel_, [this] { transfer_->CloseAll(); });
    if (plan.mixed()) BATON_RETURN_IF_ERROR(JoinOthers(plan));
    BATON_ASSIGN_OR_RETURN(const Offer offer, ReceiveOffer());
    const Instant start = o_.clock->Now();
    BATON_RETURN_IF_ERROR(VerifyClaim(verifier_, expected_, offer.claim));
    BATON_RETURN_IF_ERROR(PullParts(offer));
    BATON_RETURN_IF_ERROR(Verify(offer.claim));
    BATON_RETURN_IF_ERROR(CheckWanted());
    stage_ = "committing";
    BATON_RETURN_IF_ERROR(destination_.Commit());
    link()->Send(ReleaseFrame(), o_.clock->Now() + kReleaseTimeout).IgnoreError();
    report_.finish_seconds = Seconds(o_.clock->Now() - start);
    return absl::OkStatus();
  }

  Link* link() const { return transfer_->first_link(); }

  Status ConnectAndGreet(const TransferPlan& plan) {
    const Instant start = o_.clock->Now();
    const Instant deadline = std::min(request_.deadline, start + o_.connect_timeout);
    BATON_ASSIGN_OR_RETURN(Connector* const connector, o_.connectors->For(plan.control));
    report_.connector = std::string(connector->name());
    BATON_ASSIGN_OR_RETURN(auto first, connector->Connect(plan.control, deadline, cancel_));
    transfer_->AddLink(connector, std::move(first));
    stage_ = "greeting";
    const CancelCallback on_cancel(cancel_, [this] { link()->Close(); });
    // The ask goes out with the greeting: each answer waited for costs a turn of both schedulers,
    // milliseconds where all cores compute. The peer looks at it only if the greetings agree.
    Ask ask = request_.ask;
    ask.deadline_ms = static_cast<uint64_t>(std::max<int64_t>(
        1, std::chrono::floor<std::chrono::milliseconds>(request_.deadline - start).count()));
    ask.early_blocks = o_.early_blocks;
    if (plan.mixed()) ask.join_key = join_key_ = RandomBytes<JoinKey>();
    report_.asked = true;
    BATON_ASSIGN_OR_RETURN(const Hello theirs, Greet(link(), EncodeAsk(ask), deadline));
    report_.source_node = theirs.node;
    report_.source_epoch = theirs.epoch;
    expected_.epoch = theirs.epoch;
    report_.connect_seconds = Seconds(o_.clock->Now() - start);
    return absl::OkStatus();
  }

  // Says hello and `next` at once; the peer's hello, if the two agree.
  StatusOr<Hello> Greet(Link* link, const Frame& next, Instant deadline) {
    const Hello mine = HelloOf(o_.self);
    Status sent = link->Send(EncodeHello(mine), deadline);
    if (sent.ok()) sent = link->Send(next, deadline);
    BATON_ASSIGN_OR_RETURN(const Frame frame, Answer(link, sent, deadline));
    BATON_ASSIGN_OR_RETURN(Hello theirs, DecodeHello(frame));
    if (!o_.checks.On(Check::kPeer)) return theirs;
    Status match = MatchHello(mine, theirs);
    if (match.ok()) return theirs;
    link->Send(EncodeError(match), o_.clock->Now() + kErrorFrameTimeout).IgnoreError();
    return match;
  }

  // A link per rule. One that cannot be had is a connector that has died early: another carries its
  // share.
  Status JoinOthers(const TransferPlan& plan) {
    stage_ = "joining";
    const Instant deadline = std::min(request_.deadline, o_.clock->Now() + o_.connect_timeout);
    size_t next = 1;
    const auto join = [&](const std::string& endpoint) -> StatusOr<size_t> {
      const Status joined = JoinOne(endpoint, deadline);
      if (joined.ok()) return next++;
      BATON_RETURN_IF_ERROR(CheckWanted());
      const auto reason = ReasonOf(joined);
      if (reason != Reason::kPeerUnavailable && reason != Reason::kNoCapacity) return joined;
      transfer_->CountFailover(endpoint.substr(0, endpoint.find(':')));
      LogWarning(absl::StrCat("hand-off: ", endpoint, " cannot be joined (",
                              std::string(joined.message()),
                              "); another connector carries its share"));
      return size_t{0};
    };
    BATON_ASSIGN_OR_RETURN(const size_t kv, layout_.groups().empty() ? size_t{0} : join(plan.kv));
    BATON_ASSIGN_OR_RETURN(const size_t state, !layout_.has_state() ? size_t{0} : join(plan.state));
    transfer_->RouteKv(kv != 0 ? kv : state);
    transfer_->RouteState(state != 0 ? state : kv);
    return absl::OkStatus();
  }

  Status JoinOne(const std::string& endpoint, Instant deadline) {
    BATON_ASSIGN_OR_RETURN(Connector* const connector, o_.connectors->For(endpoint));
    BATON_ASSIGN_OR_RETURN(auto link, connector->Connect(endpoint, deadline, cancel_));
    // Not by the unique_ptr, which gives the link away below.
    const CancelCallback on_cancel(cancel_, [raw = link.get()] { raw->Close(); });
    BATON_ASSIGN_OR_RETURN(const Hello theirs, Greet(link.get(), EncodeJoin(join_key_), deadline));
    if (o_.checks.On(Check::kEpoch) && theirs.epoch != *expected_.epoch)
      return Reject(
          Reason::kEpochMismatch,
          absl::StrCat(endpoint, ": epoch ", theirs.epoch.Hex(), ", the conversation's source has ",
                       expected_.epoch->Hex(), "; name endpoints of one worker"));
    BATON_ASSIGN_OR_RETURN(const Frame frame, Answer(link.get(), absl::OkStatus(), deadline));
    if (frame.type != FrameType::kJoined)
      return Reject(Reason::kMalformed, absl::StrCat("frame of type ", static_cast<int>(frame.type),
                                                     " where a joined was expected"));
    transfer_->AddLink(connector, std::move(link));
    return absl::OkStatus();
  }

  StatusOr<Offer> ReceiveOffer() {
    const Instant start = o_.clock->Now();
    for (;;) {
      stage_ = "waiting for the offer";
      BATON_ASSIGN_OR_RETURN(const Frame frame,
                             Answer(link(), absl::OkStatus(), request_.deadline));
      if (frame.type == FrameType::kBlocks) {
        if (Status early = PullBlocks(frame); !early.ok()) {
          link()->Send(EncodeError(early), o_.clock->Now() + kErrorFrameTimeout).IgnoreError();
          return early;
        }
        continue;
      }
      BATON_ASSIGN_OR_RETURN(Offer offer, DecodeOffer(frame));
      const Instant now = o_.clock->Now();
      report_.wait_seconds = Seconds(now - start);
      report_.offered = true;
      report_.state_id = offer.claim.state_id;
      report_.seal = offer.claim.seal;
      report_.block_digests = offer.claim.block_digests;
      report_.reused_tokens = std::min(offer.reused_tokens, report_.boundary);
      pull_deadline_ = WithinLease(now, offer.lease_ms);
      return offer;
    }
  }

  // Pulling after the source lease would read what the source has given to someone else.
  Instant WithinLease(Instant now, uint64_t lease_ms) const {
    return std::min(request_.deadline,
                    now + std::chrono::milliseconds(std::min<uint64_t>(lease_ms, 86400000)));
  }

  // Blocks of a bundle that is not sealed yet: pulled and digested now, judged when its offer
  // comes.
  Status PullBlocks(const Frame& frame) {
    stage_ = "pulling early blocks";
    BATON_RETURN_IF_ERROR(CheckWanted());
    const Instant start = o_.clock->Now();
    BATON_ASSIGN_OR_RETURN(const BlockOffer offer, DecodeBlocks(frame));
    if (o_.checks.On(Check::kAttempt) && offer.attempt != request_.ask.attempt)
      return Reject(Reason::kAttemptMismatch,
                    absl::StrCat("offer of blocks for attempt ", offer.attempt.value, ", expected ",
                                 request_.ask.attempt.value));
    if (o_.checks.On(Check::kEpoch) && offer.epoch != *expected_.epoch)
      return Reject(Reason::kEpochMismatch,
                    absl::StrCat("offer of blocks of epoch ", offer.epoch.Hex(), ", expected ",
                                 expected_.epoch->Hex(), "; the source restarted"));
    transfer_->Under(offer.state_id);
    BATON_RETURN_IF_ERROR(destination_.Land());
    std::vector<Transfer::Wanted> wanted;
    std::vector<Digest128> claimed;
    absl::flat_hash_set<size_t> seen;
    for (const BlockOffer::Block& block : offer.blocks) {
      const size_t* const index = transfer_->Find(block.key);
      if (index == nullptr || transfer_->progress()[*index].part.is_state)
        return Reject(Reason::kUnknownPart,
                      PartKeyName(layout_, block.key) + ": offered early, no block of this bundle");
      const PartProgress& p = transfer_->progress()[*index];
      if (block.address.bytes != p.part.bytes) return WrongSize(p.part, block.address.bytes);
      if (block.digest.is_zero() && o_.checks.On(Check::kAlgorithm))
        return Reject(Reason::kDigestAlgorithm,
                      PartKeyName(layout_, block.key) + ": offered without a digest");
      if (p.have() || !seen.insert(*index).second) continue;  // offered twice is pulled once
      wanted.push_back({*index, block.address});
      claimed.push_back(block.digest);
    }
    BATON_RETURN_IF_ERROR(transfer_->Fetch(wanted, WithinLease(start, offer.lease_ms)));
    BATON_RETURN_IF_ERROR(DigestEarly(wanted, claimed));
    if (o_.stats != nullptr) o_.stats->early_blocks += wanted.size();
    BATON_RETURN_IF_ERROR(link()->Send(NextFrame(), request_.deadline));
    report_.early_seconds += Seconds(o_.clock->Now() - start);
    return absl::OkStatus();
  }

  // The digest is kept; that it is the one named in BLOCKS only serves to notice damage early.
  Status DigestEarly(const std::vector<Transfer::Wanted>& wanted,
                     const std::vector<Digest128>& claimed) {
    auto& progress = transfer_->progress();
    for (size_t k = 0; k < wanted.size(); ++k) {
      PartProgress& p = progress[wanted[k].index];
      if (p.landed != p.part.bytes && o_.checks.On(Check::kLanded))
        return Reject(Reason::kShortTransfer,
                      absl::StrCat(PartKeyName(layout_, p.part.key), ": expected ", p.part.bytes,
                                   " bytes, landed ", p.landed));
      const ByteSpan bytes = destination_.BytesOf(p.part);
      p.digest = digester_->Digest(p.part, bytes);
      PartCheck check;
      const std::string name = PartKeyName(layout_, p.part.key);
      check.expected = claimed[k];
      check.name = name;
      check.mismatch = Reason::kBlockDigestMismatch;
      check.found = p.digest;
      BATON_RETURN_IF_ERROR(VerifyPart(verifier_, check, bytes));
    }
    return absl::OkStatus();
  }

  Status WrongSize(const BundlePart& part, uint64_t bytes) const {
    return Reject(Reason::kShortTransfer, absl::StrCat(PartKeyName(layout_, part.key), ": offered ",
                                                       bytes, " bytes, expected ", part.bytes));
  }

  // The peer's next frame; an error frame becomes its status, also if the peer sent it and hung up
  // while this side was still sending.
  StatusOr<Frame> Answer(Link* link, const Status& sent, Instant deadline) {
    if (!sent.ok()) deadline = std::min(deadline, o_.clock->Now() + kErrorFrameTimeout);
    auto answer = link->Receive(deadline);
    if (answer.ok() && answer->type == FrameType::kError) return DecodeError(*answer);
    if (!sent.ok()) return sent;
    return answer;
  }

  // The plan is made from the own layout and boundary; the offer only says where each part lies.
  Status PullParts(const Offer& offer) {
    stage_ = "pulling";
    BATON_RETURN_IF_ERROR(CheckWanted());
    transfer_->Under(offer.claim.state_id);
    auto& progress = transfer_->progress();
    report_.parts = progress.size();
    std::vector<bool> offered(progress.size());
    std::vector<Transfer::Wanted> wanted;
    for (const OfferPart& part : offer.parts) {
      const size_t* const index = transfer_->Find(part.key);
      if (index == nullptr) {
        if (!o_.checks.On(Check::kParts)) continue;
        return Reject(Reason::kUnknownPart,
                      PartKeyName(layout_, part.key) + ": no part of this bundle");
      }
      if (offered[*index]) {
        if (!o_.checks.On(Check::kParts)) continue;
        return Reject(Reason::kUnknownPart, PartKeyName(layout_, part.key) + ": offered twice");
      }
      offered[*index] = true;
      const PartProgress& p = progress[*index];
      if (part.address.bytes != p.part.bytes) return WrongSize(p.part, part.address.bytes);
      if (!p.have()) wanted.push_back({*index, part.address});
    }
    for (size_t i = 0; i < progress.size(); ++i) {
      report_.early_blocks += progress[i].have();
      if (!offered[i] && o_.checks.On(Check::kParts))
        return Reject(Reason::kMissingPart,
                      PartKeyName(layout_, progress[i].part.key) + ": not offered");
    }
    BATON_RETURN_IF_ERROR(destination_.Land());
    const double before = transfer_->seconds();
    Status status = transfer_->Fetch(wanted, pull_deadline_);
    report_.pull_seconds = transfer_->seconds() - before;
    for (const PartProgress& p : progress) {
      report_.planned += p.part.bytes;
      report_.posted += p.posted ? p.part.bytes : 0;
      report_.landed += p.landed;
      (p.part.is_state ? report_.state_bytes : report_.kv_bytes) += p.landed;
    }
    BATON_RETURN_IF_ERROR(status);
    return destination_.Landed();
  }

  Status Verify(const BundleClaim& claim) {
    stage_ = "verifying";
    BATON_RETURN_IF_ERROR(CheckWanted());
    const Instant start = o_.clock->Now();
    LandedBundle landed;
    landed.parts.reserve(transfer_->progress().size());
    for (const PartProgress& p : transfer_->progress())
      landed.parts.push_back({p.part, destination_.BytesOf(p.part), p.part.bytes,
                              p.posted ? p.part.bytes : 0, p.landed, p.digest});
    landed.check_handles = [this] { return destination_.CheckHandles(); };
    // A ThreadPool runs one loop at a time: whoever comes second verifies on its own thread.
    const bool pooled = o_.verify_pool != nullptr && !pool_busy_->test_and_set();
    Verifier verifier = verifier_;
    verifier.pool = pooled ? o_.verify_pool : nullptr;
    Status status = VerifyBundle(verifier, expected_, claim, landed);
    if (pooled) pool_busy_->clear();
    report_.verify_seconds = Seconds(o_.clock->Now() - start);
    return status;
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

  void LogReject(const Status& status) const {
    const uint64_t quarantined = destination_.quarantined();
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
  Quarantine* quarantine_;
  std::atomic_flag* pool_busy_;
  const Layout& layout_;
  std::optional<Transfer> transfer_;  // holds the links
  Destination destination_;           // given back before the links go
  JoinKey join_key_;
  std::optional<PrefixChain> chain_;
  Expectation expected_;
  Verifier verifier_;
  std::optional<PartDigester> digester_;
  PullReport report_;
  Instant pull_deadline_{};
  const char* stage_ = "starting";
};

}  // namespace

HandoffClient::HandoffClient(HandoffClientOptions options)
    : options_(std::move(options)), quarantine_(options_.quarantine_bytes_max) {}

PullResult HandoffClient::Pull(const PullRequest& request, const CancelToken& cancel) {
  if (options_.stats != nullptr) ++options_.stats->pulls;
  return PullRun(options_, request, cancel, &quarantine_, &pool_busy_).Run();
}

}  // namespace baton
