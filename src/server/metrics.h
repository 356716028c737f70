// Prometheus metrics of a process. Names begin with "baton:"; those that vLLM has too are also
// exported as "vllm:" unless switched off. Aliases are copied when scraped, so they cost nothing
// per step. Gauges that live elsewhere (slots, blocks, quarantine) come from collectors, called at
// each scrape.
//
// Thread rule: thread-safe. Updates cost under a microsecond; call them per step, not per row.
#ifndef BATON_SERVER_METRICS_H_
#define BATON_SERVER_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/generator.h"

namespace baton::server {

struct MetricSample {
  enum class Type { kGauge, kCounter };
  std::string name;  // without prefix, e.g. "state_slots_used"
  std::string help;
  Type type = Type::kGauge;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

using MetricCollector = std::function<std::vector<MetricSample>()>;

class Metrics {
 public:
  struct Options {
    std::string model_name;  // label model_name of every series
    bool vllm_aliases = true;
  };
  explicit Metrics(Options options);
  ~Metrics();

  // `collector` must stay callable until this object is destroyed. Samples of one name must agree
  // in type. A name that this class has itself is replaced by the collector's.
  void AddCollector(MetricCollector collector);

  // Requests as the HTTP layer sees them (MeteredGenerator calls these).
  void RequestStarted();
  void FirstToken(double seconds_since_start);
  // Takes back a RequestStarted whose request was not accepted.
  void RequestRefused();
  // `tokens` output tokens, `seconds` after the previous ones.
  void OutputTokens(int64_t tokens, double seconds);
  // Ends what RequestStarted began; counts tokens, cache hits, hand-offs, rejects, recomputation.
  void RequestFinished(const engine::GenerateResult& result, double seconds_since_start);
  void HttpAnswer(int status);

  // Per engine step. Until first called, all requests in flight count as running.
  void SetScheduler(int64_t running, int64_t waiting);
  void AddPreemptions(int64_t count);

  int64_t in_flight() const;

  // Prometheus text format 0.0.4.
  std::string Render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_METRICS_H_
