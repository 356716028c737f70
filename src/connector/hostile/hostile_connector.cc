#include "connector/hostile/hostile_connector.h"

#include <utility>

namespace baton {
namespace {

// The wrapped link, with the attack that was armed when it was made.
class HostileLink final : public Link {
 public:
  HostileLink(std::unique_ptr<Link> inner, std::shared_ptr<const Attack> attack)
      : inner_(std::move(inner)), attack_(std::move(attack)) {}
  Status Send(const Frame& frame, Instant deadline) override {
    return inner_->Send(frame, deadline);
  }
  StatusOr<Frame> Receive(Instant deadline) override {
    BATON_ASSIGN_OR_RETURN(Frame frame, inner_->Receive(deadline));
    if (frame.type == FrameType::kOffer) offer_ = frame;
    if (attack_ != nullptr && attack_->receive != nullptr) attack_->receive(&frame);
    return frame;
  }
  Event WaitReadable(Instant deadline) override { return inner_->WaitReadable(deadline); }
  void Interrupt() override { inner_->Interrupt(); }
  void Close() override { inner_->Close(); }
  std::string peer() const override { return inner_->peer(); }

  Link* inner() { return inner_.get(); }
  const Attack* attack() const { return attack_.get(); }
  const Frame& offer() const { return offer_; }
  // What honest pulls have landed on this link, for a capture.
  absl::flat_hash_map<PartKey, std::vector<std::byte>>& landed() { return landed_; }

 private:
  const std::unique_ptr<Link> inner_;
  const std::shared_ptr<const Attack> attack_;
  Frame offer_;  // as it came
  absl::flat_hash_map<PartKey, std::vector<std::byte>> landed_;
};

}  // namespace

HostileConnector::HostileConnector(std::unique_ptr<Connector> inner) : inner_(std::move(inner)) {}

void HostileConnector::Arm(Attack attack, int times) {
  MutexLock lock(&mu_);
  attack_ = std::make_shared<const Attack>(std::move(attack));
  times_ = times;
}

void HostileConnector::Disarm() {
  MutexLock lock(&mu_);
  attack_.reset();
  times_ = 0;
}

void HostileConnector::CaptureNext() {
  MutexLock lock(&mu_);
  capture_ = true;
}

std::shared_ptr<const CapturedPull> HostileConnector::captured() const {
  MutexLock lock(&mu_);
  return captured_;
}

int HostileConnector::attacks_made() const {
  MutexLock lock(&mu_);
  return made_;
}

StatusOr<std::unique_ptr<Link>> HostileConnector::Connect(const std::string& endpoint,
                                                          Instant deadline,
                                                          const CancelToken& cancel) {
  BATON_ASSIGN_OR_RETURN(auto link, inner_->Connect(endpoint, deadline, cancel));
  MutexLock lock(&mu_);
  std::shared_ptr<const Attack> attack;
  if (times_ > 0) {
    --times_;
    ++made_;
    attack = attack_;
  }
  return std::make_unique<HostileLink>(std::move(link), std::move(attack));
}

PullOutcome HostileConnector::Pull(Link& link,
                                   std::span<const ReadExtent> extents,
                                   Instant deadline) {
  auto* wrapped = dynamic_cast<HostileLink*>(&link);
  if (wrapped == nullptr) return inner_->Pull(link, extents, deadline);  // which refuses it
  HostileLink& hostile = *wrapped;
  const PullCall call{inner_.get(), hostile.inner(), extents, deadline};
  if (hostile.attack() != nullptr && hostile.attack()->pull != nullptr)
    return hostile.attack()->pull(call);
  PullOutcome outcome = call.Honest();
  MutexLock lock(&mu_);
  if (!capture_ || !outcome.status.ok() || extents.empty()) return outcome;
  for (const ReadExtent& e : extents)
    hostile.landed()[e.part].assign(e.destination.begin(), e.destination.end());
  // Blocks that come before the offer belong to the same capture.
  if (hostile.offer().payload.empty()) return outcome;
  auto captured = std::make_shared<CapturedPull>();
  captured->state_id = extents[0].state_id;
  captured->offer = hostile.offer();
  for (auto& [key, bytes] : hostile.landed()) captured->parts[key] = std::move(bytes);
  captured_ = std::move(captured);
  capture_ = false;
  return outcome;
}

}  // namespace baton
