#include "server/metered_generator.h"

#include <utility>

namespace baton::server {
namespace {

class MeteredSink final : public engine::GenerationSink {
 public:
  MeteredSink(std::shared_ptr<engine::GenerationSink> inner, std::shared_ptr<Meter> meter)
      : inner_(std::move(inner)), meter_(std::move(meter)), start_(meter_->clock.Now()) {}

  void OnTokens(std::span<const engine::TokenEvent> events) override {
    const Instant now = meter_->clock.Now();
    if (last_ == Instant(0)) {
      meter_->metrics->FirstToken(Seconds(now - start_));
      meter_->metrics->OutputTokens(static_cast<int64_t>(events.size()), -1);
    } else {
      meter_->metrics->OutputTokens(static_cast<int64_t>(events.size()), Seconds(now - last_));
    }
    last_ = now;
    inner_->OnTokens(events);
  }

  void OnFinish(const engine::GenerateResult& result) override {
    meter_->metrics->RequestFinished(result, Seconds(meter_->clock.Now() - start_));
    meter_->handoffs.Add(result.handoffs);
    inner_->OnFinish(result);
  }

 private:
  const std::shared_ptr<engine::GenerationSink> inner_;
  const std::shared_ptr<Meter> meter_;
  const Instant start_;
  Instant last_{0};
};

}  // namespace

void RecentHandoffs::Add(const std::vector<engine::HandoffRecord>& records) {
  MutexLock lock(&mu_);
  for (const engine::HandoffRecord& record : records) {
    records_.push_front(record);
    if (records_.size() > kMax) records_.pop_back();
  }
}

std::vector<engine::HandoffRecord> RecentHandoffs::Get() const {
  MutexLock lock(&mu_);
  return {records_.begin(), records_.end()};
}

StatusOr<std::shared_ptr<engine::Generation>> MeteredGenerator::Start(
    engine::GenerateRequest request, std::shared_ptr<engine::GenerationSink> sink) {
  auto metered = std::make_shared<MeteredSink>(std::move(sink), meter_);
  meter_->metrics->RequestStarted();
  auto generation = inner_->Start(std::move(request), metered);
  if (!generation.ok()) meter_->metrics->RequestRefused();
  return generation;
}

}  // namespace baton::server
