#include <atomic>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(Types, HandoffBoundaryLeavesOneToSixteenTokens) {
  for (int64_t n = 1; n < 100; ++n) {
    const int64_t g = HandoffBoundary(n);
    EXPECT_EQ(g % kBlockTokens, 0);
    EXPECT_GE(n - g, 1);
    EXPECT_LE(n - g, 16);
  }
  EXPECT_EQ(HandoffBoundary(0), 0);
  EXPECT_EQ(HandoffBoundary(16), 0);
  EXPECT_EQ(HandoffBoundary(17), 16);
}

TEST(Bytes, ReaderRefusesToReadPastTheEnd) {
  ByteWriter w;
  w.Put(uint32_t{7});
  w.PutString("abc");
  const auto bytes = w.Take();
  ByteReader r(AsBytes(bytes));
  EXPECT_EQ(r.Get<uint32_t>(), 7u);
  EXPECT_EQ(r.GetString(10), "abc");
  EXPECT_TRUE(r.done());
  EXPECT_EQ(r.Get<uint64_t>(), 0u);
  EXPECT_FALSE(r.ok());
}

TEST(Bytes, HostileStringCountIsAnError) {
  ByteWriter w;
  w.Put(uint32_t{0xFFFFFFFF});
  const auto bytes = w.Take();
  ByteReader r(AsBytes(bytes));
  EXPECT_EQ(r.GetString(SIZE_MAX), "");
  EXPECT_FALSE(r.ok());
}

TEST(Status, ReasonTravelsAsPayload) {
  const Status s = Reject(Reason::kDigestMismatch, "part l3.ssm");
  EXPECT_EQ(ReasonOf(s), Reason::kDigestMismatch);
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), std::nullopt);
  EXPECT_EQ(ReasonName(Reason::kCancelled), "cancelled");
}

// Known answer of Philox4x32-10, key 0, counter 0 (Random123's kat_vectors).
TEST(Rng, PhiloxKnownAnswer) { EXPECT_EQ(CounterBits(0, 0, 0), 0xe169c58d6627e8d5ull); }

TEST(Rng, UniformIsAFunctionOfItsArguments) {
  EXPECT_EQ(CounterUniform(1, 2, 3), CounterUniform(1, 2, 3));
  EXPECT_NE(CounterUniform(1, 2, 3), CounterUniform(1, 3, 3));
  for (uint64_t i = 0; i < 1000; ++i) {
    const double u = CounterUniform(9, i, 0);
    EXPECT_GE(u, 0.0);
    EXPECT_LT(u, 1.0);
  }
}

TEST(ThreadPool, EachIndexRunsOnce) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> hits(97);
      pool.ParallelFor(97, [&](int64_t i) { hits[i].fetch_add(1); });
      for (auto& h : hits) ASSERT_EQ(h.load(), 1);
    }
  }
}

}  // namespace
}  // namespace baton
