#include "server/metrics.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <sstream>

#include "base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/cat.h"

namespace baton::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::MetricFamily;

constexpr std::string_view kOwn = "baton:";

// Names that vLLM exports with the same meaning.
constexpr std::string_view kAliased[] = {
    "num_requests_running",        "num_requests_waiting",        "kv_cache_usage_perc",
    "cache_config_info",           "prompt_tokens_total",         "generation_tokens_total",
    "request_success_total",       "num_preemptions_total",       "prefix_cache_queries_total",
    "prefix_cache_hits_total",     "time_to_first_token_seconds", "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
};

// vLLM's buckets, so that dashboards made for it fit.
const Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Histogram::BucketBoundaries kInterTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                                        0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                                        7.5,  10.0,  20.0, 40.0,  80.0};
const Histogram::BucketBoundaries kRequestBuckets = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Histogram::BucketBoundaries kHandoffBuckets = {
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0};

std::string_view FinishName(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kCancelled:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
  }
  return "error";
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(Options o) : options(std::move(o)), labels{{"model_name", options.model_name}} {}

  Counter& AddCounter(const std::string& name, const std::string& help) {
    return CounterFamily(name, help).Add({});
  }
  Family<Counter>& CounterFamily(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter()
        .Name(Cat(kOwn, name))
        .Help(help)
        .Labels(labels)
        .Register(registry);
  }
  Gauge& AddGauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge()
        .Name(Cat(kOwn, name))
        .Help(help)
        .Labels(labels)
        .Register(registry)
        .Add({});
  }
  Family<Histogram>& HistogramFamily(const std::string& name, const std::string& help) {
    return prometheus::BuildHistogram()
        .Name(Cat(kOwn, name))
        .Help(help)
        .Labels(labels)
        .Register(registry);
  }

  void Ended() {
    const int64_t n = in_flight.fetch_sub(1) - 1;
    if (!scheduler_known.load()) running.Set(static_cast<double>(n));
  }

  const Options options;
  const prometheus::Labels labels;
  prometheus::Registry registry;
  std::atomic<int64_t> in_flight{0};
  std::atomic<bool> scheduler_known{false};

  Gauge& running = AddGauge("num_requests_running", "Requests in the engine's batch");
  Gauge& waiting = AddGauge("num_requests_waiting", "Requests waiting to be admitted");
  Counter& prompt_tokens = AddCounter("prompt_tokens_total", "Prompt tokens of ended requests");
  Counter& output_tokens = AddCounter("generation_tokens_total", "Tokens generated");
  Counter& preemptions = AddCounter("num_preemptions_total", "Sequences sealed and released");
  Counter& cache_queries =
      AddCounter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Counter& cache_hits =
      AddCounter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  Counter& local_prefill =
      AddCounter("local_prefill_tokens_total", "Prompt tokens computed by the worker that decodes");
  Family<Counter>& success =
      CounterFamily("request_success_total", "Ended requests by how they ended");
  Family<Counter>& http = CounterFamily("http_responses_total", "HTTP answers by status");
  Family<Counter>& handoff_bytes =
      CounterFamily("handoff_bytes_total", "Verified bytes handed over, by connector and kind");
  Family<Counter>& rejects = CounterFamily("reject_total", "Bundles rejected, by reason");
  Family<Counter>& recomputed = CounterFamily(
      "recompute_tokens_total", "Prompt tokens computed again after a failed hand-off, by reason");
  Family<Histogram>& handoff_seconds =
      HistogramFamily("handoff_seconds", "Pull and verification of one bundle, by connector");
  Histogram& first_token =
      HistogramFamily("time_to_first_token_seconds", "From request to first token")
          .Add({}, kFirstTokenBuckets);
  Histogram& inter_token = HistogramFamily("inter_token_latency_seconds", "Between two tokens")
                               .Add({}, kInterTokenBuckets);
  Histogram& request_time =
      HistogramFamily("e2e_request_latency_seconds", "From request to last token")
          .Add({}, kRequestBuckets);

  mutable Mutex mu;
  std::vector<MetricCollector> collectors BATON_GUARDED_BY(mu);
};

Metrics::Metrics(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    impl_->success.Add({{"finished_reason", reason}});
  }
}

Metrics::~Metrics() = default;

void Metrics::AddCollector(MetricCollector collector) {
  MutexLock lock(&impl_->mu);
  impl_->collectors.push_back(std::move(collector));
}

