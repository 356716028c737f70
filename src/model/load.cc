#include "model/load.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "identity/model_fingerprint.h"

namespace baton::model {
namespace {

struct Loaded {
  Status status;
  TensorView view;  // identity's description of the tensor
  Digest128 digest;
};

Loaded LoadTensor(const TensorRequest& request, const Checkpoint& checkpoint) {
  Loaded loaded;
  const StoredTensor& tensor = *checkpoint.Find(request.name);
  loaded.view = TensorView{tensor.name, TensorDTypeName(tensor.dtype), tensor.shape, tensor.bytes};
  for (const auto& consume : request.consumers) {
    loaded.status = consume(tensor);
    if (!loaded.status.ok()) return loaded;
  }
  loaded.digest = DigestTensors(std::span(&loaded.view, 1), nullptr)[0];
  checkpoint.Release(tensor);
  return loaded;
}

}  // namespace

StatusOr<Sha256> LoadWeights(const WeightBinder& binder,
                             const Checkpoint& checkpoint,
                             const std::string& config_text,
                             const std::string& adapter,
                             ThreadPool* pool) {
  const std::vector<TensorRequest>& requests = binder.requests();
  // Tensors are loaded side by side, the largest first, so that no thread is left with one.
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return checkpoint.Find(requests[a].name)->bytes.size() >
           checkpoint.Find(requests[b].name)->bytes.size();
  });
  std::vector<Loaded> loaded(requests.size());
  const auto load = [&](int64_t i) {
    loaded[order[i]] = LoadTensor(requests[order[i]], checkpoint);
  };
  const int64_t n = static_cast<int64_t>(requests.size());
  if (pool != nullptr) {
    pool->ParallelFor(n, load);
  } else {
    for (int64_t i = 0; i < n; ++i) load(i);
  }
  ModelFingerprint fingerprint;
  for (const Loaded& l : loaded) {
    BATON_RETURN_IF_ERROR(l.status);
    fingerprint.AddTensor(l.view, l.digest);
  }
  return fingerprint.Finish(config_text, adapter);
}

}  // namespace baton::model
