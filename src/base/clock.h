// Monotonic time behind an interface, so that leases and deadlines can be driven by a simulated
// clock. Wall-clock time is never used for decisions. Thread rule: implementations are thread-safe.
#ifndef BATON_BASE_CLOCK_H_
#define BATON_BASE_CLOCK_H_

#include <atomic>
#include <chrono>

namespace baton {

using Duration = std::chrono::nanoseconds;
// Nanoseconds since an arbitrary origin of the clock that returned it.
using Instant = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  Instant Now() const override {
    return std::chrono::duration_cast<Instant>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
};

// Advances only when told.
class ManualClock final : public Clock {
 public:
  Instant Now() const override { return Instant(now_.load()); }
  void Advance(Duration d) { now_.fetch_add(d.count()); }

 private:
  std::atomic<int64_t> now_{1};
};

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace baton

#endif  // BATON_BASE_CLOCK_H_
