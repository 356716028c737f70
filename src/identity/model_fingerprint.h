// The model fingerprint: SHA-256 over every weight tensor's name, dtype, shape and bytes as loaded,
// the effective config with all overrides, and the adapter. Two processes agree on it only if they
// compute with the same numbers. It does not read files: the loader hands over its mapped tensors.
// Thread rule: free functions; the builder belongs to one thread.
#ifndef BATON_IDENTITY_MODEL_FINGERPRINT_H_
#define BATON_IDENTITY_MODEL_FINGERPRINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/types.h"

namespace baton {

// A tensor as it lies in memory. `dtype` is the file's name for it ("F32", "BF16").
struct TensorView {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  ByteSpan bytes;
};

// XXH3-128 over the XXH3-128 of each 4 MiB piece, so that one large tensor is hashed in parallel.
// One digest per tensor, in the order given; `pool` may be null. Independent of thread count.
std::vector<Digest128> DigestTensors(std::span<const TensorView> tensors, ThreadPool* pool);

class ModelFingerprint {
 public:
  // Adds one tensor's digest. Order does not matter: Finish sorts by name.
  void AddTensor(const TensorView& tensor, const Digest128& digest);
  // `config_json` is the effective config in one canonical rendering; `adapter` is "" or its name
  // and digest. Fails with kInvalidArgument if two tensors share a name.
  StatusOr<Sha256> Finish(std::string_view config_json, std::string_view adapter);

 private:
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    Digest128 digest;
  };
  std::vector<Entry> entries_;
};

// DigestTensors, then the builder.
StatusOr<Sha256> FingerprintModel(std::span<const TensorView> tensors,
                                  std::string_view config_json,
                                  std::string_view adapter,
                                  ThreadPool* pool);

}  // namespace baton

#endif  // BATON_IDENTITY_MODEL_FINGERPRINT_H_
