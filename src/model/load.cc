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

// The tensor as the model sees it: under the bound name, and BF16 where the file has FP8 in blocks.
// `bytes` holds what had to be made.
StatusOr<StoredTensor> AsBound(const WeightBinder& binder,
                               const TensorRequest& request,
                               const Checkpoint& checkpoint,
                               std::vector<std::byte>* bytes) {
  const StoredTensor& stored = *binder.Resolve(checkpoint, request);
  StoredTensor tensor = stored;
  tensor.name = request.name;
  if (const StoredTensor* scales = binder.ScalesOf(checkpoint, stored)) {
    BATON_ASSIGN_OR_RETURN(*bytes, DequantiseBlocks(stored, *scales, *binder.block_scales()));
    tensor.dtype = TensorDType::kBF16;
    tensor.bytes = *bytes;
  }
  return tensor;
}

Loaded LoadTensor(const WeightBinder& binder,
                  const TensorRequest& request,
                  const Checkpoint& checkpoint) {
  Loaded loaded;
  std::vector<std::byte> bytes;
  StatusOr<StoredTensor> made = AsBound(binder, request, checkpoint, &bytes);
  if (!made.ok()) {
    loaded.status = made.status();
    return loaded;
  }
  const StoredTensor& tensor = *made;
  loaded.view = TensorView{request.name, TensorDTypeName(tensor.dtype), tensor.shape, tensor.bytes};
  for (const auto& consume : request.consumers) {
    loaded.status = consume(tensor);
    if (!loaded.status.ok()) return loaded;
  }
  loaded.digest = DigestTensors(std::span(&loaded.view, 1), nullptr)[0];
  loaded.view.bytes = {};  // what was made is gone at the end; the digest stands for it
  checkpoint.Release(*binder.Resolve(checkpoint, request));
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
  std::vector<size_t> sizes;
  for (const TensorRequest& request : requests)
    sizes.push_back(binder.Resolve(checkpoint, request)->bytes.size());
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<Loaded> loaded(requests.size());
  const auto load = [&](int64_t i) {
    loaded[order[i]] = LoadTensor(binder, requests[order[i]], checkpoint);
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
