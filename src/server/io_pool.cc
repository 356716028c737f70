#include "server/io_pool.h"

#include <boost/asio/steady_timer.hpp>

#include "server/asio_loop.h"

namespace baton::server {
namespace {

class TimerImpl final : public IoTimer, public std::enable_shared_from_this<TimerImpl> {
 public:
  TimerImpl(std::shared_ptr<Loop> loop, std::function<void()> fn)
      : loop_(std::move(loop)), fn_(std::move(fn)) {}

  void Arm(Duration delay) {
    loop_->Post([self = shared_from_this(), delay] {
      if (self->cancelled_.load()) return;
      auto timer = std::make_shared<boost::asio::steady_timer>(self->loop_->context(), delay);
      self->timer_ = timer;
      timer->async_wait([self, timer](const boost::system::error_code& error) {
        self->timer_.reset();
        if (!error && !self->cancelled_.exchange(true)) self->fn_();
        self->fn_ = nullptr;
      });
    });
  }

  void Cancel() override {
    if (cancelled_.exchange(true)) return;
    loop_->Post([self = shared_from_this()] {
      if (auto timer = self->timer_.lock()) timer->cancel();
    });
  }

 private:
  const std::shared_ptr<Loop> loop_;
  std::function<void()> fn_;
  std::weak_ptr<boost::asio::steady_timer> timer_;  // loop thread only
  std::atomic<bool> cancelled_{false};
};

}  // namespace

IoPool::IoPool(int threads) : impl_(std::make_shared<Impl>()) {
  for (int i = 0; i < threads; ++i) {
    impl_->loops.push_back(std::make_shared<Loop>());
    impl_->loops.back()->Start();
  }
}

IoPool::~IoPool() { Stop(); }

void IoPool::Stop() {
  // A loop's handlers may hold objects whose context is another loop, so all threads must have
  // stopped before the first context is destroyed.
  for (auto& loop : impl_->loops) loop->Halt();
  for (auto& loop : impl_->loops) loop->Destroy();
}

std::shared_ptr<IoTimer> IoPool::After(Duration delay, std::function<void()> fn) {
  auto timer = std::make_shared<TimerImpl>(impl_->Next(), std::move(fn));
  timer->Arm(delay);
  return timer;
}

}  // namespace baton::server
