#include "engine/sampler.h"

#include <cmath>
#include <map>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

Sample Pick(const std::vector<float>& logits,
            const SamplingParams& p,
            int64_t position = 0,
            std::vector<TokenId> history = {}) {
  SamplerScratch scratch;
  SampleInput in;
  in.logits = logits;
  in.history = history;
  in.position = position;
  return SampleToken(in, p, &scratch);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplingParams p;
  p.temperature = 0;
  EXPECT_EQ(Pick({1, 3, 3, 2}, p).token, 1u);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  SamplingParams p;
  p.seed = 5;
  const std::vector<float> logits = {0, 1, 2};
  std::map<TokenId, int> count;
  const int n = 20000;
  for (int i = 0; i < n; ++i) ++count[Pick(logits, p, i).token];
  const double z = 1 + std::exp(1) + std::exp(2);
  for (TokenId t = 0; t < 3; ++t)
    EXPECT_NEAR(count[t] / double(n), std::exp(double(t)) / z, 0.015) << t;
}

TEST(Sampler, TopKTopPMinPKeepOnlyTheLikely) {
  const std::vector<float> logits = {0, 5, 4, -3, 1};
  SamplingParams k;
  k.top_k = 2;
  SamplingParams pp;
  pp.top_p = 0.5;
  SamplingParams mp;
  mp.min_p = 0.3;
  for (int i = 0; i < 500; ++i) {
    const TokenId a = Pick(logits, k, i).token;
    EXPECT_TRUE(a == 1 || a == 2);
    EXPECT_EQ(Pick(logits, pp, i).token, 1u);
    const TokenId c = Pick(logits, mp, i).token;
    EXPECT_TRUE(c == 1 || c == 2);
  }
}

TEST(Sampler, DrawIsAFunctionOfSeedAndPosition) {
  std::vector<float> logits(100);
  SplitMix64 rng(3);
  for (float& l : logits) l = static_cast<float>(rng.Uniform());
  SamplingParams p;
  int differ = 0;
  for (int i = 0; i < 50; ++i) {
    p.seed = 1;
    const TokenId a = Pick(logits, p, i).token;
    EXPECT_EQ(a, Pick(logits, p, i).token);
    p.seed = 2;
    differ += a != Pick(logits, p, i).token;
  }
  EXPECT_GT(differ, 30);
}

TEST(Sampler, RepetitionPenaltyAndMinTokens) {
  SamplingParams p;
  p.temperature = 0;
  p.repetition_penalty = 2;
  EXPECT_EQ(Pick({2, 3}, p, 0, {1}).token, 0u);
  SamplingParams m;
  m.temperature = 0;
  m.stop_token_ids = {1};
  m.min_tokens = 1;
  EXPECT_EQ(Pick({2, 3}, m).token, 0u);
}

TEST(Sampler, LogprobsAreOfTheUnmodifiedDistribution) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 2;
  const Sample s = Pick({0, 1, 2}, p);
  const double z = std::log(1 + std::exp(1) + std::exp(2));
  EXPECT_NEAR(s.logprob, 2 - z, 1e-5);
  ASSERT_EQ(s.top.size(), 2u);
  EXPECT_EQ(s.top[1].first, 1u);
  EXPECT_NEAR(s.top[1].second, 1 - z, 1e-5);
}

TEST(Sampler, ForcedTokensComeFirstAndKeepTheirLogprob) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 3;
  p.forced_tokens = {1};
  const Sample s = Pick({0, 1, 2}, p, 0);
  EXPECT_EQ(s.token, 1u);
  EXPECT_NEAR(s.logprob, 1 - std::log(1 + std::exp(1) + std::exp(2)), 1e-5);
  EXPECT_EQ(s.top.size(), 3u);
  EXPECT_EQ(s.top[0].first, 2u);
  p.forced_tokens = {11};
  EXPECT_FALSE(ValidateSampling(p, 10).ok());
  p = {};
  p.logprobs = 11;
  EXPECT_FALSE(ValidateSampling(p, 10).ok());
}

TEST(Sampler, AbsurdParametersAreNamed) {
  SamplingParams p;
  p.temperature = std::nan("");
  EXPECT_THAT(std::string(ValidateSampling(p, 10).message()), testing::HasSubstr("temperature"));
  p = {};
  p.top_p = 0;
  EXPECT_FALSE(ValidateSampling(p, 10).ok());
  p = {};
  p.max_tokens = 0;
  EXPECT_FALSE(ValidateSampling(p, 10).ok());
  EXPECT_TRUE(ValidateSampling(SamplingParams{}, 10).ok());
}

}  // namespace
}  // namespace baton::engine
