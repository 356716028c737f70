// Transports whose every misfortune is drawn from the seed: schemes "sim" and "sim2". Links carry
// the frames of the production hand-off, pulls copy from the arenas of the production pools under
// the production grant table; in between a frame or an extent may be lost, delayed, doubled,
// overtaken, torn, misdirected, flipped or stalled, a connection may break, a machine may die.
//
// A machine that dies says nothing any more from that instant on: its links are cut, and whatever
// its fibers still do reaches nobody while they are wound up.
//
// What the oracle needs to know of each conversation is kept in its Facts.
// Thread rule: fibers of one scheduler.
#ifndef BATON_TEST_SIM_NETWORK_H_
#define BATON_TEST_SIM_NETWORK_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connector/connector.h"
#include "connector/connectors.h"
#include "connector/grant_table.h"
#include "handoff/wire.h"
#include "sim/event_loop.h"
#include "sim/faults.h"
#include "sim/trace.h"

namespace baton::sim {

// One incarnation of a process.
struct Machine {
  size_t index = 0;
  std::string name;  // "decode1"
  bool up = true;
  uint64_t never_quiet = 0;  // pulls whose connector will never know that its writers are silent
};
using MachinePtr = std::shared_ptr<Machine>;

enum Side { kReceiver = 0, kSource = 1 };

// What was really moved for one part, as opposed to what was said.
struct MovedPart {
  MutableByteSpan destination;
  uint64_t posted = 0;
  uint64_t reported = 0;
};

// What happened in one hand-off, over all its links, as its receiver was told.
struct Facts {
  std::optional<Ask> ask;
  std::optional<Hello> hello;  // the source's
  std::optional<Offer> offer;
  std::map<uint64_t, MovedPart> moved;  // by part key; the last pull of a part counts
  std::set<const std::byte*> suspect;   // destinations some writer may still touch
};

struct Session {
  struct Item {
    Frame frame;
    Status broken;  // not ok: bytes that are no frame
    bool end = false;
  };
  struct Granted {
    StateId state_id;
    PartKey part;
    ByteSpan bytes;
    uint64_t hash;  // when it was granted
  };
  Session(std::vector<SourceRegion> source_regions, uint64_t number)
      : id(number), regions(source_regions), grants(std::move(source_regions)) {}

  const uint64_t id;
  MachinePtr machine[2];
  std::deque<Item> inbox[2];  // by reading side
  bool closed[2] = {false, false};
  bool ended[2] = {false, false};  // the other side's end has arrived
  bool broken[2] = {false, false};
  bool interrupted[2] = {false, false};
  Instant last_arrival[2] = {};
  Instant stalled_until[2] = {};
  std::vector<SourceRegion> regions;
  GrantTable grants;
  std::vector<Granted> granted;
  bool revoked = false;
  // Shared by the links of a hand-off once one has joined the other.
  std::shared_ptr<Facts> facts = std::make_shared<Facts>();
};
using SessionPtr = std::shared_ptr<Session>;

// What the world does when a fault is its affair, and what it wants to know.
struct NetworkHooks {
  std::function<void(size_t machine)> restart;
  std::function<void(const Session&)> cancel;
  std::function<void(const Session&)> committed;  // the receiver says it has a VERIFIED bundle
  std::function<void(std::string)> violation;
};

class Network {
 public:
  Network(Scheduler* scheduler, Trace* trace, FaultPlan* plan, NetworkHooks hooks);
  ~Network();

  std::unique_ptr<Connector> NewConnector(std::string scheme, MachinePtr machine);
  StatusOr<std::unique_ptr<Listener>> Listen(const ListenOptions& options, MachinePtr machine);
  // The machine is dead from now on.
  void Cut(const Machine& machine);
  void Stop() { loop_.Stop(); }
  size_t sessions() const { return sessions_.size(); }

  // Faults that may happen to a conversation at any stage: restarts, cancel, and at stages without
  // frames also delay and stall.
  void AtStage(Session& session, Stage stage);
  // The conversation that the running fiber is in, if any.
  Session* Current();

  // For links and pulls.
  Scheduler& scheduler() { return *scheduler_; }
  Trace& trace() { return *trace_; }
  FaultPlan& plan() { return *plan_; }
  const NetworkHooks& hooks() const { return hooks_; }
  EventLoop& loop() { return loop_; }
  Status Send(Session& session, Side side, const Frame& frame);
  StatusOr<Frame> Receive(Session& session, Side side, Instant deadline);
  Link::Event WaitReadable(Session& session, Side side, Instant deadline);
  void Close(Session& session, Side side);
  PullOutcome Pull(Session& session, std::span<const ReadExtent> extents, Instant deadline);
  void Bind(Session* session, Side side) { bound_[scheduler_->running()] = {session, side}; }
  void Forget(Session* session, Side side);
  StatusOr<std::unique_ptr<Link>> Connect(const MachinePtr& from,
                                          const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel);
  struct ListenerCore {
    std::vector<SourceRegion> regions;
    MachinePtr machine;
    std::deque<SessionPtr> backlog;
    bool closed = false;
  };
  void Unlisten(const std::string& endpoint, const ListenerCore* core);
  static std::string NameOf(const Session& session);

 private:
  void Deliver(const SessionPtr& session, Side reader, Session::Item item, Instant when);
  Session::Item Flip(const Frame& frame);
  Session* OtherThan(const Session& session);
  void Note(Session& session, const Frame& frame);
  void Reset(Session& session);
  // pull.cc
  struct PullRun;

  Scheduler* scheduler_;
  Trace* trace_;
  FaultPlan* plan_;
  NetworkHooks hooks_;
  EventLoop loop_;
  uint64_t next_session_ = 1;
  std::map<std::string, std::shared_ptr<ListenerCore>> listeners_;
  std::map<uint64_t, SessionPtr> sessions_;
  std::map<uint64_t, int> ends_;  // of each session, that have not been destroyed
  std::map<Fiber*, std::pair<Session*, Side>> bound_;
  // The last frame of its kind that this machine, or this request, was sent: what a buffer that was
  // not cleared would bring again.
  std::map<std::string, Frame> stale_;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_NETWORK_H_
