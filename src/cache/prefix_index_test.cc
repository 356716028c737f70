#include "cache/prefix_index.h"

#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "identity/prefix_chain.h"

namespace baton {
namespace {

constexpr uint64_t kBlockBytes = 1000;

// A history: a tenant, and one letter per block.
struct History {
  std::string tenant;
  std::string letters;

  History First(size_t n) const { return {tenant, letters.substr(0, n)}; }
  friend auto operator<=>(const History&, const History&) = default;
};

// Owns what a PrefixPath looks at.
class Hashed {
 public:
  explicit Hashed(const History& h) {
    IdentityBase base;
    base.scope = ScopeOf(h.tenant);
    root_ = RootOf(base);
    std::vector<TokenId> tokens;
    for (const char c : h.letters)
      tokens.insert(tokens.end(), kBlockTokens, static_cast<TokenId>(c));
    blocks_ = PrefixChain::BlockHashes(base.scope, tokens);
  }
  PrefixPath path() const { return {root_, blocks_}; }

 private:
  Sha256 root_;
  std::vector<Sha256> blocks_;
};

int64_t TokensOf(size_t blocks) { return static_cast<int64_t>(blocks) * kBlockTokens; }

size_t Common(const History& a, const History& b) {
  if (a.tenant != b.tenant) return 0;
  size_t n = 0;
  while (n < std::min(a.letters.size(), b.letters.size()) && a.letters[n] == b.letters[n]) ++n;
  return n;
}

// The index by definition: lists of histories, searched from end to end.
struct Oracle {
  struct State {
    IndexedState id;
    uint64_t own_bytes = 0;
  };
  std::vector<History> seen;
  std::map<History, uint32_t> leavers;
  std::map<History, State> states;

  PrefixIndex::Sight Look(const History& h, int64_t max_boundary) const {
    PrefixIndex::Sight sight;
    size_t known = 0;
    for (const History& s : seen) known = std::max(known, Common(s, h));
    sight.known = TokensOf(known);
    bool others_went_on = false;
    for (const History& s : seen)
      others_went_on |= Common(s, h) == known && s.letters.size() > known;
    sight.leaves = known > 0 && known < h.letters.size() && others_went_on;
    if (sight.leaves) {
      const auto it = leavers.find(h.First(known));
      sight.leavers = 1 + (it == leavers.end() ? 0 : it->second);
    }
    for (size_t n = 1; n <= h.letters.size(); ++n) {
      const auto it = states.find(h.First(n));
      if (it == states.end()) continue;
      sight.states.push_back(TokensOf(n));
      if (TokensOf(n) > max_boundary) continue;
      sight.usable = it->second.id;
      sight.usable_boundary = TokensOf(n);
    }
    return sight;
  }

  uint64_t Bytes() const {
    uint64_t own = 0;
    std::map<History, int> blocks;
    for (const auto& [h, state] : states) {
      own += state.own_bytes;
      for (size_t n = 1; n <= h.letters.size(); ++n) blocks[h.First(n)] = 1;
    }
    return own + blocks.size() * kBlockBytes;
  }

  uint64_t Freed(const History& h) const {
    Oracle without = *this;
    without.states.erase(h);
    return Bytes() - without.Bytes();
  }

  int64_t Base(const History& h) const {
    size_t n = h.letters.size() - 1;
    while (n > 0 && !states.contains(h.First(n))) --n;
    return TokensOf(n);
  }

  size_t Shared(const History& h) const {
    size_t most = 0;
    for (const auto& [s, unused] : states) most = std::max(most, Common(s, h));
    return most;
  }
};

void ExpectEqual(const PrefixIndex::Sight& got, const PrefixIndex::Sight& want) {
  EXPECT_EQ(got.known, want.known);
  EXPECT_EQ(got.leaves, want.leaves);
  EXPECT_EQ(got.leavers, want.leavers);
  EXPECT_EQ(got.usable, want.usable);
  EXPECT_EQ(got.usable_boundary, want.usable_boundary);
  EXPECT_EQ(got.states, want.states);
}

class Driver {
 public:
  Driver(uint32_t seed, uint64_t max_seen) : rng_(seed), index_(Options(max_seen)) {}

