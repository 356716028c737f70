// Polls GET /health of every worker over a kept connection, one check per worker and interval, and
// reports to the WorkerTable. Thread rule: Start and Stop from one thread; callbacks come on io
// threads.
#ifndef BATON_SERVER_HEALTH_MONITOR_H_
#define BATON_SERVER_HEALTH_MONITOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/http_client.h"
#include "server/io_pool.h"
#include "server/worker_table.h"

namespace baton::server {

class HealthMonitor final : public std::enable_shared_from_this<HealthMonitor> {
 public:
  struct Options {
    int64_t interval_ms = 1000;  // between the end of a check and the next
    int64_t timeout_ms = 5000;   // of one check
  };
  struct Hooks {
    std::function<void(WorkerIndex)> joined;  // a worker became healthy
    // A worker has been silent for too long: streams on it will not go on.
    std::function<void(WorkerIndex)> hung;
  };

  // `io` and `client` must outlive all checks, that is be stopped first.
  HealthMonitor(IoPool* io,
                HttpClient* client,
                std::shared_ptr<WorkerTable> table,
                Options options);

  void Start(Hooks hooks);
  void Stop() { stopped_.store(true); }

 private:
  class Check;
  void CheckOne(WorkerIndex worker);
  void Done(WorkerIndex worker, int http_status, const std::string& body, const Status& status);

  IoPool* const io_;
  HttpClient* const client_;
  const std::shared_ptr<WorkerTable> table_;
  const Options options_;
  Hooks hooks_;
  std::atomic<bool> stopped_{false};
};

}  // namespace baton::server

#endif  // BATON_SERVER_HEALTH_MONITOR_H_
