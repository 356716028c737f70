#include "sim/network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "connector/frame.h"
#include "identity/xxh.h"
#include "sim/links.h"

namespace baton::sim {
namespace {

Stage StageOf(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return Stage::kHello;
    case FrameType::kAsk:
      return Stage::kAsk;
    case FrameType::kJoin:
    case FrameType::kJoined:
      return Stage::kJoin;
    case FrameType::kBlocks:
    case FrameType::kNext:
      return Stage::kBlocks;
    case FrameType::kRelease:
      return Stage::kRelease;
    default:
      return Stage::kOffer;  // the source's answers, errors too
  }
}

std::string_view NameOf(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "HELLO";
    case FrameType::kAsk:
      return "ASK";
    case FrameType::kOffer:
      return "OFFER";
    case FrameType::kBlocks:
      return "BLOCKS";
    case FrameType::kNext:
      return "NEXT";
    case FrameType::kJoin:
      return "JOIN";
    case FrameType::kJoined:
      return "JOINED";
    case FrameType::kRelease:
      return "RELEASE";
    case FrameType::kError:
      return "ERROR";
    default:
      return "frame";
  }
}

Status Gone(const Session& s, Side side) {
  return Reject(Reason::kPeerUnavailable,
                absl::StrCat("sim link ", s.id, " to ", s.machine[1 - side]->name, ": closed"));
}

}  // namespace

Network::Network(Scheduler* scheduler, Trace* trace, FaultPlan* plan, NetworkHooks hooks)
    : scheduler_(scheduler),
      trace_(trace),
      plan_(plan),
      hooks_(std::move(hooks)),
      loop_(scheduler, "wire") {}
Network::~Network() { Stop(); }

std::string Network::NameOf(const Session& s) {
  return absl::StrCat("#", s.id, " ", s.machine[kReceiver]->name, "<-", s.machine[kSource]->name,
                      s.facts->ask.has_value() ? " " + s.facts->ask->label : "");
}

Session* Network::Current() {
  const auto it = bound_.find(scheduler_->running());
  return it == bound_.end() ? nullptr : it->second.first;
}

void Network::Forget(Session* session, Side side) {
  Close(*session, side);
  std::erase_if(bound_, [&](const auto& b) { return b.second == std::make_pair(session, side); });
  if (--ends_[session->id] == 0) {
    ends_.erase(session->id);
    sessions_.erase(session->id);
  }
}