  History Draw() {
    History h;
    h.tenant = Pick(4) == 0 ? "other" : "";
    // Few letters, so that paths meet and part; sometimes on from a path that is known.
    if (!oracle_.seen.empty() && Pick(3) > 0) {
      h = oracle_.seen[Pick(oracle_.seen.size())];
      h = h.First(Pick(h.letters.size() + 1));
    }
    const size_t more = 1 + Pick(6);
    for (size_t i = 0; i < more; ++i) h.letters += static_cast<char>('a' + Pick(3));
    return h;
  }

  void See() {
    const History h = Draw();
    const int64_t limit = TokensOf(Pick(h.letters.size() + 2));
    const PrefixIndex::Sight want = oracle_.Look(h, limit);
    const Hashed hashed(h);
    ExpectEqual(index_.Look(hashed.path(), limit), want);
    ExpectEqual(index_.See(hashed.path(), limit), want);
    if (want.leaves) ++oracle_.leavers[h.First(static_cast<size_t>(want.known / kBlockTokens))];
    oracle_.seen.push_back(h);
  }

  void Add() {
    const History h = Draw();
    const uint64_t own = 1 + Pick(5000);
    const auto added = index_.Add(Hashed(h).path(), own, 0);
    EXPECT_EQ(added.ok(), !oracle_.states.contains(h));
    if (added.ok()) oracle_.states[h] = {*added, own};
    oracle_.seen.push_back(h);
  }

  void Remove() {
    if (oracle_.states.empty()) return;
    auto it = oracle_.states.begin();
    std::advance(it, Pick(oracle_.states.size()));
    const uint64_t freed = oracle_.Freed(it->first);
    const PrefixIndex::StateView view = index_.View(it->second.id);
    EXPECT_EQ(view.freed, freed);
    EXPECT_EQ(view.base, oracle_.Base(it->first));
    EXPECT_EQ(view.boundary, TokensOf(it->first.letters.size()));
    EXPECT_EQ(index_.Remove(it->second.id), freed);
    oracle_.states.erase(it);
  }

  void Check() {
    index_.CheckInvariants();
    EXPECT_EQ(index_.bytes(), oracle_.Bytes());
    EXPECT_EQ(index_.state_count(), oracle_.states.size());
    const History h = Draw();
    const auto [sharer, blocks] = index_.Sharer(Hashed(h).path());
    EXPECT_EQ(blocks, oracle_.Shared(h));
    EXPECT_EQ(sharer.has_value(), blocks > 0);
    if (sharer.has_value()) {
      EXPECT_GE(index_.View(*sharer).boundary, TokensOf(blocks));
    }
    const auto at = oracle_.states.find(h);
    EXPECT_EQ(index_.At(Hashed(h).path()),
              at == oracle_.states.end() ? std::nullopt : std::optional(at->second.id));
  }

  // Where the past is bounded, only what states hold must be exact.
  void CheckUsable() {
    const History h = Draw();
    const PrefixIndex::Sight want = oracle_.Look(h, TokensOf(100));
    const PrefixIndex::Sight got = index_.See(Hashed(h).path(), TokensOf(100));
    EXPECT_EQ(got.usable, want.usable);
    EXPECT_EQ(got.states, want.states);
    EXPECT_LE(got.known, want.known);
    EXPECT_GE(got.known, TokensOf(oracle_.Shared(h)));
    oracle_.seen.push_back(h);
  }

  size_t Pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
  PrefixIndex& index() { return index_; }
  Oracle& oracle() { return oracle_; }

