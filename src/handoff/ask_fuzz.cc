// Any bytes as an ASK, and any bytes with boundary and token count made to agree: DecodeAsk answers
// or refuses with a reason; what it accepts is within its bounds, no larger than the bytes that
// came, and encodes to the same bytes again.
#include <algorithm>
#include <cstring>

#include "handoff/testing/fuzz_frames.h"

namespace baton {
namespace {

// Of the token count; the boundary stands in the 8 bytes before it.
constexpr size_t kCountAt = 8 + 4 * 32 + 8;

void Try(const std::vector<uint8_t>& payload) {
  const Frame frame{FrameType::kAsk, payload};
  const StatusOr<Ask> ask = DecodeAsk(frame);
  fuzz::CheckRoundTrip(frame, ask, EncodeAsk);
  if (!ask.ok()) return;
  BATON_CHECK(ask->tokens.size() == ask->expected.boundary && ask->expected.boundary > 0);
  BATON_CHECK(ask->tokens.size() * sizeof(TokenId) + ask->label.size() <= payload.size());
  BATON_CHECK(ask->label.size() <= kAskTextMax);
  if (ask->hint.has_value())
    BATON_CHECK(ask->hint->boundary < ask->expected.boundary &&
                ask->hint->endpoint.size() <= kAskTextMax);
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const std::vector<uint8_t> payload(data, data + size);
  Try(payload);
  if (size < kCountAt + 4) return 0;
  // As many tokens as fit, on the grid, so that what follows them is reached often.
  std::vector<uint8_t> agreed = payload;
  const uint32_t fit = static_cast<uint32_t>(size - kCountAt - 4) / 64;
  const uint32_t count = 16 * std::clamp<uint32_t>(data[kCountAt], 1, std::max<uint32_t>(fit, 1));
  const uint64_t boundary = count;
  std::memcpy(agreed.data() + kCountAt - 8, &boundary, sizeof boundary);
  std::memcpy(agreed.data() + kCountAt, &count, sizeof count);
  Try(agreed);
  return 0;
}
