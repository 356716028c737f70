// One fiber that runs functions at their simulated time: the wire between machines, the io thread
// of an HTTP client. Functions may block on a lock, never on the loop itself.
// Thread rule: fibers of one scheduler.
#ifndef BATON_TEST_SIM_EVENT_LOOP_H_
#define BATON_TEST_SIM_EVENT_LOOP_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "sim/scheduler.h"

namespace baton::sim {

class EventLoop {
 public:
  EventLoop(Scheduler* scheduler, std::string name) : scheduler_(scheduler) {
    fiber_ = scheduler->Start(
        std::move(name), [this] { Main(); }, /*detached=*/false);
  }
  ~EventLoop() { Stop(); }

  // In order of time, then of calls.
  void At(Instant when, std::function<void()> fn) {
    events_.emplace(std::make_pair(when, order_++), std::move(fn));
    scheduler_->Wake(this, /*all=*/true);
  }
  // Drops what has not run and joins the fiber. Repeatable.
  void Stop() {
    if (fiber_ == nullptr) return;
    stop_ = true;
    scheduler_->Wake(this, /*all=*/true);
    scheduler_->Join(std::exchange(fiber_, nullptr));
    events_.clear();
  }
  bool stopped() const { return stop_; }

 private:
  void Main() {
    while (!stop_) {
      if (events_.empty()) {
        scheduler_->WaitOn(this, Instant::max());
        continue;
      }
      const auto it = events_.begin();
      if (it->first.first > scheduler_->now()) {
        scheduler_->WaitOn(this, it->first.first);
        continue;
      }
      const std::function<void()> fn = std::move(it->second);
      events_.erase(it);
      fn();
    }
  }

  Scheduler* scheduler_;
  Fiber* fiber_ = nullptr;
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> events_;
  uint64_t order_ = 0;
  bool stop_ = false;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_EVENT_LOOP_H_
