// Any bytes as any frame of a conversation but ASK and OFFER, which have fuzzers of their own: the
// first byte chooses the type, the rest is the payload. Every decoder answers or refuses with a
// reason, and what it accepts encodes to the same bytes again. The same bytes as a frame's header,
// and as a header whose checksum holds.
#include <xxhash.h>

#include <cstring>

#include "connector/frame.h"
#include "handoff/testing/fuzz_frames.h"

namespace baton {
namespace {

void TryPayload(FrameType type, const std::vector<uint8_t>& payload) {
  const Frame frame{type, payload};
  switch (type) {
    case FrameType::kHello: {
      const auto hello = DecodeHello(frame);
      // A hello of another version is read as far as the version.
      if (!hello.ok() || hello->protocol == kHandoffProtocolVersion)
        fuzz::CheckRoundTrip(frame, hello, EncodeHello);
      if (hello.ok()) (void)MatchHello(*hello, Hello());
      return;
    }
    case FrameType::kBlocks: {
      const auto blocks = DecodeBlocks(frame);
      fuzz::CheckRoundTrip(frame, blocks, EncodeBlocks);
      if (blocks.ok()) BATON_CHECK(blocks->blocks.size() * 44 <= payload.size());
      return;
    }
    case FrameType::kJoin:
      return fuzz::CheckRoundTrip(frame, DecodeJoin(frame), EncodeJoin);
    case FrameType::kError: {
      const Status status = DecodeError(frame);
      BATON_CHECK(!status.ok() && ReasonOf(status).has_value());
      BATON_CHECK(Printable(std::string(status.message())) == status.message());
      return;
    }
    default: {
      const auto ranges = DecodeRanges(type, frame);
      if (ranges.ok()) BATON_CHECK(ranges->size() <= kRangesMax);
      return fuzz::CheckRoundTrip(
          frame, ranges, [type](const std::vector<PartRange>& r) { return EncodeRanges(type, r); });
    }
  }
}

void TryHeader(const FrameHeaderBytes& header, const std::vector<uint8_t>& payload) {
  const auto decoded = DecodeFrameHeader(header);
  if (!decoded.ok()) {
    BATON_CHECK(ReasonOf(decoded.status()) == Reason::kMalformed);
    return;
  }
  BATON_CHECK(decoded->payload_bytes <= kFramePayloadMax);
  if (CheckFramePayload(*decoded, AsBytes(payload)).ok())
    BATON_CHECK(EncodeFrameHeader({decoded->type, payload}) == header);
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  if (size == 0) return 0;
  constexpr FrameType kTypes[] = {FrameType::kHello, FrameType::kBlocks, FrameType::kJoin,
                                  FrameType::kError, FrameType::kRead,   FrameType::kData};
  const FrameType type = kTypes[data[0] % std::size(kTypes)];
  std::vector<uint8_t> payload(data + 1, data + size);
  TryPayload(type, payload);
  if (type == FrameType::kBlocks) {
    // The last 8 bytes taken for a checksum, so that a real record stays one when patched.
    std::vector<uint8_t> body = payload;
    if (body.size() >= 8) body.resize(body.size() - 8);
    TryPayload(type, fuzz::WithHash(body));
  }
  TryHeader(EncodeFrameHeader({type, payload}), payload);
  if (payload.size() < kFrameHeaderBytes) return 0;
  FrameHeaderBytes header;
  std::memcpy(header.data(), payload.data(), header.size());
  const std::vector<uint8_t> rest(payload.begin() + kFrameHeaderBytes, payload.end());
  TryHeader(header, rest);
  const auto sum = static_cast<uint32_t>(XXH3_64bits(header.data(), 20));
  std::memcpy(header.data() + 20, &sum, sizeof sum);
  TryHeader(header, rest);
  return 0;
}
