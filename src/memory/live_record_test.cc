#include "memory/live_record.h"

#include "base/sha256.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

IdentityBase Base() {
  IdentityBase base;
  base.model.bytes[0] = 1;
  base.layout.bytes[0] = 2;
  base.scope = ScopeOf("tenant");
  return base;
}

std::vector<TokenId> Tokens(size_t n) {
  std::vector<TokenId> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = static_cast<TokenId>(i * 7 + 1);
  return t;
}

ContentIdentity IdentityAt(size_t n) { return Base().At(PrefixChain(Base().scope, Tokens(n))); }

// F11: a state K tokens before or after the boundary its key names.
TEST(LiveRecordF11, AClaimOfAnotherBoundaryOrHistoryIsRefused) {
  LiveRecord record(Base());
  record.Advance(Tokens(48));
  EXPECT_TRUE(record.ClaimMatches(IdentityAt(48)).ok());
  for (size_t n : {0, 1, 32, 33, 47, 49, 64})
    EXPECT_EQ(ReasonOf(record.ClaimMatches(IdentityAt(n))), Reason::kBoundaryMismatch) << n;
  auto tokens = Tokens(48);
  tokens[13] ^= 1;
  EXPECT_EQ(ReasonOf(record.ClaimMatches(Base().At(PrefixChain(Base().scope, tokens)))),
            Reason::kIdentityMismatch);
  ContentIdentity claim = IdentityAt(48);
  claim.scope = ScopeOf("other");
  EXPECT_EQ(ReasonOf(record.ClaimMatches(claim)), Reason::kScopeMismatch);
}

TEST(LiveRecord, AContinuedBundleEndsWhereOneFromZeroDoes) {
  const auto tokens = Tokens(70);
  LiveRecord whole(Base());
  whole.Advance(tokens);
  LiveRecord resumed(Base(), PrefixChain(Base().scope, std::span(tokens).first(32)));
  for (size_t i = 32; i < tokens.size(); ++i) resumed.Advance(std::span(tokens).subspan(i, 1));
  EXPECT_EQ(resumed.Identity(), whole.Identity());
  EXPECT_EQ(resumed.boundary(), 70u);
  EXPECT_EQ(resumed.BlockIdentity(3), IdentityAt(64));
}

TEST(LiveRecord, AfterAFailedStepNoClaimMatches) {
  LiveRecord record(Base());
  record.Advance(Tokens(16));
  record.Invalidate();
  EXPECT_EQ(ReasonOf(record.ClaimMatches(IdentityAt(16))), Reason::kIdentityMismatch);
}

TEST(LiveTableI2, ARecordBelongsToOneLifeOfTheSlot) {
  LiveTable table;
  const SlotHandle first{1, 5, 3};
  const SlotHandle next{1, 5, 4};
  EXPECT_TRUE(table.Start(first, LiveRecord(Base())).ok());
  EXPECT_FALSE(table.Start(first, LiveRecord(Base())).ok());
  EXPECT_TRUE(table.Advance(first, Tokens(16)).ok());
  EXPECT_TRUE(table.ClaimMatches(first, IdentityAt(16)).ok());
  EXPECT_EQ(ReasonOf(table.Advance(next, Tokens(1))), Reason::kStaleHandle);
  EXPECT_TRUE(table.Start(next, LiveRecord(Base())).ok());
  EXPECT_EQ(ReasonOf(table.Advance(first, Tokens(1))), Reason::kStaleHandle);
  EXPECT_EQ(ReasonOf(table.ClaimMatches(first, IdentityAt(16))), Reason::kStaleHandle);
  EXPECT_EQ(ReasonOf(table.Drop(first)), Reason::kStaleHandle);
  EXPECT_FALSE(table.Start(first, LiveRecord(Base())).ok());
  EXPECT_EQ(table.Get(next)->boundary(), 0u);
  EXPECT_TRUE(table.Invalidate(next).ok());
  EXPECT_FALSE(table.ClaimMatches(next, IdentityAt(0)).ok());
  EXPECT_TRUE(table.Drop(next).ok());
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace baton
