// A Generator that measures another one: counts and times requests and remembers the last
// hand-offs for the status page. Changes nothing about the generation.
// Thread rule: thread-safe, as Generator.
#ifndef BATON_SERVER_METERED_GENERATOR_H_
#define BATON_SERVER_METERED_GENERATOR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/generator.h"
#include "server/metrics.h"

namespace baton::server {

// The last hand-offs of a process, newest first.
class RecentHandoffs {
 public:
  static constexpr size_t kMax = 32;
  void Add(const std::vector<engine::HandoffRecord>& records) BATON_EXCLUDES(mu_);
  std::vector<engine::HandoffRecord> Get() const BATON_EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  std::deque<engine::HandoffRecord> records_ BATON_GUARDED_BY(mu_);
};

// Shared with the sinks of running generations, which may end after the server.
struct Meter {
  std::shared_ptr<Metrics> metrics;
  RecentHandoffs handoffs;
  MonotonicClock clock;
};

class MeteredGenerator final : public engine::Generator {
 public:
  // `inner` must outlive this object.
  MeteredGenerator(engine::Generator* inner, std::shared_ptr<Meter> meter)
      : inner_(inner), meter_(std::move(meter)) {}

  StatusOr<std::shared_ptr<engine::Generation>> Start(
      engine::GenerateRequest request, std::shared_ptr<engine::GenerationSink> sink) override;
  int64_t max_model_len() const override { return inner_->max_model_len(); }
  int64_t vocab_size() const override { return inner_->vocab_size(); }

 private:
  engine::Generator* const inner_;
  const std::shared_ptr<Meter> meter_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_METERED_GENERATOR_H_
