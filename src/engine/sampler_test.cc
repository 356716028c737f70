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

TEST(Sampler, BiasComesBeforePenaltiesWhichCountTheOutput) {
  SamplerScratch scratch;
  SampleInput in;
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<TokenId> history = {2, 2, 1, 1};  // the prompt, then 1 twice
  in.logits = logits;
  in.history = history;
  in.output_tokens = 2;
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{2, -1.5F}};  // 1, 2, 1.5
  EXPECT_EQ(SampleToken(in, p, &scratch).token, 1u);
  p.presence_penalty = 0.4;  // 1, 1.6, 1.5
  EXPECT_EQ(SampleToken(in, p, &scratch).token, 1u);
  p.frequency_penalty = 0.1;  // 1, 1.4, 1.5
  EXPECT_EQ(SampleToken(in, p, &scratch).token, 2u);
  in.output_tokens = 0;  // all of it is prompt
  EXPECT_EQ(SampleToken(in, p, &scratch).token, 1u);
  p.logit_bias = {{0, 100}, {1, -100}};
  EXPECT_EQ(SampleToken(in, p, &scratch).token, 0u);
  p.logit_bias = {{3, 0}};
  EXPECT_FALSE(ValidateSampling(p, 3).ok());
  p.logit_bias = {{0, 101}};
  EXPECT_FALSE(ValidateSampling(p, 3).ok());
  p = {};
  p.presence_penalty = 2.1;
  EXPECT_FALSE(ValidateSampling(p, 3).ok());
}

TEST(Sampler, ScoresHaveARank) {
  SamplerScratch scratch;
  const std::vector<float> logits = {1, 2, 3, 2};
  EXPECT_EQ(ScoreToken(logits, 2, 0, &scratch).rank, 1);
  EXPECT_EQ(ScoreToken(logits, 3, 0, &scratch).rank, 2);
  EXPECT_EQ(ScoreToken(logits, 0, 2, &scratch).rank, 4);
  EXPECT_EQ(ScoreToken(logits, 0, 2, &scratch).top.size(), 2u);
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
