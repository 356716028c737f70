// Any bytes, and any bytes under a checksum that holds: DecodeObjectHeader answers or refuses, and
// what it accepts encodes back to the same record.
#include <algorithm>
#include <cstring>

#include "base/sha256.h"
#include "tier/state_object.h"

namespace baton {
namespace {

void Try(ByteSpan record) {
  const StatusOr<ObjectHeader> header = DecodeObjectHeader(record);
  if (!header.ok()) {
    BATON_CHECK(ReasonOf(header.status()).has_value());
    return;
  }
  const auto again = EncodeObjectHeader(*header);
  const uint64_t bytes = header->HeaderBytes();
  BATON_CHECK(bytes <= record.size() && again.size() == header->PayloadOffset() &&
              std::memcmp(again.data(), record.data(), bytes) == 0);
  uint64_t end = 0;
  for (const ObjectPart& part : header->parts) {
    BATON_CHECK(part.offset >= end && part.offset + part.bytes > part.offset);
    end = part.offset + part.bytes;
  }
  BATON_CHECK(end <= header->payload_bytes && header->ObjectBytes() >= end);
  BATON_CHECK(ObjectName::FromFileName(header->Name().FileName()) == header->Name());
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  Try(std::as_bytes(std::span(data, size)));
  // The input as a segment whose envelope, counts, key and checksum are made right.
  std::vector<uint8_t> record(data, data + size);
  constexpr size_t kSegment = kObjectFixedBytes + 16 * 16 + 16 * 24 + 32;
  record.resize(kSegment);
  std::memcpy(record.data(), "BOBJ\1\0\2\0", 8);
  const auto put = [&](size_t at, auto value) {
    std::memcpy(record.data() + at, &value, sizeof value);
  };
  put(8, uint64_t{kSegment});
  record[24] = 1;
  put(25, uint16_t{0});
  put(27, uint8_t{0});
  put(32, uint32_t{0});
  put(36, uint32_t{16});
  put(40, uint32_t{0});
  put(44, uint32_t{16});
  std::memset(record.data() + 216, 0, 72);
  ContentIdentity end;
  ByteReader r(AsBytes(record).subspan(48));
  end.model = r.Get<Sha256>();
  end.layout = r.Get<Sha256>();
  end.scope = r.Get<Sha256>();
  end.prefix = r.Get<Sha256>();
  end.boundary = r.Get<uint64_t>();
  uint32_t group;
  std::memcpy(&group, record.data() + 28, 4);
  const Sha256 key = SegmentKey(end, group);
  std::memcpy(record.data() + 184, key.bytes.data(), 32);
  const Sha256 sum = Sha256Of(AsBytes(record).first(kSegment - 32));
  std::memcpy(record.data() + kSegment - 32, sum.bytes.data(), 32);
  Try(AsBytes(record));
  return 0;
}
