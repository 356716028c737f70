#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton {
namespace {

// About 20-50 us: longer than the gap between two loops of a step, far shorter than an idle wait.
constexpr int kSpins = 2000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerMain(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    ticket_.fetch_add(1);
    wake_.NotifyAll();
  }
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::Drain(Loop* loop) {
  for (;;) {
    const int64_t i = loop->next.fetch_add(1, std::memory_order_relaxed);
    if (i >= loop->n) return;
    loop->thunk(loop->fn, i);
    loop->done.fetch_add(1, std::memory_order_release);
  }
}

std::shared_ptr<ThreadPool::Loop> ThreadPool::Current() {
  MutexLock lock(&mu_);
  return loop_;
}

void ThreadPool::Run(int64_t n, Thunk thunk, const void* fn) {
  auto loop = std::make_shared<Loop>();
  loop->thunk = thunk;
  loop->fn = fn;
  loop->n = n;
  {
    MutexLock lock(&mu_);
    loop_ = loop;
    ticket_.fetch_add(1, std::memory_order_release);
    wake_.NotifyAll();
  }
  Drain(loop.get());
  // A core may be shared with other processes: after a while, give the core to whoever holds the
  // last index.
  for (int spin = 0; loop->done.load(std::memory_order_acquire) < n; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::WorkerMain() {
  uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && ticket_.load(std::memory_order_acquire) == seen; ++spin)
      Pause();
    {
      MutexLock lock(&mu_);
      while (!stop_ && ticket_.load(std::memory_order_relaxed) == seen) wake_.Wait(&mu_);
      if (stop_) return;
      seen = ticket_.load(std::memory_order_relaxed);
    }
    if (std::shared_ptr<Loop> loop = Current()) Drain(loop.get());
  }
}

}  // namespace baton
