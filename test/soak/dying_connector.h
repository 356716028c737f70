// A connector that dies, stalls or flips a byte at random moments, and sometimes cannot say that it
// has stopped writing: then it does go on writing rubbish into what it was given, for a while,
// before it falls silent. Wrapped around an honest one.
// Thread rule: as Connector.
#ifndef BATON_TEST_SOAK_DYING_CONNECTOR_H_
#define BATON_TEST_SOAK_DYING_CONNECTOR_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/rng.h"
#include "connector/connector.h"
#include "soak/findings.h"

namespace baton::soak {

// Chances per Pull; at most one of them happens.
struct Hostility {
  double die = 0;    // half of the share lands, then the peer is gone
  double haunt = 0;  // the same, and it keeps writing into all of it
  double flip = 0;   // everything lands, one byte of it wrong
  double stall = 0;  // up to 50 ms late
  bool any() const { return die + haunt + flip + stall > 0; }
};

class DyingConnector final : public Connector {
 public:
  DyingConnector(std::unique_ptr<Connector> inner,
                 Hostility hostility,
                 uint64_t seed,
                 Findings* findings);
  // Waits until all writers are silent.
  ~DyingConnector() override;

  std::string_view name() const override { return inner_->name(); }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    return inner_->Connect(endpoint, deadline, cancel);
  }
  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override;

 private:
  class Ghost;
  PullOutcome Die(Link& link, std::span<const ReadExtent> extents, Instant deadline, bool haunt)
      BATON_EXCLUDES(mu_);
  uint64_t Below(uint64_t n) BATON_EXCLUDES(mu_);
  void HauntMain() BATON_EXCLUDES(mu_);

  const std::unique_ptr<Connector> inner_;
  const Hostility hostility_;
  Findings* const findings_;
  Mutex mu_;
  CondVar changed_;
  SplitMix64 rng_ BATON_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Ghost>> ghosts_ BATON_GUARDED_BY(mu_);
  bool stop_ BATON_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_DYING_CONNECTOR_H_
