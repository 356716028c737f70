#include "identity/prefix_chain.h"

#include "base/rng.h"
#include "base/sha256.h"
#include "gtest/gtest.h"
#include "identity/content_identity.h"

namespace baton {
namespace {

std::vector<TokenId> Tokens(size_t n, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<TokenId> t(n);
  for (TokenId& x : t) x = static_cast<TokenId>(rng.Below(50000));
  return t;
}

// The definition in prefix_chain.h, written the obvious way.
Sha256 Reference(const Sha256& scope, std::span<const TokenId> tokens) {
  Sha256Hasher h;
  h.Update(std::string_view("baton.prefix.root\0", 18));
  h.Update(AsBytes(scope.bytes));
  Sha256 hash = h.Finish();
  for (size_t i = 0; i < tokens.size(); i += 16) {
    const auto block = tokens.subspan(i, std::min<size_t>(16, tokens.size() - i));
    const auto count = static_cast<uint32_t>(block.size());
    h.Update(std::string_view("baton.prefix.block\0", 19));
    h.Update(AsBytes(hash.bytes));
    h.Update(std::as_bytes(std::span(&count, 1)));
    h.Update(std::as_bytes(block));
    hash = h.Finish();
  }
  return hash;
}

TEST(PrefixChain, EqualsTheDefinitionAtEveryBoundary) {
  const Sha256 scope = ScopeOf("tenant");
  const auto tokens = Tokens(100, 1);
  PrefixChain chain(scope);
  for (size_t n = 0; n <= tokens.size(); ++n) {
    ASSERT_EQ(chain.boundary(), n);
    ASSERT_EQ(chain.Hash(), Reference(scope, std::span(tokens).first(n))) << n;
    ASSERT_EQ(chain.full_blocks(), n / 16);
    if (n < tokens.size()) chain.Append(tokens[n]);
  }
  const auto blocks = PrefixChain::BlockHashes(scope, tokens);
  ASSERT_EQ(blocks.size(), 6u);
  for (size_t b = 0; b < blocks.size(); ++b) {
    EXPECT_EQ(blocks[b], Reference(scope, std::span(tokens).first(16 * (b + 1))));
    EXPECT_EQ(blocks[b], chain.BlockHash(b));
  }
  EXPECT_EQ(PrefixChain::HashOf(scope, tokens), chain.Hash());
}

TEST(PrefixChain, HowTokensAreSplitOverCallsDoesNotMatter) {
  const Sha256 scope = ScopeOf("");
  const auto tokens = Tokens(200, 2);
  SplitMix64 rng(3);
  for (int round = 0; round < 50; ++round) {
    PrefixChain chain(scope);
    for (size_t i = 0; i < tokens.size();) {
      const size_t n = std::min<size_t>(1 + rng.Below(40), tokens.size() - i);
      chain.Append(std::span(tokens).subspan(i, n));
      i += n;
    }
    ASSERT_EQ(chain.Hash(), PrefixChain::HashOf(scope, tokens));
  }
}

TEST(PrefixChain, OneTokenTheirNumberAndTheScopeEachChangeTheHash) {
  const Sha256 scope = ScopeOf("a");
  const auto tokens = Tokens(37, 4);
  const Sha256 hash = PrefixChain::HashOf(scope, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto other = tokens;
    other[i] ^= 1;
    EXPECT_NE(PrefixChain::HashOf(scope, other), hash);
  }
  auto longer = tokens;
  longer.push_back(0);
  EXPECT_NE(PrefixChain::HashOf(scope, longer), hash);
  EXPECT_NE(PrefixChain::HashOf(ScopeOf("b"), tokens), hash);
  EXPECT_NE(ScopeOf(""), ScopeOf(std::string_view("\0", 1)));
  // Tokens that would be the next block's prefix: 16 zeros then none, against 15 and 1 appended.
  EXPECT_NE(PrefixChain::HashOf(scope, std::vector<TokenId>(16)),
            PrefixChain::HashOf(scope, std::vector<TokenId>(17)));
}

TEST(PrefixChain, TruncationGoesBackToTheGrid) {
  const Sha256 scope = ScopeOf("t");
  const auto tokens = Tokens(75, 5);
  PrefixChain chain(scope, tokens);
  chain.TruncateToGrid(48);
  EXPECT_EQ(chain.Hash(), PrefixChain::HashOf(scope, std::span(tokens).first(48)));
  chain.Append(std::span(tokens).subspan(48));
  EXPECT_EQ(chain.Hash(), PrefixChain::HashOf(scope, tokens));
  chain.TruncateToGrid(0);
  EXPECT_EQ(chain.Hash(), PrefixChain(scope).Hash());
}

TEST(ContentIdentity, MatchNamesTheFirstDifferingField) {
  const auto tokens = Tokens(40, 6);
  const IdentityBase base{Sha256Of(AsBytes(std::string("m"))), Sha256Of(AsBytes(std::string("l"))),
                          ScopeOf("s")};
  const ContentIdentity good = base.At(PrefixChain(base.scope, tokens));
  EXPECT_TRUE(MatchIdentity(good, good).ok());
  const auto reason = [&](auto change) {
    ContentIdentity other = good;
    change(&other);
    EXPECT_NE(other, good);
    EXPECT_NE(other.Key(), good.Key());
    const Status s = MatchIdentity(good, other);
    EXPECT_NE(s.message().find("expected"), absl::string_view::npos);
    EXPECT_NE(s.message().find("found"), absl::string_view::npos);
    return ReasonOf(s);
  };
  EXPECT_EQ(reason([](ContentIdentity* c) { c->model.bytes[0] ^= 1; }), Reason::kModelMismatch);
  EXPECT_EQ(reason([](ContentIdentity* c) { c->layout.bytes[9] ^= 1; }), Reason::kLayoutMismatch);
  EXPECT_EQ(reason([](ContentIdentity* c) { c->scope.bytes[3] ^= 1; }), Reason::kScopeMismatch);
  EXPECT_EQ(reason([](ContentIdentity* c) { c->prefix.bytes[31] ^= 128; }),
            Reason::kIdentityMismatch);
  EXPECT_EQ(reason([](ContentIdentity* c) { c->boundary += 1; }), Reason::kBoundaryMismatch);
  EXPECT_EQ(reason([](ContentIdentity* c) { c->boundary += 1, c->prefix.bytes[0] ^= 1; }),
            Reason::kBoundaryMismatch);
}

TEST(ContentIdentity, ABlockIsIdentifiedAtItsOwnEnd) {
  const auto tokens = Tokens(64, 7);
  IdentityBase base;
  base.scope = ScopeOf("s");
  const PrefixChain chain(base.scope, tokens);
  for (size_t b = 0; b < 4; ++b) {
    const PrefixChain upto(base.scope, std::span(tokens).first(16 * (b + 1)));
    EXPECT_EQ(base.AtBlockEnd(chain, b), base.At(upto));
  }
}

}  // namespace
}  // namespace baton
