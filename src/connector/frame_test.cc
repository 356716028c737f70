#include "connector/frame.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace baton {
namespace {

Frame SomeFrame() { return Frame{FrameType::kAsk, {1, 2, 3, 4, 5}}; }

TEST(Frame, HeaderRoundTrip) {
  const Frame frame = SomeFrame();
  const auto header = DecodeFrameHeader(EncodeFrameHeader(frame));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->type, FrameType::kAsk);
  EXPECT_EQ(header->payload_bytes, 5u);
  EXPECT_TRUE(CheckFramePayload(*header, AsBytes(frame.payload)).ok());
}

TEST(Frame, EveryBitFlipInHeaderOrPayloadIsNoticed) {
  const Frame frame = SomeFrame();
  const FrameHeaderBytes good = EncodeFrameHeader(frame);
  for (size_t bit = 0; bit < 8 * (good.size() + frame.payload.size()); ++bit) {
    FrameHeaderBytes header = good;
    Frame copy = frame;
    if (bit / 8 < header.size())
      header[bit / 8] ^= 1 << (bit % 8);
    else
      copy.payload[bit / 8 - header.size()] ^= 1 << (bit % 8);
    const auto decoded = DecodeFrameHeader(header);
    const Status status =
        decoded.ok() ? CheckFramePayload(*decoded, AsBytes(copy.payload)) : decoded.status();
    EXPECT_EQ(ReasonOf(status), Reason::kMalformed) << bit;
  }
}

TEST(Frame, OversizedPayloadIsRefusedUnread) {
  // A header with a valid checksum: the bound itself must refuse.
  Frame frame{FrameType::kOffer, std::vector<uint8_t>(kFramePayloadMax + 1)};
  EXPECT_EQ(ReasonOf(DecodeFrameHeader(EncodeFrameHeader(frame)).status()), Reason::kMalformed);
}

TEST(Frame, EachTypeHasItsOwnBound) {
  const std::pair<FrameType, size_t> bounds[] = {
      {FrameType::kHello, 64 << 10},   {FrameType::kError, 64 << 10},
      {FrameType::kRelease, 64 << 10}, {FrameType::kAsk, (4 << 20) + 4096},
      {FrameType::kBlocks, 3 << 20},   {FrameType::kRead, 256 << 10},
      {FrameType::kData, 256 << 10},   {FrameType(999), 64 << 10},
      {FrameType::kOffer, 64 << 20}};
  for (const auto& [type, most] : bounds) {
    Frame frame{type, std::vector<uint8_t>(most)};
    EXPECT_TRUE(DecodeFrameHeader(EncodeFrameHeader(frame)).ok()) << int(type);
    frame.payload.push_back(0);
    EXPECT_EQ(ReasonOf(DecodeFrameHeader(EncodeFrameHeader(frame)).status()), Reason::kMalformed)
        << int(type);
  }
}

TEST(Frame, ErrorKeepsReasonAndText) {
  const Status sent = Reject(Reason::kNoCapacity, "no slot free");
  const Status got = DecodeError(EncodeError(sent));
  EXPECT_EQ(ReasonOf(got), Reason::kNoCapacity);
  EXPECT_EQ(got.message(), "peer: no slot free");
}

TEST(Frame, TextOfAPeerIsMadePrintable) {
  const Status got = DecodeError(EncodeError(Reject(Reason::kPeerError, "a\nb\xff\x1b[31mc\0d")));
  EXPECT_EQ(got.message(), "peer: a?b??[31mc");
  EXPECT_EQ(Printable("plain ~ text"), "plain ~ text");
}

TEST(Frame, UnknownReasonIsPeerErrorAndGarbageIsMalformed) {
  ByteWriter w;
  w.PutString("a_reason_of_a_later_version");
  w.PutString("text");
  EXPECT_EQ(ReasonOf(DecodeError({FrameType::kError, w.Take()})), Reason::kPeerError);
  EXPECT_EQ(ReasonOf(DecodeError({FrameType::kError, {9, 9}})), Reason::kMalformed);
}

TEST(Frame, RangesRoundTripAndRefuseHostileCounts) {
  const std::vector<PartRange> ranges = {{RandomBytes<StateId>(), PartKey(7), 3, 9},
                                         {RandomBytes<StateId>(), PartKey(8), 0, 1}};
  const Frame frame = EncodeRanges(FrameType::kRead, ranges);
  const auto decoded = DecodeRanges(FrameType::kRead, frame);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, ranges);
  EXPECT_EQ(ReasonOf(DecodeRanges(FrameType::kData, frame).status()), Reason::kMalformed);
  for (const uint32_t count : {0u, 1u, 3u, 4097u, 0xffffffffu}) {
    Frame hostile = frame;
    std::memcpy(hostile.payload.data(), &count, sizeof count);
    EXPECT_EQ(ReasonOf(DecodeRanges(FrameType::kRead, hostile).status()), Reason::kMalformed);
  }
  Frame overflow = frame;
  const uint64_t offset = ~uint64_t{0};
  std::memcpy(overflow.payload.data() + 4 + 16 + 8, &offset, sizeof offset);
  EXPECT_EQ(ReasonOf(DecodeRanges(FrameType::kRead, overflow).status()), Reason::kMalformed);
}

}  // namespace
}  // namespace baton
