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

void Reseal(std::vector<uint8_t>* record) {
  const auto length = static_cast<uint32_t>(record->size());
  std::memcpy(record->data() + 8, &length, 4);
  const Sha256 sum = Sha256Of(AsBytes(*record).first(record->size() - 32));
  std::memcpy(record->data() + record->size() - 32, sum.bytes.data(), 32);
}

// A layout drawn from the input must round-trip; then some of its bytes are overwritten.
void TryDrawn(ByteReader r) {
  LayoutSpec spec;
  const uint8_t counts = r.Get<uint8_t>();
  for (uint32_t i = 0; i < (counts & 7u); ++i) {
    StatePart p;
    p.layer = r.Get<uint8_t>();
    p.component = std::string(1, static_cast<char>('a' + i));
    p.dtype = static_cast<ElementType>(1 + r.Get<uint8_t>() % 3);
    for (int d = 1 + r.Get<uint8_t>() % 4; d > 0; --d) p.shape.push_back(1 + r.Get<uint16_t>());
    spec.parts.push_back(p);
  }
  for (uint32_t i = 0; i < (counts >> 6); ++i) {
    KvGroup g;
    g.name = std::string(1, static_cast<char>('g' + i));
    g.layers = {i, 100 + i};
    g.window = r.Get<uint16_t>();
    g.kv_heads = r.Get<uint16_t>();
    g.head_dim = r.Get<uint32_t>();
    spec.groups.push_back(g);
  }
  const StatusOr<Layout> layout = Layout::Build(spec);
  if (!layout.ok()) return;
  std::vector<uint8_t> record = layout->Encode();
  BATON_CHECK(Layout::Decode(AsBytes(record)).ok());
  while (r.remaining() >= 10) {
    const size_t at = r.Get<uint16_t>() % (record.size() - 8);
    const uint64_t value = r.Get<uint64_t>();
    std::memcpy(record.data() + at, &value, 1 + (value & 7));
  }
  Reseal(&record);
  Try(AsBytes(record));
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  Try(std::as_bytes(std::span(data, size)));
  std::vector<uint8_t> record(data, data + size);
  record.resize(std::max<size_t>(size, 72) + 32);
  std::memcpy(record.data(), "BLAY\1\0\0\0", 8);
  const uint32_t fixed[] = {0, 16, 64, 4096};
  std::memcpy(record.data() + 8, fixed, sizeof(fixed));
  Reseal(&record);
  Try(AsBytes(record));
  TryDrawn(ByteReader(std::as_bytes(std::span(data, size))));
  return 0;
}
