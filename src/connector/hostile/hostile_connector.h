// A connector that lies, wrapped around an honest one: it swaps, drops, tears and flips what it
// lands, and rewrites the frames that come in. It shows that the checks of the hand-off can fail
// and that they do not let a lie through. Linked into tests, the demo and the drill, never reached
// by serve or route. It weakens no check.
//
// Thread rule: as Connector; Arm, Disarm and the counters may be used from any thread.
#ifndef BATON_CONNECTOR_HOSTILE_HOSTILE_CONNECTOR_H_
#define BATON_CONNECTOR_HOSTILE_HOSTILE_CONNECTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "connector/connector.h"

namespace baton {

// One Pull as the wrapped connector would run it.
struct PullCall {
  Connector* inner;
  Link* link;
  std::span<const ReadExtent> extents;
  Instant deadline;
  PullOutcome Honest() const { return inner->Pull(*link, extents, deadline); }
};

// What was landed by an earlier honest pull: payload of another request, or of an earlier step.
struct CapturedPull {
  StateId state_id;
  absl::flat_hash_map<PartKey, std::vector<std::byte>> parts;
  Frame offer;
};

// One lie. Either function may be empty: honest there.
struct Attack {
  std::string name;  // for messages: "swap_payload"
  std::function<PullOutcome(const PullCall&)> pull;
  // Sees every frame the receiver is about to get.
  std::function<void(Frame*)> receive;
};

class HostileConnector final : public Connector {
 public:
  explicit HostileConnector(std::unique_ptr<Connector> inner);

  // The next `times` pulls (and the links they use) are attacked; then honest again.
  void Arm(Attack attack, int times = 1) BATON_EXCLUDES(mu_);
  void Disarm() BATON_EXCLUDES(mu_);
  // Keeps a copy of what the next honest pull lands, and of its offer.
  void CaptureNext() BATON_EXCLUDES(mu_);
  // The last capture; null if there is none.
  std::shared_ptr<const CapturedPull> captured() const BATON_EXCLUDES(mu_);
  // Pulls that were attacked so far.
  int attacks_made() const BATON_EXCLUDES(mu_);

  std::string_view name() const override { return inner_->name(); }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override;
  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override;

 private:
  const std::unique_ptr<Connector> inner_;
  mutable Mutex mu_;
  std::shared_ptr<const Attack> attack_ BATON_GUARDED_BY(mu_);
  int times_ BATON_GUARDED_BY(mu_) = 0;
  int made_ BATON_GUARDED_BY(mu_) = 0;
  bool capture_ BATON_GUARDED_BY(mu_) = false;
  std::shared_ptr<const CapturedPull> captured_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_CONNECTOR_HOSTILE_HOSTILE_CONNECTOR_H_
