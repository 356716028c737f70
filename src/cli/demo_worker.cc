#include "cli/demo_worker.h"

#include <atomic>
#include <memory>
#include <utility>

#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"

namespace baton::cli {
namespace {

// Counts pulls over all connectors of the worker: keeps what the first one lands, and lands the
// state of that one, in flight, on the chosen later one.
class SwapOnce final : public Connector {
 public:
  SwapOnce(std::unique_ptr<Connector> inner, int swap_pull)
      : hostile_(std::move(inner)), swap_pull_(swap_pull) {}

  std::string_view name() const override { return hostile_.name(); }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint, Instant deadline,
                                          const CancelToken& cancel) override {
    return hostile_.Connect(endpoint, deadline, cancel);
  }
  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    const int pull = pulls_.fetch_add(1) + 1;
    if (pull == 1) hostile_.CaptureNext();
    if (pull == swap_pull_ && hostile_.captured() != nullptr)
      hostile_.Arm(SubstitutePayload(hostile_.captured(), IsStatePart));
    return hostile_.Pull(link, extents, deadline);
  }

 private:
  HostileConnector hostile_;
  const int swap_pull_;
  std::atomic<int> pulls_{0};
};

}  // namespace

int RunDemoWorker(const ServeFlags& flags, int swap_pull) {
  const MonotonicClock clock;
  return RunServe(flags, [&](engine::WorkerOptions* options) {
    options->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock));
    for (const char* name : {"shm", "tcp"})
      if (auto inner = options->connectors->Take(name))
        options->connectors->Add(std::make_unique<SwapOnce>(std::move(inner), swap_pull));
  });
}

}  // namespace baton::cli
