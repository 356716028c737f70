#include "server/health_monitor.h"

#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "server/cat.h"

namespace baton::server {
namespace {

constexpr size_t kBodyMax = 64 << 10;

}  // namespace

class HealthMonitor::Check final : public ClientHandler {
 public:
  Check(std::shared_ptr<HealthMonitor> monitor, WorkerIndex worker)
      : monitor_(std::move(monitor)), worker_(worker) {}

  void OnHead(int status, const HttpHeaders&) override { status_ = status; }
  void OnData(std::string_view data) override {
    if (body_.size() + data.size() <= kBodyMax) body_ += data;
  }
  void OnDone(const Status& status) override { monitor_->Done(worker_, status_, body_, status); }

 private:
  const std::shared_ptr<HealthMonitor> monitor_;
  const WorkerIndex worker_;
  int status_ = 0;
  std::string body_;
};

HealthMonitor::HealthMonitor(IoPool* io,
                             HttpClient* client,
                             std::shared_ptr<WorkerTable> table,
                             Options options)
    : io_(io), client_(client), table_(std::move(table)), options_(options) {}

void HealthMonitor::Start(Hooks hooks) {
  hooks_ = std::move(hooks);
  for (WorkerIndex i = 0; i < table_->size(); ++i) CheckOne(i);
}

void HealthMonitor::CheckOne(WorkerIndex worker) {
  if (stopped_.load()) return;
  ClientRequest request;
  request.address = table_->address(worker);
  request.target = "/health";
  request.connect_ms = options_.timeout_ms;
  request.head_ms = options_.timeout_ms;
  request.body_ms = options_.timeout_ms;
  client_->Start(std::move(request), std::make_shared<Check>(shared_from_this(), worker));
}

void HealthMonitor::Done(WorkerIndex worker,
                         int http_status,
                         const std::string& body,
                         const Status& status) {
  if (stopped_.load()) return;
  bool changed = false;
  bool healthy = false;
  bool timed_out = false;
  if (!status.ok()) {
    timed_out = absl::StrContains(status.message(), "timed out");
    changed = timed_out ? table_->ReportTimeout(worker)
                        : table_->ReportFailed(worker, std::string(status.message()));
  } else if (http_status != 200) {
    changed = table_->ReportFailed(
        worker, http_status == 503 ? "draining" : Cat("/health answered ", http_status));
  } else if (auto info = NodeInfoFromJson(body); !info.ok()) {
    changed = table_->ReportFailed(worker, std::string(info.status().message()));
  } else {
    changed = table_->ReportGood(worker, *std::move(info));
    healthy = table_->View()[worker].healthy;
  }
  if (changed) {
    const WorkerView view = table_->View()[worker];
    const std::string name = view.address.Name();
    if (healthy) {
      LogInfo(Cat("worker ", name, " (", view.info.role, ") joined"));
      hooks_.joined(worker);
    } else {
      LogWarning(Cat("worker ", name, " left: ", view.problem));
      if (timed_out) hooks_.hung(worker);
    }
  }
  io_->After(std::chrono::milliseconds(options_.interval_ms),
             [self = shared_from_this(), worker] { self->CheckOne(worker); });
}

}  // namespace baton::server
