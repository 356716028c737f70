// A fixed pool for data-parallel loops inside one engine step. It is not a task queue: one
// ParallelFor runs at a time, called from one thread, which takes part in the work. Workers spin
// briefly for the next loop and then sleep, so that an idle process uses no CPU.
// Results never depend on the number of threads, because callers give each index its own output.
#ifndef BATON_BASE_THREAD_POOL_H_
#define BATON_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace baton {

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(i) once for each i in [0, n), in no particular order, and returns when all are done.
  // fn must not throw and must not call ParallelFor.
  template <class Fn>
  void ParallelFor(int64_t n, const Fn& fn) {
    if (n <= 0) return;
    if (n == 1 || workers_.empty()) {
      for (int64_t i = 0; i < n; ++i) fn(i);
      return;
    }
    Run(n, [](const void* f, int64_t i) { (*static_cast<const Fn*>(f))(i); }, &fn);
  }

 private:
  using Thunk = void (*)(const void*, int64_t);
  // Everything a worker may touch after it woke lives in the Loop, shared by reference count, so a
  // worker that wakes late can at worst find an exhausted loop.
  struct Loop {
    Thunk thunk;
    const void* fn;
    int64_t n;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  void Run(int64_t n, Thunk thunk, const void* fn);
  static void Drain(Loop* loop);
  void WorkerMain();
  std::shared_ptr<Loop> Current() BATON_EXCLUDES(mu_);

  Mutex mu_;
  CondVar wake_;
  std::shared_ptr<Loop> loop_ BATON_GUARDED_BY(mu_);
  std::atomic<uint64_t> ticket_{0};  // bumped per loop; workers spin on it
  bool stop_ BATON_GUARDED_BY(mu_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace baton

#endif  // BATON_BASE_THREAD_POOL_H_
