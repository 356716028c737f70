#include "connector/inproc/inproc_connector.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "connector/extents.h"
#include "connector/grant_table.h"
#include "connector/revocable.h"

namespace baton {
namespace {

// Frames one side may have unread; a conversation never has more than a few.
constexpr size_t kQueueMax = 64;
constexpr size_t kBacklogMax = 1024;
// As kPollSlice: bounds how late a simulated clock is noticed, in conversations only.
constexpr Duration kWaitSlice = std::chrono::milliseconds(50);

enum Side { kReceiver = 0, kSource = 1 };

// One conversation, shared by its two ends.
struct Session {
  explicit Session(std::vector<SourceRegion> regions) : grants(std::move(regions)) {}

  Mutex mu;
  CondVar changed;
  std::deque<Frame> inbox[2] BATON_GUARDED_BY(mu);  // by reading side
  bool closed[2] BATON_GUARDED_BY(mu) = {false, false};
  bool interrupted[2] BATON_GUARDED_BY(mu) = {false, false};

  // Held while a part is copied, so that RevokeAll returns only when nobody reads.
  Mutex grants_mu;
  GrantTable grants BATON_GUARDED_BY(grants_mu);
};

// What both ends do with a session.
class SessionEnd {
 public:
  SessionEnd(std::shared_ptr<Session> session, Side side, std::string peer, const Clock* clock)
      : session_(std::move(session)), side_(side), peer_(std::move(peer)), clock_(clock) {}
  ~SessionEnd() { Close(); }

  Status Send(const Frame& frame) {
    MutexLock lock(&session_->mu);
    if (session_->closed[side_] || session_->closed[1 - side_]) return Gone();
    auto& inbox = session_->inbox[1 - side_];
    if (inbox.size() >= kQueueMax || frame.payload.size() > kFramePayloadMax)
      return Reject(Reason::kPeerUnavailable, peer_ + ": the peer does not read its frames");
    inbox.push_back(frame);
    session_->changed.NotifyAll();
    return absl::OkStatus();
  }

  StatusOr<Frame> Receive(Instant deadline) {
    MutexLock lock(&session_->mu);
    for (;;) {
      if (session_->closed[side_]) return Gone();
      auto& inbox = session_->inbox[side_];
      if (!inbox.empty()) {
        Frame frame = std::move(inbox.front());
        inbox.pop_front();
        return frame;
      }
      if (session_->closed[1 - side_]) return Gone();
      if (!Wait(deadline))
        return Reject(Reason::kPeerUnavailable, peer_ + ": deadline passed while waiting");
    }
  }

  Link::Event WaitReadable(Instant deadline) {
    MutexLock lock(&session_->mu);
    for (;;) {
      if (std::exchange(session_->interrupted[side_], false)) return Link::Event::kInterrupted;
      if (!session_->inbox[side_].empty() || session_->closed[0] || session_->closed[1])
        return Link::Event::kReadable;
      if (!Wait(deadline)) return Link::Event::kDeadline;
    }
  }

  void Interrupt() {
    MutexLock lock(&session_->mu);
    session_->interrupted[side_] = true;
    session_->changed.NotifyAll();
  }

  void Close() {
    MutexLock lock(&session_->mu);
    session_->closed[side_] = true;
    session_->changed.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(&session_->mu);
    return session_->closed[side_];
  }
  Session& session() { return *session_; }
  const std::string& peer() const { return peer_; }
  const Clock* clock() const { return clock_; }

 private:
  // False once the deadline has passed.
  bool Wait(Instant deadline) BATON_REQUIRES(session_->mu) {
    const Duration left = deadline - clock_->Now();
    if (left <= Duration::zero()) return false;
    session_->changed.WaitFor(&session_->mu, std::min<Duration>(left, kWaitSlice));
    return true;
  }
  Status Gone() const { return Reject(Reason::kPeerUnavailable, peer_ + ": link closed"); }

  const std::shared_ptr<Session> session_;
  const Side side_;
  const std::string peer_;
  const Clock* clock_;
};

template <class Interface>
class InprocEnd : public Interface {
 public:
  InprocEnd(std::shared_ptr<Session> session, Side side, std::string peer, const Clock* clock)
      : end_(std::move(session), side, std::move(peer), clock) {}
  Status Send(const Frame& frame, Instant) override { return end_.Send(frame); }
  StatusOr<Frame> Receive(Instant deadline) override { return end_.Receive(deadline); }
  Link::Event WaitReadable(Instant deadline) override { return end_.WaitReadable(deadline); }
  void Interrupt() override { end_.Interrupt(); }
  void Close() override { end_.Close(); }
  std::string peer() const override { return end_.peer(); }
  SessionEnd& end() { return end_; }

 private:
  SessionEnd end_;
};

using InprocLink = InprocEnd<Link>;

class InprocSourceLink final : public InprocEnd<SourceLink>, public Revocable {
 public:
  using InprocEnd<SourceLink>::InprocEnd;
  ~InprocSourceLink() override { RevokeAll(); }
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    MutexLock lock(&end().session().grants_mu);
    return end().session().grants.Grant(parts);
  }
  void RevokeAll() override {
    MutexLock lock(&end().session().grants_mu);
    end().session().grants.RevokeAll();
  }
  // Waits at most for the copy of one part.
  bool RevokeWhileServing() override {
    RevokeAll();
    return true;
  }
  // The receiver copies on its own thread, so there is nothing to serve.
  StatusOr<Frame> ServeUntilFrame(Instant deadline) override { return Receive(deadline); }
};

struct ListenerCore {
  std::vector<SourceRegion> regions;
  Mutex mu;
  CondVar changed;
  std::deque<std::shared_ptr<Session>> backlog BATON_GUARDED_BY(mu);
  bool closed BATON_GUARDED_BY(mu) = false;
};

}  // namespace

