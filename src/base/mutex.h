// std::mutex and std::condition_variable with clang's thread-safety annotations. (Debian's
// absl::Mutex is built without TSan and gives false reports under it.)
#ifndef BATON_BASE_MUTEX_H_
#define BATON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define BATON_TSA(x) __attribute__((x))
#else
#define BATON_TSA(x)
#endif
#define BATON_CAPABILITY(x) BATON_TSA(capability(x))
#define BATON_SCOPED_CAPABILITY BATON_TSA(scoped_lockable)
#define BATON_GUARDED_BY(x) BATON_TSA(guarded_by(x))
#define BATON_REQUIRES(...) BATON_TSA(requires_capability(__VA_ARGS__))
#define BATON_EXCLUDES(...) BATON_TSA(locks_excluded(__VA_ARGS__))
#define BATON_ACQUIRE(...) BATON_TSA(acquire_capability(__VA_ARGS__))
#define BATON_RELEASE(...) BATON_TSA(release_capability(__VA_ARGS__))
#define BATON_NO_TSA BATON_TSA(no_thread_safety_analysis)

namespace baton {

class BATON_CAPABILITY("mutex") Mutex {
 public:
  void Lock() BATON_ACQUIRE() { mu_.lock(); }
  void Unlock() BATON_RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class BATON_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mu) BATON_ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() BATON_RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mu_;
};

class CondVar {
 public:
  // Atomically releases *mu and blocks; spurious wake-ups happen, so callers loop.
  void Wait(Mutex* mu) BATON_REQUIRES(mu) BATON_NO_TSA {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false on timeout.
  bool WaitFor(Mutex* mu, std::chrono::nanoseconds d) BATON_REQUIRES(mu) BATON_NO_TSA {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const bool signalled = cv_.wait_for(lock, d) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace baton

#endif  // BATON_BASE_MUTEX_H_
