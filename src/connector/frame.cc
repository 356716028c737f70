#include "connector/frame.h"

#include <xxhash.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kHashedHeaderBytes = 20;
constexpr size_t kReasonNameMax = 64;
constexpr size_t kErrorTextMax = 4096;
constexpr size_t kRangeBytes = 16 + 3 * sizeof(uint64_t);

uint32_t HeaderHash(const uint8_t* header) {
  return static_cast<uint32_t>(XXH3_64bits(header, kHashedHeaderBytes));
}

std::optional<Reason> ReasonNamed(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Reason::kCancelled); ++i)
    if (ReasonName(static_cast<Reason>(i)) == name) return static_cast<Reason>(i);
  return std::nullopt;
}

// No frame is longer than what it may carry: a peer cannot make a greeting or an error cost the
// memory of the largest offer. Hello is defined by its version, so it gets room for later ones.
size_t PayloadMaxOf(FrameType type) {
  switch (type) {
    case FrameType::kOffer:
      return kFramePayloadMax;
    case FrameType::kAsk:
      return (size_t{4} << 20) + 4096;  // 1,048,576 tokens
    case FrameType::kBlocks:
      return size_t{3} << 20;  // 65,536 blocks
    case FrameType::kRead:
    case FrameType::kData:
      return size_t{256} << 10;  // 4,096 ranges
    default:
      return size_t{64} << 10;
  }
}

}  // namespace

FrameHeaderBytes EncodeFrameHeader(const Frame& frame) {
  ByteWriter w;
  w.Put(kFrameMagic);
  w.Put(static_cast<uint16_t>(frame.type));
  w.Put(uint16_t{0});
  w.Put(static_cast<uint32_t>(frame.payload.size()));
  w.Put(static_cast<uint64_t>(XXH3_64bits(frame.payload.data(), frame.payload.size())));
  w.Put(HeaderHash(w.data().data()));
  FrameHeaderBytes out;
  std::memcpy(out.data(), w.data().data(), out.size());
  return out;
}

StatusOr<FrameHeader> DecodeFrameHeader(const FrameHeaderBytes& bytes) {
  ByteReader r(std::as_bytes(std::span(bytes)));
  const uint32_t magic = r.Get<uint32_t>();
  const uint16_t type = r.Get<uint16_t>();
  const uint16_t flags = r.Get<uint16_t>();
  const uint32_t payload_bytes = r.Get<uint32_t>();
  const uint64_t payload_hash = r.Get<uint64_t>();
  const uint32_t header_hash = r.Get<uint32_t>();
  if (magic != kFrameMagic)
    return Reject(Reason::kMalformed,
                  absl::StrCat("not a Baton frame: first bytes ", absl::Hex(magic, absl::kZeroPad8),
                               ", expected ", absl::Hex(kFrameMagic, absl::kZeroPad8)));
  if (header_hash != HeaderHash(bytes.data()))
    return Reject(Reason::kMalformed, "frame header fails its checksum");
  if (flags != 0)
    return Reject(Reason::kMalformed, absl::StrCat("frame flags ", flags, ", expected 0"));
  const size_t most = PayloadMaxOf(static_cast<FrameType>(type));
  if (payload_bytes > most)
    return Reject(Reason::kMalformed, absl::StrCat("frame of type ", type, " with a payload of ",
                                                   payload_bytes, " bytes, at most ", most));
  return FrameHeader{static_cast<FrameType>(type), payload_bytes, payload_hash};
}

Status CheckFramePayload(const FrameHeader& header, ByteSpan payload) {
  if (payload.size() != header.payload_bytes ||
      XXH3_64bits(payload.data(), payload.size()) != header.payload_hash)
    return Reject(Reason::kMalformed, "frame payload fails its checksum");
  return absl::OkStatus();
}

std::string Printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

Frame EncodeError(const Status& status) {
  ByteWriter w;
  w.PutString(ReasonName(ReasonOf(status).value_or(Reason::kPeerError)));
  const absl::string_view text = status.message().substr(0, kErrorTextMax);
  w.PutString(std::string_view(text.data(), text.size()));
  return Frame{FrameType::kError, w.Take()};
}

Status DecodeError(const Frame& frame) {
  ByteReader r(AsBytes(frame.payload));
  const std::string name = r.GetString(kReasonNameMax);
  const std::string text = r.GetString(kErrorTextMax);
  if (frame.type != FrameType::kError || !r.done())
    return Reject(Reason::kMalformed, "error frame does not parse");
  return Reject(ReasonNamed(name).value_or(Reason::kPeerError), "peer: " + Printable(text));
}

Frame EncodeRanges(FrameType type, std::span<const PartRange> ranges) {
  BATON_CHECK(ranges.size() <= kRangesMax);
  ByteWriter w;
  w.Put(static_cast<uint32_t>(ranges.size()));
  for (const PartRange& range : ranges) {
    w.Put(range.state_id);
    w.Put(range.part);
    w.Put(range.offset);
    w.Put(range.bytes);
  }
  return Frame{type, w.Take()};
}

StatusOr<std::vector<PartRange>> DecodeRanges(FrameType expected, const Frame& frame) {
  if (frame.type != expected)
    return Reject(Reason::kMalformed, absl::StrCat("frame of type ", static_cast<int>(frame.type),
                                                   ", expected ", static_cast<int>(expected)));
  ByteReader r(AsBytes(frame.payload));
  const uint32_t count = r.Get<uint32_t>();
  if (!r.ok() || count == 0 || count > kRangesMax || r.remaining() != count * kRangeBytes)
    return Reject(Reason::kMalformed,
                  absl::StrCat("table of ", count, " ranges in ", frame.payload.size(), " bytes"));
  std::vector<PartRange> out(count);
  for (PartRange& range : out) {
    range.state_id = r.Get<StateId>();
    range.part = PartKey(r.Get<uint64_t>());
    range.offset = r.Get<uint64_t>();
    range.bytes = r.Get<uint64_t>();
    if (range.bytes == 0 || range.offset > std::numeric_limits<uint64_t>::max() - range.bytes)
      return Reject(Reason::kMalformed, "empty or overflowing range");
  }
  return out;
}

}  // namespace baton
