// One thread for work that is too long for an io thread, such as tokenising a megabyte of text.
// Tasks run in order. Thread rule: Post is thread-safe; the destructor runs what was posted.
#ifndef BATON_SERVER_BACKGROUND_THREAD_H_
#define BATON_SERVER_BACKGROUND_THREAD_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace baton::server {

class BackgroundThread {
 public:
  BackgroundThread() : thread_([this] { Main(); }) {}
  ~BackgroundThread() {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      wake_.NotifyOne();
    }
    thread_.join();
  }
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  void Post(std::function<void()> task) BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
    wake_.NotifyOne();
  }

 private:
  void Main() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(&mu_);
        while (tasks_.empty() && !stop_) wake_.Wait(&mu_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ BATON_GUARDED_BY(mu_);
  bool stop_ BATON_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_BACKGROUND_THREAD_H_
