// The receiver's check of each message, without UCX; the connector itself runs the conformance
// suite.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "connector/ucx/ucx_pull.h"
#include "connector/ucx/ucx_worker.h"

namespace baton {
namespace {

class UcxPullTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 2 * kUcxPieceBytes + 100;

  UcxPullTest() : memory_(kBytes + 50, std::byte{0}), landed_(2) {
    const MutableByteSpan all(memory_);
    extents_ = {{StateId(), PartKey(1), 0, 0, kBytes, all.first(kBytes)},
                {StateId(), PartKey(2), 0, 0, 50, all.subspan(kBytes)}};
    pull_ = std::make_unique<UcxPull>(5, 7, extents_, landed_);
  }

  Status Land(const UcxPiece& piece, size_t bytes) {
    const std::vector<uint8_t> header = EncodePiece(piece);
    std::vector<std::byte> message(header.size() + bytes, std::byte{9});
    std::memcpy(message.data(), header.data(), header.size());
    return pull_->Land(message);
  }

  std::vector<std::byte> memory_;
  std::vector<uint64_t> landed_;
  std::vector<ReadExtent> extents_;
  std::unique_ptr<UcxPull> pull_;
};

TEST_F(UcxPullTest, PiecesMayComeInAnyOrder) {
  EXPECT_TRUE(Land({5, 7, 0, 2 * kUcxPieceBytes}, 100).ok());
  EXPECT_TRUE(Land({5, 7, 1, 0}, 50).ok());
  EXPECT_TRUE(Land({5, 7, 0, 0}, kUcxPieceBytes).ok());
  EXPECT_FALSE(pull_->done());
  EXPECT_TRUE(Land({5, 7, 0, kUcxPieceBytes}, kUcxPieceBytes).ok());
  EXPECT_TRUE(pull_->done());
  EXPECT_EQ(landed_, (std::vector<uint64_t>{kBytes, 50}));
  EXPECT_EQ(memory_, std::vector<std::byte>(kBytes + 50, std::byte{9}));
}

TEST_F(UcxPullTest, WhatWasNotAskedForWritesNothing) {
  const auto reason = [&](const UcxPiece& piece, size_t bytes) {
    return ReasonOf(Land(piece, bytes));
  };
  EXPECT_EQ(reason({5, 6, 0, 0}, kUcxPieceBytes), Reason::kUnknownPart);  // an earlier read
  EXPECT_EQ(reason({6, 7, 0, 0}, kUcxPieceBytes), Reason::kUnknownPart);  // another conversation
  EXPECT_EQ(reason({5, 7, 2, 0}, 50), Reason::kUnknownPart);
  EXPECT_EQ(reason({5, 7, UINT64_MAX, 0}, 50), Reason::kUnknownPart);
  EXPECT_EQ(reason({5, 7, 0, 1}, kUcxPieceBytes), Reason::kShortTransfer);
  EXPECT_EQ(reason({5, 7, 0, 0}, kUcxPieceBytes - 1), Reason::kShortTransfer);
  EXPECT_EQ(reason({5, 7, 0, 0}, kUcxPieceBytes + 1), Reason::kShortTransfer);
  EXPECT_EQ(reason({5, 7, 0, 3 * kUcxPieceBytes}, 100), Reason::kShortTransfer);
  EXPECT_EQ(reason({5, 7, 0, UINT64_MAX / kUcxPieceBytes * kUcxPieceBytes}, 100),
            Reason::kShortTransfer);
  EXPECT_EQ(reason({5, 7, 1, 0}, 0), Reason::kShortTransfer);
  EXPECT_EQ(ReasonOf(pull_->Land({})), Reason::kMalformed);
  EXPECT_EQ(ReasonOf(pull_->Land(std::vector<std::byte>(kUcxPieceHeaderBytes - 1))),
            Reason::kMalformed);
  EXPECT_EQ(memory_, std::vector<std::byte>(kBytes + 50, std::byte{0}));
  EXPECT_EQ(landed_, (std::vector<uint64_t>{0, 0}));
}

TEST_F(UcxPullTest, APieceThatCameAlreadyIsRefused) {
  EXPECT_TRUE(Land({5, 7, 1, 0}, 50).ok());
  EXPECT_EQ(ReasonOf(Land({5, 7, 1, 0}, 50)), Reason::kUnknownPart);
  EXPECT_EQ(landed_[1], 50u);
}

TEST(Ucx, LoopbackHostsAreKnown) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "example.org", "127.0.0.1.example.org"})
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
}

}  // namespace
}  // namespace baton
