// The threads that do network I/O and timers: one event loop per thread, nothing runs while nothing
// happens. Server, HTTP client and router of a process share one pool.
//
// Thread rule: thread-safe. Functions given to it run on a pool thread and must not block.
#ifndef BATON_SERVER_IO_POOL_H_
#define BATON_SERVER_IO_POOL_H_

#include <functional>
#include <memory>

#include "base/clock.h"

namespace baton::server {

// A pending After(). Cancel() keeps the function from being called unless it already runs;
// dropping the handle does not cancel.
class IoTimer {
 public:
  virtual ~IoTimer() = default;
  virtual void Cancel() = 0;
};

class IoPool {
 public:
  // Starts `threads` >= 1 threads.
  explicit IoPool(int threads);
  ~IoPool();  // Stop()
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // Ends all loops and joins their threads. Posted functions and timers that have not run are
  // dropped, as are later ones. Idempotent; not to be called from a pool thread.
  void Stop();

  std::shared_ptr<IoTimer> After(Duration delay, std::function<void()> fn);

  // Event loops, for the transport files only (asio_loop.h).
  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_IO_POOL_H_
