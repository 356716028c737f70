// Brings a generation's events from the engine's thread to the thread of the exchange it answers,
// so that everything above is single-threaded and the engine never formats text.
// Thread rule: a GenerationSink; `deliver` runs on the exchange's thread.
#ifndef BATON_SERVER_RELAY_SINK_H_
#define BATON_SERVER_RELAY_SINK_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/generator.h"
#include "server/http.h"

namespace baton::server {

class RelaySink final : public engine::GenerationSink,
                        public std::enable_shared_from_this<RelaySink> {
 public:
  // Called with what has come since the last call; the result is set in the last one.
  using Deliver = std::function<void(std::vector<engine::TokenEvent> events,
                                     std::optional<engine::GenerateResult> result)>;

  RelaySink(std::shared_ptr<Exchange> exchange, Deliver deliver)
      : exchange_(std::move(exchange)), deliver_(std::move(deliver)) {}

  void OnTokens(std::span<const engine::TokenEvent> events) override BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    events_.insert(events_.end(), events.begin(), events.end());
    Schedule();
  }

  void OnFinish(const engine::GenerateResult& result) override BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    result_ = result;
    Schedule();
  }

 private:
  void Schedule() BATON_REQUIRES(mu_) {
    if (std::exchange(scheduled_, true)) return;
    exchange_->Post([self = shared_from_this()] { self->Flush(); });
  }

  void Flush() BATON_EXCLUDES(mu_) {
    std::vector<engine::TokenEvent> events;
    std::optional<engine::GenerateResult> result;
    {
      MutexLock lock(&mu_);
      scheduled_ = false;
      events.swap(events_);
      result.swap(result_);
    }
    deliver_(std::move(events), std::move(result));
  }

  const std::shared_ptr<Exchange> exchange_;
  const Deliver deliver_;
  Mutex mu_;
  bool scheduled_ BATON_GUARDED_BY(mu_) = false;
  std::vector<engine::TokenEvent> events_ BATON_GUARDED_BY(mu_);
  std::optional<engine::GenerateResult> result_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::server

#endif  // BATON_SERVER_RELAY_SINK_H_
