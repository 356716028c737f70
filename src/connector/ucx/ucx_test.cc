// The receiver's check of each message, without UCX, and two workers that part at any step; the
// connector itself runs the conformance suite.
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

// Two workers of one thread meet, exchange two messages and part, step by step; one of them goes
// after each number of steps in turn. The other must neither abort nor hang, and what landed before
// is whole. (With messages that ask for an answer UCX 1.13 aborts after some of these steps.)
class UcxPartingTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kStepsMax = 16;

  void SetUp() override {
    auto context = UcxContext::Create(/*loopback=*/true);
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = std::move(*context);
  }

  // True if both messages had landed when the first of the two went.
  bool PartAfter(int steps, bool sender_goes) {
    auto receiver = UcxWorker::Create(context_, kUcxMessageBytesMax);
    auto sender = UcxWorker::Create(context_, 0);
    EXPECT_TRUE(receiver.ok() && sender.ok());
    int landed = 0;
    (*receiver)->SetOnMessage([&](ByteSpan message) {
      EXPECT_EQ(message.size(), kUcxMessageBytesMax);
      EXPECT_EQ(message.back(), std::byte{7});
      ++landed;
    });
    EXPECT_TRUE((*sender)->ConnectTo(AsBytes(*(*receiver)->Address())).ok());
    const std::vector<std::byte> header(kUcxPieceHeaderBytes);
    const std::vector<std::byte> data(kUcxPieceBytes, std::byte{7});
    for (int i = 0; i < 2; ++i) EXPECT_TRUE((*sender)->Send(header, data).ok());
    for (int i = 0; i < steps; ++i) {
      (*sender)->Progress();
      (*receiver)->Progress();
    }
    const bool both = landed == 2;
    std::unique_ptr<UcxWorker>& goes = sender_goes ? *sender : *receiver;
    UcxWorker* const stays = sender_goes ? receiver->get() : sender->get();
    goes.reset();
    for (int i = 0; i < kStepsMax; ++i) stays->Progress();
    EXPECT_LE(landed, 2);
    return both;
  }

  std::shared_ptr<UcxContext> context_;
};

TEST_P(UcxPartingTest, EitherSideMayGoAfterAnyStep) {
  bool both = false;
  for (int steps = 0; steps < kStepsMax; ++steps) both = PartAfter(steps, GetParam() != 0);
  // TCP's own threads may be slow: give the last one the time it takes.
  for (int steps = kStepsMax; !both && steps < 100'000'000; steps *= 2)
    both = PartAfter(steps, GetParam() != 0);
  EXPECT_TRUE(both);
}

INSTANTIATE_TEST_SUITE_P(Sides, UcxPartingTest, ::testing::Values(0, 1), [](const auto& info) {
  return info.param == 0 ? "ReceiverGoes" : "SenderGoes";
});

TEST(UcxWorker, ALongerMessageIsMalformed) {
  auto context = UcxContext::Create(/*loopback=*/true);
  ASSERT_TRUE(context.ok()) << context.status();
  auto receiver = UcxWorker::Create(*context, 1000);
  auto sender = UcxWorker::Create(*context, 0);
  ASSERT_TRUE(receiver.ok() && sender.ok());
  int taken = 0;
  (*receiver)->SetOnMessage([&](ByteSpan message) { taken += message.size() == 1000; });
  ASSERT_TRUE((*sender)->ConnectTo(AsBytes(*(*receiver)->Address())).ok());
  const std::vector<std::byte> header(kUcxPieceHeaderBytes);
  const std::vector<std::byte> data(2000);
  const auto send = [&](size_t bytes) {
    return (*sender)->Send(header, ByteSpan(data).first(bytes - header.size()));
  };
  ASSERT_TRUE(send(1000).ok());
  ASSERT_TRUE(send(1001).ok());
  const MonotonicClock clock;
  const Instant deadline = clock.Now() + std::chrono::seconds(20);
  while ((*receiver)->status().ok() && clock.Now() < deadline) {
    (*sender)->Progress();
    (*receiver)->Progress();
  }
  EXPECT_EQ(ReasonOf((*receiver)->status()), Reason::kMalformed) << (*receiver)->status();
  EXPECT_EQ(taken, 1);
}

// Two workers of one host. UCX believes an address, and would end the process at some of these.
class UcxAddressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto context = UcxContext::Create(/*loopback=*/true);
    ASSERT_TRUE(context.ok()) << context.status();
    auto receiver = UcxWorker::Create(*context, 1000);
    auto sender = UcxWorker::Create(*context, 0);
    ASSERT_TRUE(receiver.ok() && sender.ok());
    receiver_ = std::move(*receiver);
    sender_ = std::move(*sender);
    const auto address = receiver_->Address();
    ASSERT_TRUE(address.ok());
    address_ = *address;
  }

  // `bits` of byte `at` flipped.
  Status ConnectToForged(size_t at, int bits) {
    std::vector<uint8_t> forged = address_;
    forged[at] ^= static_cast<uint8_t>(bits);
    return sender_->ConnectTo(AsBytes(forged));
  }

  std::unique_ptr<UcxWorker> receiver_, sender_;
  std::vector<uint8_t> address_;
};

TEST_F(UcxAddressTest, OfAnUnknownVersionIsMalformed) {
  for (int version = 2; version < 16; ++version) {
    const Status status = ConnectToForged(0, (address_[0] & 0x0f) ^ version);
    EXPECT_EQ(ReasonOf(status), Reason::kMalformed);
    EXPECT_NE(status.message().find("unknown version"), std::string::npos) << status;
  }
  EXPECT_EQ(ReasonOf(sender_->ConnectTo({})), Reason::kMalformed);
  EXPECT_TRUE(sender_->ConnectTo(AsBytes(address_)).ok());
}

TEST_F(UcxAddressTest, OverLoopbackAnyButANeighboursIsMalformed) {
  for (size_t at = 0; at < address_.size() - 2;
       at == 0 ? at = 9 : ++at)  // not the id, nor the port
    for (int bit = 0; bit < 8; ++bit)
      EXPECT_EQ(ReasonOf(ConnectToForged(at, 1 << bit)), Reason::kMalformed) << at;
  std::vector<uint8_t> longer = address_;
  longer.push_back(0);
  EXPECT_EQ(ReasonOf(sender_->ConnectTo(AsBytes(longer))), Reason::kMalformed);
  for (size_t n = 0; n < address_.size(); ++n)
    EXPECT_EQ(ReasonOf(sender_->ConnectTo(AsBytes(address_).first(n))), Reason::kMalformed) << n;
  const auto own = sender_->Address();
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(ReasonOf(sender_->ConnectTo(AsBytes(*own))), Reason::kMalformed);
  EXPECT_TRUE(sender_->ConnectTo(AsBytes(address_)).ok());
}

}  // namespace
}  // namespace baton
