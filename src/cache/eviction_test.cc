#include "cache/eviction.h"

#include <cmath>
#include <deque>
#include <random>

#include "gtest/gtest.h"
#include "identity/prefix_chain.h"

namespace baton {
namespace {

class EvictionTest : public testing::Test {
 protected:
  EvictionTest() : index_(Options()) {
    flop_aware_.order = EvictionOrder::kFlopAware;
    flop_aware_.cost = {10, 0.5};
    flop_aware_.half_life = 100;
    flop_aware_.interior_weight = 0.125;
  }
  static PrefixIndex::Options Options() {
    PrefixIndex::Options options;
    options.block_bytes = 100;
    return options;
  }
  // A state behind one block per letter.
  IndexedState Add(const std::string& letters, double now = 0) {
    return index_.Add({root_, Blocks(letters)}, 1000, now).value();
  }
  const std::vector<Sha256>& Blocks(const std::string& letters) {
    std::vector<TokenId> tokens;
    for (const char c : letters) tokens.insert(tokens.end(), kBlockTokens, static_cast<TokenId>(c));
    return kept_.emplace_back(PrefixChain::BlockHashes({}, tokens));
  }
  std::optional<IndexedState> Victim(const EvictionOptions& o) { return ChooseVictim(o, index_); }

  const Sha256 root_{};
  PrefixIndex index_;
  std::deque<std::vector<Sha256>> kept_;
  EvictionOptions lru_;
  EvictionOptions flop_aware_;
};

TEST_F(EvictionTest, NothingInAnEmptyIndex) {
  EXPECT_EQ(Victim(lru_), std::nullopt);
  EXPECT_EQ(Victim(flop_aware_), std::nullopt);
}

TEST_F(EvictionTest, LeastRecentlyUsed) {
  const IndexedState a = Add("a"), b = Add("b"), c = Add("c");
  index_.Touch(a, 0);
  EXPECT_EQ(Victim(lru_), b);
  index_.Remove(b);
  EXPECT_EQ(Victim(lru_), c);
}

TEST_F(EvictionTest, AShortHistoryLeavesBeforeALongOne) {
  const IndexedState longer = Add("abcdefgh");
  const IndexedState shorter = Add("x");
  EXPECT_EQ(Victim(lru_), longer);
  EXPECT_EQ(Victim(flop_aware_), shorter);
}

TEST_F(EvictionTest, OneHalfLifeWeighsLikeHalfTheOperations) {
  // Equal bytes; without the quadratic part the second saves twice as much.
  flop_aware_.cost = {1, 0};
  PrefixIndex::StateView once, twice;
  once.boundary = 1024;
  twice.boundary = 2048;
  once.freed = twice.freed = 5000;
  twice.last_use = 50;
  once.last_use = 149;
  EXPECT_LT(Worth(flop_aware_, once), Worth(flop_aware_, twice));
  once.last_use = 151;
  EXPECT_GT(Worth(flop_aware_, once), Worth(flop_aware_, twice));
}

TEST_F(EvictionTest, CountsFromTheStateAboveAndOnlyBytesThatLeave) {
  const IndexedState upper = Add("ab"), lower = Add("abcd");
  const auto of_upper = index_.View(upper), of_lower = index_.View(lower);
  EXPECT_EQ(of_upper.freed, 1000u);  // its blocks are needed below
  EXPECT_EQ(of_upper.branches, 1);
  EXPECT_EQ(of_lower.freed, 1000u + 2 * 100u);
  EXPECT_EQ(of_lower.base, 32);
  EXPECT_DOUBLE_EQ(Worth(flop_aware_, of_lower),
                   std::log2((10 * 32 + 0.5 * (64 * 64 - 32 * 32)) / 1200.0));
  // Moved past: worth an eighth.
  EXPECT_DOUBLE_EQ(Worth(flop_aware_, of_upper), std::log2((10 * 32 + 0.5 * 32 * 32) / 1000.0) - 3);
  Add("abx");
  EXPECT_EQ(index_.View(upper).branches, 2);
  EXPECT_DOUBLE_EQ(Worth(flop_aware_, index_.View(upper)),
                   std::log2((10 * 32 + 0.5 * 32 * 32) / 1000.0));
}

TEST_F(EvictionTest, WhatProvedUsefulStays) {
  const IndexedState a = Add("abc"), b = Add("xyz");
  index_.Touch(a, 0);
  index_.Touch(b, 0);
  index_.Touch(a, 0);
  EXPECT_EQ(Victim(flop_aware_), b);
  // The next turn of a's conversation inherits its two hits; a fork does not.
  EXPECT_EQ(index_.View(Add("abcde")).hits, 2u);
  EXPECT_EQ(index_.View(Add("abq")).hits, 0u);
  EXPECT_EQ(index_.View(Add("abcdz")).hits, 0u);
  EXPECT_EQ(index_.View(a).hits, 2u);
}

TEST_F(EvictionTest, VictimIsTheLeastWorthAndFreesWhatItSays) {
  std::mt19937 rng(3);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 30; ++i) {
      std::string letters;
      for (size_t n = 1 + pick(8); n > 0; --n) letters += static_cast<char>('a' + pick(2));
      (void)index_.Add({root_, Blocks(letters)}, 1 + pick(2000), static_cast<double>(pick(500)));
    }
    while (index_.state_count() > 5) {
      const IndexedState victim = *Victim(flop_aware_);
      const auto view = index_.View(victim);
      const double worth = Worth(flop_aware_, view);
      EXPECT_TRUE(std::isfinite(worth));
      index_.ForEachState([&](const auto& other) { EXPECT_LE(worth, Worth(flop_aware_, other)); });
      const uint64_t before = index_.bytes();
      EXPECT_EQ(index_.Remove(victim), view.freed);
      EXPECT_EQ(before - index_.bytes(), view.freed);
    }
    index_.CheckInvariants();
  }
}

}  // namespace
}  // namespace baton
