// Any bytes, and any bytes under a checksum that holds: DecodeSeal answers or refuses, and what it
// accepts encodes back to the same record.
#include <cstring>

#include "base/sha256.h"
#include "identity/seal.h"

namespace baton {
namespace {

void Try(ByteSpan record) {
  const StatusOr<Seal> seal = DecodeSeal(record);
  if (!seal.ok()) {
    BATON_CHECK(ReasonOf(seal.status()).has_value());
    return;
  }
  const auto again = EncodeSeal(*seal);
  BATON_CHECK(again.size() == record.size() &&
              std::memcmp(again.data(), record.data(), again.size()) == 0);
  (void)MatchSealToLayout(*seal, Layout());
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  Try(std::as_bytes(std::span(data, size)));
  // The same input as the body of a record with magic, version, length and checksum made right.
  std::vector<uint8_t> record(data, data + size);
  record.resize(std::max<size_t>(size, 240) + 32);
  std::memcpy(record.data(), "BSEL\1\0", 6);
  record[7] = 0;
  const auto length = static_cast<uint32_t>(record.size());
  std::memcpy(record.data() + 8, &length, 4);
  const Sha256 sum = Sha256Of(AsBytes(record).first(record.size() - 32));
  std::memcpy(record.data() + record.size() - 32, sum.bytes.data(), 32);
  Try(AsBytes(record));
  return 0;
}