 private:
  static PrefixIndex::Options Options(uint64_t max_seen) {
    PrefixIndex::Options options;
    options.block_bytes = kBlockBytes;
    options.max_seen_blocks = max_seen;
    return options;
  }
  std::mt19937 rng_;
  PrefixIndex index_;
  Oracle oracle_;
};

TEST(PrefixIndexTest, RandomTreesAgreeWithTheOracle) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Driver d(seed, 1 << 20);
    for (int i = 0; i < 150; ++i) {
      const size_t action = d.Pick(10);
      if (action < 5) {
        d.See();
      } else if (action < 8) {
        d.Add();
      } else {
        d.Remove();
      }
      d.Check();
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(PrefixIndexTest, ABoundedPastForgetsNoState) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Driver d(seed, 20);
    for (int i = 0; i < 200; ++i) {
      const size_t action = d.Pick(10);
      if (action < 5) {
        d.CheckUsable();
      } else if (action < 8) {
        d.Add();
      } else {
        d.Remove();
      }
      d.Check();
      EXPECT_LE(d.index().seen_blocks(), 20u);
      if (testing::Test::HasFailure()) return;
    }
    while (!d.oracle().states.empty()) d.Remove();
    EXPECT_EQ(d.index().resident_blocks(), 0u);
    EXPECT_EQ(d.index().bytes(), 0u);
    // A node has at least one block, and there are two roots at most.
    EXPECT_LE(d.index().node_count(), 20u + 2u);
  }
}

TEST(PrefixIndexTest, RemembersNothingWithoutRoom) {
  Driver d(1, 0);
  for (int i = 0; i < 50; ++i) d.index().See(Hashed(d.Draw()).path(), 0);
  EXPECT_EQ(d.index().node_count(), 0u);
}

TEST(PrefixIndexTest, TenantsShareNothing) {
  Driver d(1, 1000);
  const Hashed a({"a", "xyz"}), b({"b", "xyz"});
  ASSERT_TRUE(d.index().Add(a.path(), 1, 0).ok());
  const auto sight = d.index().See(b.path(), 1000);
  EXPECT_EQ(sight.known, 0);
  EXPECT_FALSE(sight.usable.has_value());
  EXPECT_EQ(d.index().Sharer(b.path()).second, 0u);
  // Not even with hashes that were forged to be equal: the root decides.
  const PrefixPath forged{b.path().root, a.path().blocks};
  EXPECT_EQ(d.index().Look(forged, 1000).known, 0);
  EXPECT_FALSE(d.index().At(forged).has_value());
  ASSERT_TRUE(d.index().MarkPending(a.path(), OwnerId(1)));
  EXPECT_EQ(d.index().DeepestPending(forged, 0, 1000, OwnerId(2)).boundary, 0);
}

TEST(PrefixIndexTest, UnderTheLimitOnly) {
  Driver d(1, 1000);
  const Hashed h({"", "abcd"});
  const IndexedState two = d.index().Add(h.path().First(2), 1, 0).value();
  ASSERT_TRUE(d.index().Add(h.path(), 1, 0).ok());
  EXPECT_EQ(d.index().Look(h.path(), 63).usable, two);
  EXPECT_EQ(d.index().Look(h.path(), 31).usable, std::nullopt);
  EXPECT_EQ(d.index().Look(h.path(), 31).states, (std::vector<int64_t>{32, 64}));
}

TEST(PrefixIndexTest, PendingIsForOthersDeeperAndBounded) {
  PrefixIndex::Options options;
  options.max_pending = 3;
  PrefixIndex index(options);
  const Hashed h({"", "abcd"}), other({"", "abx"});
  EXPECT_TRUE(index.MarkPending(h.path().First(2), OwnerId(1)));
  EXPECT_TRUE(index.MarkPending(h.path(), OwnerId(1)));
  EXPECT_TRUE(index.MarkPending(h.path(), OwnerId(1)));   // again
  EXPECT_FALSE(index.MarkPending(h.path(), OwnerId(2)));  // it is being made already
  const auto at = [&](const Hashed& p, int64_t better, int64_t max, uint64_t self) {
    return index.DeepestPending(p.path(), better, max, OwnerId(self)).boundary;
  };
  EXPECT_EQ(at(h, 0, 1000, 2), 64);
  EXPECT_EQ(at(h, 0, 63, 2), 32);
  EXPECT_EQ(at(h, 32, 63, 2), 0);   // a state that deep is there
  EXPECT_EQ(at(h, 0, 1000, 1), 0);  // nobody waits for itself
  EXPECT_EQ(at(other, 0, 1000, 2), 32);
  EXPECT_TRUE(index.MarkPending(h.path().First(1), OwnerId(2)));
  EXPECT_FALSE(index.MarkPending(h.path().First(3), OwnerId(2)));  // at the bound
  index.ClearPending(OwnerId(1));
  EXPECT_EQ(at(h, 0, 1000, 3), 16);
  index.ClearPending(OwnerId(2));
  EXPECT_EQ(index.pending_count(), 0u);
}

}  // namespace
}  // namespace baton
