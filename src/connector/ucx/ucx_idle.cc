#include "connector/ucx/ucx_idle.h"

namespace baton {

std::unique_ptr<UcxWorker> UcxIdle::Take(const std::vector<uint8_t>& peer) {
  for (;;) {
    std::unique_ptr<UcxWorker> worker;
    {
      MutexLock lock(&mu_);
      // The one kept last: the peer's other half of it is the last that the peer would give up.
      auto it = idle_.rbegin();
      while (it != idle_.rend() && it->first != peer) ++it;
      if (it == idle_.rend()) return nullptr;
      worker = std::move(it->second);
      idle_.erase(std::next(it).base());
    }
    // What came while nobody looked, the end of the peer among it.
    constexpr int kRoundsMax = 1000;
    for (int i = 0; i < kRoundsMax && worker->Progress(); ++i) continue;
    if (worker->status().ok() && worker->pending() == 0) return worker;
  }
}

void UcxIdle::Keep(std::vector<uint8_t> peer, std::unique_ptr<UcxWorker> worker) {
  std::unique_ptr<UcxWorker> oldest;  // closed outside the lock
  LetGo();
  MutexLock lock(&mu_);
  idle_.emplace_back(std::move(peer), std::move(worker));
  if (idle_.size() <= kIdleMax) return;
  oldest = std::move(idle_.front().second);
  idle_.pop_front();
}

void UcxIdle::LetGo() {
  MutexLock lock(&mu_);
  for (const auto& [address, worker] : idle_) worker->Progress();
}

}  // namespace baton
