#include "tier/host/extent_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace baton {
namespace {

TEST(ExtentHeap, ExtentsDoNotOverlapAndTheLimitHolds) {
  constexpr uint64_t kMax = 4 << 20;
  const auto heap = *ExtentHeap::Create(kMax);
  SplitMix64 rng(1);
  std::map<int, std::unique_ptr<Extent>> live;
  uint64_t refused = 0;
  for (int step = 0; step < 4000; ++step) {
    if (rng.Below(2) == 0 && !live.empty()) {
      auto it = live.begin();
      std::advance(it, static_cast<ptrdiff_t>(rng.Below(live.size())));
      const ByteSpan bytes = std::as_const(*it->second).bytes();
      const auto mark = static_cast<std::byte>(it->first & 0xff);
      ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == mark; }));
      live.erase(it);
    } else {
      auto extent = heap->Allocate(1 + rng.Below(300000));
      if (!extent.ok()) {
        EXPECT_EQ(ReasonOf(extent.status()), Reason::kNoCapacity);
        ++refused;
        continue;
      }
      std::memset((*extent)->bytes().data(), step & 0xff, (*extent)->bytes().size());
      live[step] = *std::move(extent);
    }
    ASSERT_LE(heap->bytes_held(), kMax);
  }
  EXPECT_GT(refused, 0u);
  live.clear();
  EXPECT_EQ(heap->bytes_used(), 0u);
  // Merged again: all of it at once.
  EXPECT_TRUE(heap->Allocate(kMax).ok());
}

TEST(ExtentHeap, WarmPagesAreUsedAgain) {
  const auto heap = *ExtentHeap::Create(1 << 20);
  const std::byte* first = nullptr;
  {
    const auto extent = *heap->Allocate(100000);
    first = extent->bytes().data();
  }
  EXPECT_EQ((*heap->Allocate(90000))->bytes().data(), first);
  EXPECT_EQ(heap->bytes_held(), 102400u);
}

TEST(ExtentHeap, RefusesNonsense) {
  EXPECT_FALSE(ExtentHeap::Create(0).ok());
  EXPECT_FALSE(ExtentHeap::Create(~uint64_t{0}).ok());
}

}  // namespace
}  // namespace baton
