// Frames as bytes (docs/format/wire.md), and the payloads that belong to connectors: errors, reads
// and the tables in front of bulk data. Every decoder is total: hostile bytes give an error, never
// a crash, an over-read or an allocation larger than the bytes received justify.
// Thread rule: free functions.
#ifndef BATON_CONNECTOR_FRAME_H_
#define BATON_CONNECTOR_FRAME_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "connector/connector.h"

namespace baton {

inline constexpr size_t kFrameHeaderBytes = 24;
inline constexpr uint32_t kFrameMagic = 0x314e5442;  // "BTN1"

using FrameHeaderBytes = std::array<uint8_t, kFrameHeaderBytes>;

struct FrameHeader {
  FrameType type = FrameType::kError;
  uint32_t payload_bytes = 0;
  uint64_t payload_hash = 0;  // XXH3-64
};

FrameHeaderBytes EncodeFrameHeader(const Frame& frame);
// kMalformed: wrong magic, header checksum, flags or a payload longer than the type allows.
StatusOr<FrameHeader> DecodeFrameHeader(const FrameHeaderBytes& bytes);
// kMalformed if the payload is not the one the header was written for.
Status CheckFramePayload(const FrameHeader& header, ByteSpan payload);

// Text from a peer, safe in logs, terminals and JSON: anything but printable ASCII becomes '?'.
std::string Printable(std::string text);

// kError. The reason travels by name; a name this build does not know becomes kPeerError.
Frame EncodeError(const Status& status);
// The peer's status with "peer: " in front; kMalformed if the payload does not parse.
Status DecodeError(const Frame& frame);

// One range of one part. kRead asks for ranges, kData says which ranges follow it, in order.
struct PartRange {
  StateId state_id;
  PartKey part;
  uint64_t offset = 0;  // inside the part
  uint64_t bytes = 0;
  friend bool operator==(const PartRange&, const PartRange&) = default;
};

// Most ranges in one kRead or kData.
inline constexpr uint32_t kRangesMax = 4096;

Frame EncodeRanges(FrameType type, std::span<const PartRange> ranges);
// kMalformed: wrong type, count above kRangesMax or not matching the payload, an empty range,
// offset + bytes overflowing.
StatusOr<std::vector<PartRange>> DecodeRanges(FrameType expected, const Frame& frame);

}  // namespace baton

#endif  // BATON_CONNECTOR_FRAME_H_