void Metrics::RequestStarted() {
  const int64_t n = impl_->in_flight.fetch_add(1) + 1;
  if (!impl_->scheduler_known.load()) impl_->running.Set(static_cast<double>(n));
}

void Metrics::RequestRefused() {
  impl_->Ended();
  impl_->success.Add({{"finished_reason", "error"}}).Increment();
}

void Metrics::FirstToken(double seconds) { impl_->first_token.Observe(seconds); }

void Metrics::OutputTokens(int64_t tokens, double seconds) {
  impl_->output_tokens.Increment(static_cast<double>(tokens));
  if (seconds >= 0) impl_->inter_token.Observe(seconds);
}

void Metrics::RequestFinished(const engine::GenerateResult& result, double seconds) {
  impl_->Ended();
  impl_->request_time.Observe(seconds);
  impl_->success.Add({{"finished_reason", std::string(FinishName(result.reason))}}).Increment();
  const engine::Usage& u = result.usage;
  impl_->prompt_tokens.Increment(static_cast<double>(u.prompt_tokens));
  impl_->cache_queries.Increment(static_cast<double>(u.prompt_tokens));
  impl_->cache_hits.Increment(static_cast<double>(u.cached_tokens));
  impl_->local_prefill.Increment(static_cast<double>(u.local_prefill_tokens));
  std::string last_reason = "unknown";
  for (const engine::HandoffRecord& h : result.handoffs) {
    if (h.verified) {
      impl_->handoff_seconds.Add({{"connector", h.connector}}, kHandoffBuckets)
          .Observe(h.milliseconds / 1e3);
      impl_->handoff_bytes.Add({{"connector", h.connector}, {"kind", "kv"}})
          .Increment(static_cast<double>(h.kv_bytes));
      impl_->handoff_bytes.Add({{"connector", h.connector}, {"kind", "state"}})
          .Increment(static_cast<double>(h.state_bytes));
    } else {
      last_reason = h.reason.empty() ? "unknown" : h.reason;
      impl_->rejects.Add({{"reason", last_reason}}).Increment();
    }
  }
  if (u.recomputed_tokens > 0) {
    impl_->recomputed.Add({{"reason", last_reason}})
        .Increment(static_cast<double>(u.recomputed_tokens));
  }
}

void Metrics::HttpAnswer(int status) {
  impl_->http.Add({{"code", std::to_string(status)}}).Increment();
}

void Metrics::SetScheduler(int64_t running, int64_t waiting) {
  impl_->scheduler_known.store(true);
  impl_->running.Set(static_cast<double>(running));
  impl_->waiting.Set(static_cast<double>(waiting));
}

void Metrics::AddPreemptions(int64_t count) {
  impl_->preemptions.Increment(static_cast<double>(count));
}

int64_t Metrics::in_flight() const { return impl_->in_flight.load(); }

std::string Metrics::Render() const {
  std::map<std::string, MetricFamily> families;
  for (MetricFamily& family : impl_->registry.Collect()) {
    std::string name = family.name;
    families.emplace(std::move(name), std::move(family));
  }
  std::vector<MetricCollector> collectors;
  {
    MutexLock lock(&impl_->mu);
    collectors = impl_->collectors;
  }
  std::map<std::string, MetricFamily> collected;
  for (const MetricCollector& collector : collectors) {
    for (const MetricSample& sample : collector()) {
      MetricFamily& family = collected[Cat(kOwn, sample.name)];
      family.name = Cat(kOwn, sample.name);
      family.help = sample.help;
      family.type = sample.type == MetricSample::Type::kGauge ? prometheus::MetricType::Gauge
                                                              : prometheus::MetricType::Counter;
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : impl_->labels) metric.label.push_back({name, value});
      for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
      metric.gauge.value = sample.value;
      metric.counter.value = sample.value;
      family.metric.push_back(std::move(metric));
    }
  }
  for (auto& [name, family] : collected) families.insert_or_assign(name, std::move(family));

  std::vector<MetricFamily> out;
  for (auto& [name, family] : families) out.push_back(std::move(family));
  if (impl_->options.vllm_aliases) {
    const size_t own = out.size();
    for (size_t i = 0; i < own; ++i) {
      const std::string bare = out[i].name.substr(kOwn.size());
      if (std::find(std::begin(kAliased), std::end(kAliased), bare) == std::end(kAliased)) continue;
      MetricFamily alias = out[i];
      alias.name = "vllm:" + bare;
      out.push_back(std::move(alias));
    }
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, out);
  return text.str();
}

}  // namespace baton::server
