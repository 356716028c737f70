#include "soak/dying_connector.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace baton::soak {
namespace {

constexpr int kWritesMax = 40;  // of one ghost
constexpr auto kBetweenWrites = std::chrono::milliseconds(2);

}  // namespace

// One share whose writer would not stop.
class DyingConnector::Ghost final : public WritersLeft {
 public:
  Ghost(std::vector<MutableByteSpan> memory, int writes)
      : memory_(std::move(memory)), writes_(writes) {}
  bool Quiet() override { return quiet_.load(std::memory_order_acquire); }
  // False once it is silent.
  bool WriteOnce() {
    if (writes_-- <= 0) {
      quiet_.store(true, std::memory_order_release);
      return false;
    }
    for (const MutableByteSpan bytes : memory_)
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(0x50 + writes_));
    return true;
  }

 private:
  const std::vector<MutableByteSpan> memory_;
  int writes_;
  std::atomic<bool> quiet_{false};
};

DyingConnector::DyingConnector(std::unique_ptr<Connector> inner,
                               Hostility hostility,
                               uint64_t seed,
                               Findings* findings)
    : inner_(std::move(inner)), hostility_(hostility), findings_(findings), rng_(seed) {
  if (hostility_.haunt > 0) thread_ = std::thread([this] { HauntMain(); });
}

DyingConnector::~DyingConnector() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

uint64_t DyingConnector::Below(uint64_t n) {
  MutexLock lock(&mu_);
  return rng_.Below(n);
}

PullOutcome DyingConnector::Pull(Link& link,
                                 std::span<const ReadExtent> extents,
                                 Instant deadline) {
  double dice = static_cast<double>(Below(1 << 20)) / (1 << 20);
  const auto happens = [&dice](double chance) {
    dice -= chance;
    return dice < 0 && dice >= -chance;
  };
  if (happens(hostility_.die)) return Die(link, extents, deadline, false);
  if (happens(hostility_.haunt)) return Die(link, extents, deadline, true);
  const bool flip = happens(hostility_.flip);
  if (happens(hostility_.stall)) {
    findings_->Count("pulls stalled");
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(50)));
  }
  PullOutcome outcome = inner_->Pull(link, extents, deadline);
  if (!flip || !outcome.status.ok() || extents.empty()) return outcome;
  findings_->Count("bytes flipped");
  const MutableByteSpan bytes = extents[Below(extents.size())].destination;
  bytes[Below(bytes.size())] ^= std::byte{0x10};
  return outcome;
}

PullOutcome DyingConnector::Die(Link& link,
                                std::span<const ReadExtent> extents,
                                Instant deadline,
                                bool haunt) {
  findings_->Count(haunt ? "connectors died unquiet" : "connectors died");
  const auto half = extents.first(extents.size() / 2);
  PullOutcome outcome;
  if (!half.empty()) outcome = inner_->Pull(link, half, deadline);
  outcome.landed.resize(extents.size(), 0);
  outcome.status = Reject(Reason::kPeerUnavailable, "the wire was cut");
  if (!haunt || !outcome.quiet) return outcome;
  std::vector<MutableByteSpan> memory;
  for (const ReadExtent& e : extents) memory.push_back(e.destination);
  const auto ghost =
      std::make_shared<Ghost>(std::move(memory), static_cast<int>(Below(kWritesMax)));
  outcome.quiet = false;
  outcome.writers_left = ghost;
  MutexLock lock(&mu_);
  ghosts_.push_back(ghost);
  changed_.NotifyAll();
  return outcome;
}

void DyingConnector::HauntMain() {
  for (;;) {
    std::deque<std::shared_ptr<Ghost>> ghosts;
    {
      MutexLock lock(&mu_);
      while (ghosts_.empty() && !stop_) changed_.Wait(&mu_);
      if (ghosts_.empty()) return;
      ghosts.swap(ghosts_);
    }
    std::erase_if(ghosts, [](const auto& ghost) { return !ghost->WriteOnce(); });
    {
      MutexLock lock(&mu_);
      ghosts_.insert(ghosts_.end(), ghosts.begin(), ghosts.end());
    }
    std::this_thread::sleep_for(kBetweenWrites);
  }
}

}  // namespace baton::soak
