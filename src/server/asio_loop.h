// Inside of IoPool, for the transport files only: everything that includes this pays for Asio.
//
// Each loop is one io_context run by one thread, so objects that live on a loop need no strand.
// Objects outside (engine threads) reach it by Loop::Post, which is safe after Stop.
#ifndef BATON_SERVER_ASIO_LOOP_H_
#define BATON_SERVER_ASIO_LOOP_H_

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/io_pool.h"

namespace baton::server {

class Loop {
 public:
  Loop() : context_(std::in_place, 1), guard_(context_->get_executor()) {}

  boost::asio::io_context& context() { return *context_; }

  // Runs fn on the loop's thread; dropped once the loop is closed.
  template <class Fn>
  void Post(Fn fn) BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (closed_) return;
    boost::asio::post(*context_, std::move(fn));
  }

  void Start() {
    thread_ = std::thread([this] { context_->run(); });
  }

  // Refuses later posts and joins the thread.
  void Halt() BATON_EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      closed_ = true;
    }
    guard_.reset();
    if (context_.has_value()) context_->stop();
    if (thread_.joinable()) thread_.join();
  }

  // Destroys suspended coroutines and pending handlers, which may hold references to loops and
  // would otherwise keep each other alive. After Halt of every loop of the pool.
  void Destroy() { context_.reset(); }

 private:
  Mutex mu_;
  bool closed_ BATON_GUARDED_BY(mu_) = false;
  std::optional<boost::asio::io_context> context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::thread thread_;
};

struct IoPool::Impl {
  std::vector<std::shared_ptr<Loop>> loops;
  std::atomic<uint64_t> next{0};

  const std::shared_ptr<Loop>& Next() { return loops[next.fetch_add(1) % loops.size()]; }
};

}  // namespace baton::server

#endif  // BATON_SERVER_ASIO_LOOP_H_
