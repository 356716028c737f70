// Any bytes as a safetensors file: never a crash, and an accepted file's views lie inside it.
#include <cstddef>
#include <cstdint>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  using namespace baton::model;
  // Half of the inputs get a length that fits, or the fuzzer would rarely get past it.
  std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                              reinterpret_cast<const std::byte*>(data) + size);
  if (size >= 9 && data[0] % 2 == 0) {
    const uint64_t header = (size - 8) - data[8] % (size - 7);
    std::memcpy(file.data(), &header, 8);
  }
  const auto parsed = ParseSafetensors(file);
  if (!parsed.ok()) return 0;
  for (const StoredTensor& t : parsed->tensors) {
    BATON_CHECK(t.bytes.data() >= file.data() &&
                t.bytes.data() + t.bytes.size() <= file.data() + file.size());
    BATON_CHECK(TensorBytes(t.dtype, t.shape) == t.bytes.size());
  }
  return 0;
}
