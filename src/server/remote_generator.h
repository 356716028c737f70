// The router's Generator: sends each request, as token ids, to a decode worker, names a prefill
// worker for it to pull from, and relays the tokens. When a decode worker is lost in mid-stream the
// request goes on elsewhere as prompt + tokens already sent, and the caller sees one unbroken
// stream with the tokens and logits hashes of an undisturbed run.
//
// Refusals: kResourceExhausted if too many requests are in flight here or every decode worker is
// full; kUnavailable if no healthy decode worker appears within worker_wait_ms.
//
// Thread rule: thread-safe. Sinks are called from io threads. Stop the IoPool before destroying.
#ifndef BATON_SERVER_REMOTE_GENERATOR_H_
#define BATON_SERVER_REMOTE_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/generator.h"
#include "server/http_client.h"
#include "server/io_pool.h"
#include "server/metrics.h"
#include "server/status_page.h"
#include "server/worker_table.h"

namespace baton::server {

struct RouterShared;  // remote_call.h

struct RouterOptions {
  std::vector<HttpAddress> prefill;  // none: decode workers compute their prompts themselves
  std::vector<HttpAddress> decode;   // at least one
  // Acceptable connectors, best first. A single entry means that one or none.
  std::vector<std::string> connectors = {"shm", "tcp"};
  std::string worker_api_key;  // sent to workers as a bearer key
  int64_t health_interval_ms = 1000;
  int64_t health_timeout_ms = 5000;
  int64_t worker_wait_ms = 30'000;  // for a healthy decode worker, at start and at failover
  int64_t in_flight_max = 1024;
  int64_t attempts_max = 8;   // in a row without a new token
  int64_t max_model_len = 0;  // of the router's own model directory; workers may lower it
  int64_t vocab_size = 0;
  size_t affinity_entries = 1 << 16;
};

class RemoteGenerator final : public engine::Generator {
 public:
  RemoteGenerator(IoPool* io, RouterOptions options);
  ~RemoteGenerator() override;

  // Starts polling the workers.
  void StartHealthChecks();
  // Ends polling and every request (kCancelled). Idempotent.
  void Stop();

  StatusOr<std::shared_ptr<engine::Generation>> Start(
      engine::GenerateRequest request, std::shared_ptr<engine::GenerationSink> sink) override;
  int64_t max_model_len() const override;
  int64_t vocab_size() const override;

  // True once at least one decode worker, and one prefill worker if any is configured, is healthy.
  bool Ready() const;
  // For ApiDeps::health_extra: {"ready": bool, "workers": [...]}.
  Json HealthExtra() const;
  // For ApiDeps::status_rows.
  StatusRows Rows() const;
  // For Metrics::AddCollector.
  std::vector<MetricSample> Collect() const;
  int64_t failovers() const;

 private:
  std::shared_ptr<RouterShared> shared_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_REMOTE_GENERATOR_H_
