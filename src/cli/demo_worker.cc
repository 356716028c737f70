#include "cli/demo_worker.h"

#include <atomic>
#include <memory>
#include <utility>

#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"

namespace baton::cli {
namespace {

// Counts hand-offs: keeps what the first one lands, and lands the state of that one, in flight, on
// the chosen later one. An attack belongs to a link, so it is armed when the link is made.
class SwapOnce final : public Connector {
 public:
  SwapOnce(std::unique_ptr<Connector> inner, int swap_handoff)
      : hostile_(std::move(inner)), swap_handoff_(swap_handoff) {}

  std::string_view name() const override { return hostile_.name(); }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    const int handoff = handoffs_.fetch_add(1) + 1;
    if (handoff == 1) hostile_.CaptureNext();
    if (handoff == swap_handoff_ && hostile_.captured() != nullptr)
      hostile_.Arm(SubstitutePayload(hostile_.captured(), IsStatePart));
    return hostile_.Connect(endpoint, deadline, cancel);
  }
  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    return hostile_.Pull(link, extents, deadline);
  }

 private:
  HostileConnector hostile_;
  const int swap_handoff_;
  std::atomic<int> handoffs_{0};
};

}  // namespace

int RunDemoWorker(const ServeFlags& flags, int swap_handoff) {
  const MonotonicClock clock;
  return RunServe(flags, [&](engine::WorkerOptions* options) {
    options->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock));
    for (const char* name : {"shm", "tcp", "ucx"})
      if (auto inner = options->connectors->Take(name))
        options->connectors->Add(std::make_unique<SwapOnce>(std::move(inner), swap_handoff));
  });
}

}  // namespace baton::cli
