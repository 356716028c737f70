// Simulated threads on a simulated clock: every thread of the program under test is a fiber,
// exactly one runs, and at each blocking call, and now and then at a lock, a generator seeded once
// chooses who goes on. Time stands still while anybody can run, but for a step per switch, and then
// jumps to the next timer. Same seed, same program: same order of everything.
//
// It knows threads, mutexes, condition variables, futexes, time and entropy; interpose.cc brings
// the program's calls here, so that the code under test is the production code, not recompiled.
//
// Thread rule: one OS thread; at most one Scheduler runs at a time.
#ifndef BATON_TEST_SIM_SCHEDULER_H_
#define BATON_TEST_SIM_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "sim/context.h"

namespace baton::sim {

struct Fiber;

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  // The one that runs, or null: then threads, clocks and entropy are the system's.
  static Scheduler* current();

  // Runs `main` as the first fiber and everything it starts. False if the fibers deadlocked or the
  // step limit was passed; `problem()` says which.
  bool Run(std::function<void()> main);
  const std::string& problem() const { return problem_; }
  // Ends Run at the next switch; what runs is left as it is.
  void Abandon(const std::string& why) {
    if (problem_.empty()) problem_ = why;
  }

  // One lock in this many is also a point where another fiber may go on; 0: none.
  void set_preempt_one_in(uint32_t n) { preempt_one_in_ = n; }
  uint64_t switches() const { return switches_; }
  // Fibers that have not ended.
  size_t alive() const { return alive_; }

  Instant now() const { return now_; }
  SplitMix64& rng() { return rng_; }          // of the schedule
  SplitMix64& entropy() { return entropy_; }  // what getrandom(2) gives

  // From fibers only.
  Fiber* running() const { return running_; }
  Fiber* Start(std::string name, std::function<void()> body, bool detached);
  void Join(Fiber* fiber);
  void Detach(Fiber* fiber);
  void Yield();
  void SleepUntil(Instant when);
  // A mutex or condition variable is an address; who waits is kept here.
  void Lock(void* mutex, uint32_t* word);
  bool TryLock(uint32_t* word);
  void Unlock(void* mutex, uint32_t* word);
  // Blocks until Wake(address) or `deadline`; false on the deadline.
  bool WaitOn(const void* address, Instant deadline);
  void Wake(const void* address, bool all);
  // The simulator's own code is not interrupted at its locks.
  void MaybePreempt();

  // This fiber goes before all others whenever it can run: the oracle.
  void set_first(Fiber* fiber) { first_ = fiber; }
  static const std::string& NameOf(const Fiber* fiber);
  // Threads that the running fiber and its descendants start are called "<group>/t<number>".
  void SetGroup(const std::string& group);
  Fiber* StartThread(std::function<void()> body);

 private:
  struct Timer {
    Instant when;
    uint64_t order;
    Fiber* fiber;
    uint64_t ticket;  // of the wait it belongs to
    friend bool operator<(const Timer& a, const Timer& b) {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };
  static void Entry(void* fiber);
  void Loop();
  void SwitchTo(Fiber* fiber);
  void Block();
  void MakeRunnable(Fiber* fiber);
  bool FireTimer();
  void Reap(Fiber* fiber);
  std::string Blocked() const;

  SplitMix64 rng_;
  SplitMix64 entropy_;
  Instant now_{std::chrono::hours(1)};
  uint32_t preempt_one_in_ = 0;
  Context main_;
  Fiber* running_ = nullptr;
  std::vector<Fiber*> runnable_;
  std::vector<std::pair<const void*, Fiber*>> waiting_;  // by address, in order of arrival
  std::vector<Timer> timers_;                            // a heap
  std::vector<std::unique_ptr<Fiber>> fibers_;
  uint64_t next_id_ = 1;
  uint64_t timer_order_ = 0;
  uint64_t switches_ = 0;
  uint64_t locks_ = 0;  // since the last switch
  size_t alive_ = 0;
  Fiber* first_ = nullptr;
  std::string problem_;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_SCHEDULER_H_
