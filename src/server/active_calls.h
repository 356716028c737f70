// The requests under way, so that a drain can wait for them and a stop can end them.
// Thread rule: thread-safe.
#ifndef BATON_SERVER_ACTIVE_CALLS_H_
#define BATON_SERVER_ACTIVE_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace baton::server {

class ActiveCalls : public std::enable_shared_from_this<ActiveCalls> {
 public:
  // Counts a call until destroyed.
  class Ticket {
   public:
    Ticket(std::shared_ptr<ActiveCalls> calls, int64_t id, int64_t weight)
        : calls_(std::move(calls)), id_(id), weight_(weight) {}
    ~Ticket() { calls_->Leave(id_, weight_); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    const std::shared_ptr<ActiveCalls> calls_;
    const int64_t id_;
    const int64_t weight_;
  };

  explicit ActiveCalls(int64_t weight_max) : weight_max_(weight_max) {}

  // Null if the weights of all calls would pass the maximum. `abort` may be called from any thread
  // and must not take locks that are held around Enter.
  std::unique_ptr<Ticket> Enter(int64_t weight, std::function<void()> abort) BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (weight_ + weight > weight_max_) return nullptr;
    weight_ += weight;
    const int64_t id = next_id_++;
    aborts_.emplace(id, std::move(abort));
    return std::make_unique<Ticket>(shared_from_this(), id, weight);
  }

  // Waits until no call is left; false on timeout.
  bool WaitIdle(Duration timeout) BATON_EXCLUDES(mu_) {
    const MonotonicClock clock;
    const Instant deadline = clock.Now() + timeout;
    MutexLock lock(&mu_);
    while (!aborts_.empty()) {
      const Duration left = deadline - clock.Now();
      if (left <= Duration(0)) return false;
      idle_.WaitFor(&mu_, left);
    }
    return true;
  }

  void AbortAll() BATON_EXCLUDES(mu_) {
    std::vector<std::function<void()>> aborts;
    {
      MutexLock lock(&mu_);
      for (const auto& [id, abort] : aborts_) aborts.push_back(abort);
    }
    for (const auto& abort : aborts) abort();
  }

  // Choices being generated.
  int64_t weight() const BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return weight_;
  }
  int64_t weight_max() const { return weight_max_; }

 private:
  void Leave(int64_t id, int64_t weight) BATON_EXCLUDES(mu_) {
    std::function<void()> dropped;  // destroyed outside the lock
    MutexLock lock(&mu_);
    const auto it = aborts_.find(id);
    dropped = std::move(it->second);
    aborts_.erase(it);
    weight_ -= weight;
    if (aborts_.empty()) idle_.NotifyAll();
  }

  const int64_t weight_max_;
  mutable Mutex mu_;
  CondVar idle_;
  int64_t weight_ BATON_GUARDED_BY(mu_) = 0;
  int64_t next_id_ BATON_GUARDED_BY(mu_) = 0;
  std::map<int64_t, std::function<void()>> aborts_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::server

#endif  // BATON_SERVER_ACTIVE_CALLS_H_
