// Workers between two conversations: making one and connecting it takes some 15 ms, more than a
// hand-off. A worker comes here only when everything that was sent over it has been acknowledged.
// Thread rule: thread-safe; a worker that was taken belongs to the taker.
#ifndef BATON_CONNECTOR_UCX_UCX_IDLE_H_
#define BATON_CONNECTOR_UCX_UCX_IDLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "connector/ucx/ucx_worker.h"

namespace baton {

class UcxIdle {
 public:
  // A worker connected to `peer`, or a receiving one for an empty `peer`; null if there is none
  // that still works.
  std::unique_ptr<UcxWorker> Take(const std::vector<uint8_t>& peer);
  // At most kIdleMax are kept; the one kept longest goes.
  void Keep(std::vector<uint8_t> peer, std::unique_ptr<UcxWorker> worker);

  // UCX accepts whoever connects to a worker, and sees that he is gone, and closes the descriptor,
  // only when the worker makes progress: here they do.
  void LetGo();

 private:
  static constexpr size_t kIdleMax = 16;

  Mutex mu_;
  std::deque<std::pair<std::vector<uint8_t>, std::unique_ptr<UcxWorker>>> idle_
      BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_CONNECTOR_UCX_UCX_IDLE_H_
