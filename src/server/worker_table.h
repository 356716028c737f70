// What the router knows of its workers: health, model, load. Decides where a request goes; does no
// I/O and takes no clock (health_monitor.h polls, remote_generator.h sends).
//
// A worker is in use while its last health check was good and it serves the fleet's model: the
// fingerprint of the first good worker is kept as long as any worker serves it, so that a stream
// can never be continued by other weights. It leaves at the first certain failure (connection
// refused or lost, draining) or after several time-outs in a row, and rejoins with the next good
// check.
//
// Thread rule: thread-safe.
#ifndef BATON_SERVER_WORKER_TABLE_H_
#define BATON_SERVER_WORKER_TABLE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/http_client.h"
#include "server/node_info.h"

namespace baton::server {

using WorkerIndex = size_t;

enum class WorkerDuty { kPrefill, kDecode };

struct WorkerView {
  HttpAddress address;
  WorkerDuty duty = WorkerDuty::kDecode;
  bool healthy = false;
  std::string problem = "not checked yet";  // why it is not healthy
  NodeInfo info;                            // of the last good check
  int64_t in_flight = 0;                    // requests this router has on it
  int64_t timeouts = 0;                     // in a row
};

class WorkerTable {
 public:
  struct Options {
    std::vector<HttpAddress> prefill;
    std::vector<HttpAddress> decode;
    std::vector<std::string> connectors;  // acceptable ones, best first; tried in this order
    int64_t timeouts_max = 3;             // in a row before a silent worker is given up
    int64_t affinity_slack = 8;  // more requests than the least loaded before affinity yields
  };
  explicit WorkerTable(Options options);

  size_t size() const;
  HttpAddress address(WorkerIndex worker) const;

  // Reports. Each returns whether the worker changed between healthy and not.
  bool ReportGood(WorkerIndex worker, NodeInfo info);
  bool ReportFailed(WorkerIndex worker, const std::string& problem);
  // No answer in time; counts against timeouts_max.
  bool ReportTimeout(WorkerIndex worker);

  struct DecodeQuery {
    std::optional<WorkerIndex> preferred;  // has the conversation's state
    std::string preferred_epoch;           // only while it is this incarnation
    std::string fingerprint;               // "" = any; else the model that began the stream
    std::set<WorkerIndex> excluded;
  };
  struct DecodePick {
    WorkerIndex worker = 0;
    std::string fingerprint;
    std::string epoch;
  };
  // Nothing if no worker fits. The pick counts as in flight until Release.
  std::optional<DecodePick> PickDecode(const DecodeQuery& query);

  struct PrefillPick {
    WorkerIndex worker = 0;
    std::string endpoint;  // hand-off endpoint to pull from
  };
  // Least loaded healthy prefill worker other than the process at `decode`, that offers an
  // acceptable connector; only the one called `name` ("host:port") if that is not empty.
  std::optional<PrefillPick> PickPrefill(WorkerIndex decode, const std::string& name);
  bool KnowsPrefill(const std::string& name) const;

  void Release(WorkerIndex worker);

  std::vector<WorkerView> View() const;
  // "127.0.0.1:8001 (decode): connection refused; ..." of workers with this duty.
  std::string Problems(WorkerDuty duty) const;
  // Smallest max_model_len and vocab_size over healthy workers; 0 if none is known.
  int64_t max_model_len() const;
  int64_t vocab_size() const;

 private:
  bool SetHealthy(WorkerView* worker, bool healthy) BATON_REQUIRES(mu_);
  bool ServesFleetModel(const NodeInfo& info) BATON_REQUIRES(mu_);

  const Options options_;
  mutable Mutex mu_;
  std::vector<WorkerView> workers_ BATON_GUARDED_BY(mu_);
  std::string fingerprint_ BATON_GUARDED_BY(mu_);  // of the fleet; "" before the first
  size_t turn_ BATON_GUARDED_BY(mu_) = 0;          // rotates among equals
};

}  // namespace baton::server

#endif  // BATON_SERVER_WORKER_TABLE_H_