void Network::AtStage(Session& s, Stage stage) {
  const auto happens = [&](Fault fault) {
    if (!plan_->Fire(fault, stage)) return false;
    trace_->Event(FaultName(fault), s.id, static_cast<uint64_t>(stage), [&] {
      return absl::StrCat("!! at ", std::string(StageName(stage)), " of ", NameOf(s));
    });
    return true;
  };
  if (happens(Fault::kCancel)) hooks_.cancel(s);
  if (happens(Fault::kRestartSource)) hooks_.restart(s.machine[kSource]->index);
  if (happens(Fault::kRestartReceiver)) hooks_.restart(s.machine[kReceiver]->index);
  if (stage != Stage::kProvide && stage != Stage::kVerify && stage != Stage::kConnect) return;
  if (happens(Fault::kDelay))
    scheduler_->SleepUntil(scheduler_->now() +
                           std::chrono::microseconds(1000 + plan_->rng().Below(50'000)));
  if (happens(Fault::kStall))
    scheduler_->SleepUntil(scheduler_->now() +
                           std::chrono::milliseconds(500 + plan_->rng().Below(10'000)));
}

void Network::Cut(const Machine& machine) {
  std::vector<SessionPtr> affected;
  for (const auto& [id, s] : sessions_)
    for (const Side side : {kReceiver, kSource})
      if (s->machine[side].get() == &machine) affected.push_back(s);
  for (const SessionPtr& s : affected) Reset(*s);
  std::erase_if(listeners_, [&](const auto& l) { return l.second->machine.get() == &machine; });
}

// Both ends learn of it, unless they are dead.
void Network::Reset(Session& s) {
  for (const Side side : {kReceiver, kSource}) {
    s.inbox[side].clear();
    s.ended[side] = true;
    if (!s.machine[side]->up) s.closed[side] = true;
    scheduler_->Wake(&s.inbox[side], /*all=*/true);
  }
}

void Network::Deliver(const SessionPtr& s, Side reader, Session::Item item, Instant when) {
  loop_.At(when, [this, s, reader, item = std::move(item)] {
    if (s->closed[reader] || s->ended[reader]) return;
    trace_->Event("arrive", s->id, static_cast<uint64_t>(item.frame.type), [&] {
      return absl::StrCat(
          item.end ? "end"
                   : (item.broken.ok() ? std::string(sim::NameOf(item.frame.type)) : "garbage"),
          " at ", s->machine[reader]->name, "  ", NameOf(*s));
    });
    if (item.end)
      s->ended[reader] = true;
    else
      s->inbox[reader].push_back(item);
    scheduler_->Wake(&s->inbox[reader], /*all=*/true);
  });
}

// A bit flipped on the wire breaks the frame's checksum; one flipped before it was computed does
// not, and one flipped before an offer was built passes the offer's own checksum too.
Session::Item Network::Flip(const Frame& frame) {
  Session::Item item{frame, absl::OkStatus(), false};
  SplitMix64& rng = plan_->rng();
  const uint64_t kind = rng.Below(3);
  if (kind == 0 || frame.payload.empty()) {
    FrameHeaderBytes header = EncodeFrameHeader(frame);
    const uint64_t bit = rng.Below((header.size() + frame.payload.size()) * 8);
    uint8_t& byte =
        bit / 8 < header.size() ? header[bit / 8] : item.frame.payload[bit / 8 - header.size()];
    byte ^= static_cast<uint8_t>(1u << (bit % 8));
    const auto decoded = DecodeFrameHeader(header);
    item.broken =
        decoded.ok() ? CheckFramePayload(*decoded, AsBytes(item.frame.payload)) : decoded.status();
    return item;
  }
  const uint64_t bit = rng.Below(item.frame.payload.size() * 8);
  item.frame.payload[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  const bool hashed = frame.type == FrameType::kOffer || frame.type == FrameType::kBlocks;
  if (kind == 2 && hashed && frame.payload.size() > 8) {
    const size_t body = frame.payload.size() - 8;
    const uint64_t hash = OfferHash(AsBytes(item.frame.payload).first(body));
    std::memcpy(item.frame.payload.data() + body, &hash, 8);
  }
  return item;
}

// Another conversation whose frames this one's could be mixed up with.
Session* Network::OtherThan(const Session& s) {
  std::vector<Session*> others;
  for (const auto& [id, other] : sessions_)
    if (id != s.id && !other->closed[kReceiver] && !other->closed[kSource])
      others.push_back(other.get());
  return others.empty() ? nullptr : others[plan_->rng().Below(others.size())];
}

Status Network::Send(Session& s, Side side, const Frame& frame) {
  const auto reader = static_cast<Side>(1 - side);
  const SessionPtr self = sessions_.at(s.id);
  Bind(&s, side);
  if (s.closed[side] || s.ended[side]) return Gone(s, side);
  if (side == kReceiver) Note(s, frame);
  if (side == kReceiver && frame.type == FrameType::kRelease) hooks_.committed(s);
  const Stage stage = StageOf(frame.type);
  trace_->Event("send", s.id, static_cast<uint64_t>(frame.type), [&] {
    return absl::StrCat(std::string(sim::NameOf(frame.type)), "  ", NameOf(s));
  });
  AtStage(s, stage);
  if (s.closed[side] || s.ended[side]) return Gone(s, side);
  SplitMix64& rng = plan_->rng();
  const auto happens = [&](Fault fault) {
    if (!plan_->Fire(fault, stage)) return false;
    trace_->Event(FaultName(fault), s.id, static_cast<uint64_t>(stage), [&] {
      return absl::StrCat("!! on ", std::string(sim::NameOf(frame.type)), " of ", NameOf(s));
    });
    return true;
  };
  Instant at = scheduler_->now() + std::chrono::microseconds(20 + rng.Below(180));
  if (happens(Fault::kReset)) {
    Reset(s);
    return Gone(s, side);
  }
  if (happens(Fault::kLoss)) return absl::OkStatus();
  if (happens(Fault::kDelay)) at += std::chrono::microseconds(1000 + rng.Below(50'000));
  if (happens(Fault::kStall))
    s.stalled_until[reader] =
        scheduler_->now() + std::chrono::milliseconds(500 + rng.Below(10'000));
  Session::Item item{frame, absl::OkStatus(), false};
  if (happens(Fault::kBitFlip)) item = Flip(frame);
  if (happens(Fault::kTear))
    item.broken = Reject(Reason::kMalformed, "sim link: the frame ends early");
  SessionPtr target = self;
  if (plan_->Draw(Fault::kMisdirectRequest, stage)) {
    if (Session* other = OtherThan(s)) {
      plan_->Count(Fault::kMisdirectRequest, stage);
      trace_->Event("misdirect", s.id, other->id, [&] {
        return absl::StrCat("!! ", std::string(sim::NameOf(frame.type)), " of ", NameOf(s), " to ",
                            NameOf(*other));
      });
      target = sessions_.at(other->id);
    }
  }
  at = std::max(at, s.stalled_until[reader]);
  if (happens(Fault::kReorder)) {
    at += std::chrono::microseconds(200 + rng.Below(3000));
  } else {
    at = std::max(at, s.last_arrival[reader] + Duration(1));
    s.last_arrival[reader] = at;
  }
  Deliver(target, reader, item, at);
  if (side == kSource && (stage == Stage::kHello || frame.type == FrameType::kOffer ||
                          frame.type == FrameType::kBlocks)) {
    const std::string key =
        absl::StrCat(std::string(sim::NameOf(frame.type)), " ",
                     stage == Stage::kHello || !s.facts->ask.has_value() ? s.machine[kSource]->name
                                                                         : s.facts->ask->label);
    Frame& earlier = stale_[key];
    if (!earlier.payload.empty() && earlier.payload != frame.payload && happens(Fault::kDuplicate))
      Deliver(target, reader, {earlier, absl::OkStatus(), false}, at - Duration(1));
    earlier = frame;
  } else if (happens(Fault::kDuplicate)) {
    Deliver(target, reader, item, at + std::chrono::microseconds(rng.Below(2000)));
  }
  return absl::OkStatus();
}

// What the receiver says of itself.
void Network::Note(Session& s, const Frame& frame) {
  if (frame.type == FrameType::kAsk) {
    auto ask = DecodeAsk(frame);
    if (ask.ok()) s.facts->ask = *std::move(ask);
  } else if (frame.type == FrameType::kJoin) {
    const auto key = DecodeJoin(frame);
    for (const auto& [id, other] : sessions_)
      if (key.ok() && other->facts->ask.has_value() && other->facts->ask->join_key == *key)
        s.facts = other->facts;
  }
}

StatusOr<Frame> Network::Receive(Session& s, Side side, Instant deadline) {
  Bind(&s, side);
  for (;;) {
    if (s.closed[side] || s.broken[side]) return Gone(s, side);
    if (!s.inbox[side].empty()) {
      Session::Item item = std::move(s.inbox[side].front());
      s.inbox[side].pop_front();
      if (!item.broken.ok()) {
        s.broken[side] = true;
        return item.broken;
      }
      if (side == kReceiver) {
        if (item.frame.type == FrameType::kHello && !s.facts->hello.has_value()) {
          auto hello = DecodeHello(item.frame);
          if (hello.ok()) s.facts->hello = *hello;
        } else if (item.frame.type == FrameType::kOffer) {
          auto offer = DecodeOffer(item.frame);
          if (offer.ok()) s.facts->offer = *std::move(offer);
        }
      }
      return std::move(item.frame);
    }
    if (s.ended[side]) return Gone(s, side);
    if (!scheduler_->WaitOn(&s.inbox[side], deadline))
      return Reject(Reason::kPeerUnavailable,
                    absl::StrCat("sim link ", s.id, ": deadline passed while waiting"));
  }
}

Link::Event Network::WaitReadable(Session& s, Side side, Instant deadline) {
  for (;;) {
    if (std::exchange(s.interrupted[side], false)) return Link::Event::kInterrupted;
    if (!s.inbox[side].empty() || s.closed[side] || s.ended[side] || s.broken[side])
      return Link::Event::kReadable;
    if (!scheduler_->WaitOn(&s.inbox[side], deadline)) return Link::Event::kDeadline;
  }
}

void Network::Close(Session& s, Side side) {
  if (std::exchange(s.closed[side], true)) return;
  scheduler_->Wake(&s.inbox[side], /*all=*/true);
  const auto other = static_cast<Side>(1 - side);
  const auto self = sessions_.find(s.id);
  if (self == sessions_.end() || s.closed[other] || loop_.stopped()) return;
  const Instant at = std::max({scheduler_->now() + std::chrono::microseconds(50),
                               s.last_arrival[other] + Duration(1), s.stalled_until[other]});
  Deliver(self->second, other, {Frame{}, absl::OkStatus(), /*end=*/true}, at);
}

void Network::Unlisten(const std::string& endpoint, const ListenerCore* core) {
  const auto it = listeners_.find(endpoint);
  if (it != listeners_.end() && it->second.get() == core) listeners_.erase(it);
}

std::unique_ptr<Connector> Network::NewConnector(std::string scheme, MachinePtr machine) {
  return std::make_unique<SimConnector>(this, std::move(scheme), std::move(machine));
}

StatusOr<std::unique_ptr<Listener>> Network::Listen(const ListenOptions& options,
                                                    MachinePtr machine) {
  auto core = std::make_shared<ListenerCore>();
  core->regions = options.regions;
  core->machine = std::move(machine);
  listeners_[options.endpoint] = core;
  return std::make_unique<SimListener>(this, options.endpoint, std::move(core));
}

StatusOr<std::unique_ptr<Link>> Network::Connect(const MachinePtr& from,
                                                 const std::string& endpoint,
                                                 Instant deadline,
                                                 const CancelToken& cancel) {
  const auto refused = [&](std::string_view why) {
    return Reject(Reason::kPeerUnavailable, absl::StrCat(endpoint, ": ", std::string(why)));
  };
  auto it = listeners_.find(endpoint);
  if (!from->up || it == listeners_.end()) return refused("nobody listens");
  auto session = std::make_shared<Session>(it->second->regions, next_session_++);
  session->machine[kReceiver] = from;
  session->machine[kSource] = it->second->machine;
  sessions_[session->id] = session;
  ends_[session->id] = 1;
  Bind(session.get(), kReceiver);
  auto link = std::make_unique<SimLink<Link>>(this, session, kReceiver);
  trace_->Event("connect", session->id, 0, [&] { return NameOf(*session); });
  AtStage(*session, Stage::kConnect);
  if (plan_->Fire(Fault::kReset, Stage::kConnect)) return refused("connection refused");
  const bool lost = plan_->Fire(Fault::kLoss, Stage::kConnect);
  const Instant arrives = lost ? Instant::max() : scheduler_->now() + std::chrono::microseconds(50);
  const CancelCallback on_cancel(
      cancel, [this, &session] { scheduler_->Wake(session.get(), /*all=*/true); });
  if (cancel.stop_requested()) return Reject(Reason::kCancelled, "sim: cancelled");
  scheduler_->WaitOn(session.get(), std::min(arrives, deadline));
  if (cancel.stop_requested()) return Reject(Reason::kCancelled, "sim: cancelled");
  if (lost || scheduler_->now() >= deadline) return refused("no answer before the deadline");
  it = listeners_.find(endpoint);
  if (it == listeners_.end() || it->second->machine != session->machine[kSource] || !from->up)
    return refused("nobody listens");
  it->second->backlog.push_back(session);
  ends_[session->id] = 2;
  scheduler_->Wake(it->second.get(), /*all=*/false);
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace baton::sim
