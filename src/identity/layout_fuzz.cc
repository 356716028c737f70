// Any bytes, and any bytes under a checksum that holds: Layout::Decode answers or refuses, and what
// it accepts encodes back to the same record.
#include <cstring>

#include "base/sha256.h"
#include "identity/layout.h"

namespace baton {
namespace {

void Try(ByteSpan record) {
  const StatusOr<Layout> layout = Layout::Decode(record);
  if (!layout.ok()) {
    BATON_CHECK(ReasonOf(layout.status()).has_value());
    return;
  }
  const auto again = layout->Encode();
  BATON_CHECK(again.size() == record.size() &&
              std::memcmp(again.data(), record.data(), again.size()) == 0);
  uint64_t end = 0;
  for (const StatePart& p : layout->parts()) {
    BATON_CHECK(p.offset >= end && p.offset % Layout::kPartAlign == 0);
    end = p.offset + p.bytes;
  }
  BATON_CHECK(end <= layout->slot_bytes());
  (void)layout->TotalBlocks(12345);
  (void)layout->FirstDifference(Layout());
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  Try(std::as_bytes(std::span(data, size)));
  std::vector<uint8_t> record(data, data + size);
  record.resize(std::max<size_t>(size, 72) + 32);
  std::memcpy(record.data(), "BLAY\1\0\0\0", 8);
  const uint32_t fixed[] = {static_cast<uint32_t>(record.size()), 16, 64, 4096};
  std::memcpy(record.data() + 8, fixed, sizeof(fixed));
  const Sha256 sum = Sha256Of(AsBytes(record).first(record.size() - 32));
  std::memcpy(record.data() + record.size() - 32, sum.bytes.data(), 32);
  Try(AsBytes(record));
  return 0;
}