struct InprocHub::State {
  Mutex mu;
  absl::flat_hash_map<std::string, std::shared_ptr<ListenerCore>> listeners BATON_GUARDED_BY(mu);
};

InprocHub::InprocHub() : state_(std::make_unique<State>()) {}
InprocHub::~InprocHub() = default;

namespace {

class InprocListener final : public Listener {
 public:
  InprocListener(InprocHub::State* hub,
                 std::string name,
                 std::shared_ptr<ListenerCore> core,
                 const Clock* clock)
      : hub_(hub), name_(std::move(name)), core_(std::move(core)), clock_(clock) {}
  ~InprocListener() override { Close(); }

  StatusOr<std::unique_ptr<SourceLink>> Accept() override {
    MutexLock lock(&core_->mu);
    while (core_->backlog.empty()) {
      if (core_->closed) return absl::UnavailableError("listener closed");
      core_->changed.Wait(&core_->mu);
    }
    std::shared_ptr<Session> session = std::move(core_->backlog.front());
    core_->backlog.pop_front();
    return std::make_unique<InprocSourceLink>(std::move(session), kSource, "peer of " + endpoint(),
                                              clock_);
  }

  void Close() override {
    {
      MutexLock lock(&hub_->mu);
      const auto it = hub_->listeners.find(name_);
      if (it != hub_->listeners.end() && it->second == core_) hub_->listeners.erase(it);
    }
    std::deque<std::shared_ptr<Session>> unserved;
    {
      MutexLock lock(&core_->mu);
      core_->closed = true;
      unserved.swap(core_->backlog);
      core_->changed.NotifyAll();
    }
    for (const auto& session : unserved) {
      MutexLock lock(&session->mu);
      session->closed[kSource] = true;
      session->changed.NotifyAll();
    }
  }
  std::string endpoint() const override { return "inproc:" + name_; }
  std::string_view connector_name() const override { return "inproc"; }

 private:
  InprocHub::State* hub_;
  const std::string name_;
  const std::shared_ptr<ListenerCore> core_;
  const Clock* clock_;
};

class InprocConnector final : public Connector {
 public:
  InprocConnector(InprocHub::State* hub, const Clock* clock) : hub_(hub), clock_(clock) {}
  std::string_view name() const override { return "inproc"; }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant,
                                          const CancelToken& cancel) override {
    BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
    if (parsed.scheme != name())
      return absl::InvalidArgumentError("'" + endpoint + "' is not an inproc endpoint");
    if (cancel.stop_requested()) return Reject(Reason::kCancelled, endpoint + ": cancelled");
    std::shared_ptr<ListenerCore> core;
    {
      MutexLock lock(&hub_->mu);
      const auto it = hub_->listeners.find(parsed.address);
      if (it == hub_->listeners.end())
        return Reject(Reason::kPeerUnavailable, endpoint + ": nobody listens");
      core = it->second;
    }
    auto session = std::make_shared<Session>(core->regions);
    MutexLock lock(&core->mu);
    if (core->closed || core->backlog.size() >= kBacklogMax)
      return Reject(Reason::kPeerUnavailable, endpoint + ": listener closed or its queue full");
    core->backlog.push_back(session);
    core->changed.NotifyOne();
    return std::make_unique<InprocLink>(std::move(session), kReceiver, endpoint, clock_);
  }

  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    PullOutcome out;
    out.landed.assign(extents.size(), 0);
    auto* inproc = dynamic_cast<InprocLink*>(&link);
    if (inproc == nullptr) {
      out.status = absl::InvalidArgumentError("not a link of the inproc connector");
      return out;
    }
    out.status = CheckExtents(extents);
    for (size_t i = 0; i < extents.size() && out.status.ok(); ++i) {
      out.status = Copy(inproc->end(), extents[i], deadline);
      if (out.status.ok()) out.landed[i] = extents[i].bytes;
    }
    return out;
  }

 private:
  Status Copy(SessionEnd& end, const ReadExtent& e, Instant deadline) {
    if (end.closed()) return Reject(Reason::kPeerUnavailable, end.peer() + ": link closed");
    if (clock_->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, end.peer() + ": deadline passed while copying");
    MutexLock lock(&end.session().grants_mu);
    BATON_ASSIGN_OR_RETURN(const ByteSpan source,
                           end.session().grants.Resolve({e.state_id, e.part, 0, e.bytes}));
    std::memcpy(e.destination.data(), source.data(), source.size());
    return absl::OkStatus();
  }

  InprocHub::State* hub_;
  const Clock* clock_;
};

}  // namespace

std::unique_ptr<Connector> MakeInprocConnector(InprocHub* hub, const Clock* clock) {
  return std::make_unique<InprocConnector>(hub->state(), clock);
}

StatusOr<std::unique_ptr<Listener>> ListenInproc(InprocHub* hub,
                                                 const std::string& name,
                                                 std::vector<SourceRegion> regions,
                                                 const Clock* clock) {
  auto core = std::make_shared<ListenerCore>();
  core->regions = std::move(regions);
  MutexLock lock(&hub->state()->mu);
  if (name.empty() || !hub->state()->listeners.emplace(name, core).second)
    return absl::InvalidArgumentError("inproc name '" + name + "' is empty or taken");
  return std::make_unique<InprocListener>(hub->state(), name, std::move(core), clock);
}

}  // namespace baton
