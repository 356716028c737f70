// The connector's interfaces over a Network: nothing here but forwarding. Internal to the network.
// Thread rule: as connector.h, on fibers.
#ifndef BATON_TEST_SIM_LINKS_H_
#define BATON_TEST_SIM_LINKS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "connector/revocable.h"
#include "identity/xxh.h"
#include "sim/network.h"

namespace baton::sim {

template <class Interface>
class SimLink : public Interface {
 public:
  SimLink(Network* net, SessionPtr session, Side side)
      : net_(net), session_(std::move(session)), side_(side) {}
  ~SimLink() override { net_->Forget(session_.get(), side_); }
  Status Send(const Frame& frame, Instant) override { return net_->Send(*session_, side_, frame); }
  StatusOr<Frame> Receive(Instant deadline) override {
    return net_->Receive(*session_, side_, deadline);
  }
  Link::Event WaitReadable(Instant deadline) override {
    return net_->WaitReadable(*session_, side_, deadline);
  }
  void Interrupt() override {
    session_->interrupted[side_] = true;
    net_->scheduler().Wake(&session_->inbox[side_], /*all=*/true);
  }
  void Close() override { net_->Close(*session_, side_); }
  std::string peer() const override {
    return absl::StrCat("sim ", session_->machine[1 - side_]->name);
  }
  Session& session() { return *session_; }

 protected:
  Network* const net_;
  const SessionPtr session_;
  const Side side_;
};

uint64_t HashOf(ByteSpan bytes);

class SimSourceLink final : public SimLink<SourceLink>, public Revocable {
 public:
  using SimLink<SourceLink>::SimLink;
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    BATON_ASSIGN_OR_RETURN(auto addresses, session_->grants.Grant(parts));
    for (const GrantedPart& p : parts)
      session_->granted.push_back({p.state_id, p.part, p.bytes, HashOf(p.bytes)});
    session_->revoked = false;
    return addresses;
  }
  void RevokeAll() override {
    session_->grants.RevokeAll();
    session_->granted.clear();
    session_->revoked = true;
  }
  // Nobody copies between two of the simulated threads' turns.
  bool RevokeWhileServing() override {
    RevokeAll();
    return true;
  }
  // The receiver's pull copies by itself.
  StatusOr<Frame> ServeUntilFrame(Instant deadline) override { return Receive(deadline); }
};

class SimListener final : public Listener {
 public:
  SimListener(Network* net, std::string endpoint, std::shared_ptr<Network::ListenerCore> core)
      : net_(net), endpoint_(std::move(endpoint)), core_(std::move(core)) {}
  ~SimListener() override { Close(); }
  StatusOr<std::unique_ptr<SourceLink>> Accept() override {
    while (core_->backlog.empty()) {
      if (core_->closed) return absl::UnavailableError("listener closed");
      net_->scheduler().WaitOn(core_.get(), Instant::max());
    }
    SessionPtr session = std::move(core_->backlog.front());
    core_->backlog.pop_front();
    net_->Bind(session.get(), kSource);
    return std::unique_ptr<SourceLink>(
        std::make_unique<SimSourceLink>(net_, std::move(session), kSource));
  }
  void Close() override {
    net_->Unlisten(endpoint_, core_.get());
    core_->closed = true;
    while (!core_->backlog.empty()) {
      const SessionPtr session = std::move(core_->backlog.front());
      core_->backlog.pop_front();
      net_->Forget(session.get(), kSource);
    }
    net_->scheduler().Wake(core_.get(), /*all=*/true);
  }
  std::string endpoint() const override { return endpoint_; }
  std::string_view connector_name() const override {
    return std::string_view(endpoint_).substr(0, endpoint_.find(':'));
  }

 private:
  Network* const net_;
  const std::string endpoint_;
  const std::shared_ptr<Network::ListenerCore> core_;
};

class SimConnector final : public Connector {
 public:
  SimConnector(Network* net, std::string scheme, MachinePtr machine)
      : net_(net), scheme_(std::move(scheme)), machine_(std::move(machine)) {}
  std::string_view name() const override { return scheme_; }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    return net_->Connect(machine_, endpoint, deadline, cancel);
  }
  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    return net_->Pull(static_cast<SimLink<Link>&>(link).session(), extents, deadline);
  }

 private:
  Network* const net_;
  const std::string scheme_;
  const MachinePtr machine_;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_LINKS_H_
