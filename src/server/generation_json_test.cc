#include "server/generation_json.h"

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace baton::server {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateResult;
using engine::TokenEvent;

GenerateRequest FullRequest() {
  GenerateRequest r;
  r.prompt = {0, 1, UINT32_MAX};
  r.prompt_len = 2;
  r.sampling.temperature = 0.1;  // not exact in binary
  r.sampling.top_k = 40;
  r.sampling.top_p = 0.9;
  r.sampling.min_p = 1e-300;
  r.sampling.repetition_penalty = 1.1;
  r.sampling.presence_penalty = -0.3;
  r.sampling.frequency_penalty = 1.7;
  r.sampling.logit_bias = {{3, -100.0F}, {7, 0.1F}};
  r.sampling.prompt_logprobs = 2;
  r.sampling.seed = UINT64_MAX;
  r.sampling.max_tokens = 7;
  r.sampling.min_tokens = 3;
  r.sampling.ignore_eos = true;
  r.sampling.stop_token_ids = {5, 6};
  r.sampling.logprobs = 4;
  r.cache_salt = std::string("\x00\xFF\x80 tenant", 10);  // not UTF-8
  r.conversation_len = 1;
  r.logits_hash = RandomBytes<Sha256>();
  r.prefill_endpoint = "tcp:127.0.0.1:7001";
  r.label = "cmpl-1";
  return r;
}

std::vector<int64_t> UsageOf(const engine::Usage& u) {
  return {u.prompt_tokens,        u.completion_tokens, u.cached_tokens,
          u.local_prefill_tokens, u.recomputed_tokens, u.rejects};
}

void ExpectEqual(const GenerateRequest& a, const GenerateRequest& b) {
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.prompt_len, b.prompt_len);
  EXPECT_EQ(a.sampling.temperature, b.sampling.temperature);
  EXPECT_EQ(a.sampling.top_k, b.sampling.top_k);
  EXPECT_EQ(a.sampling.top_p, b.sampling.top_p);
  EXPECT_EQ(a.sampling.min_p, b.sampling.min_p);
  EXPECT_EQ(a.sampling.repetition_penalty, b.sampling.repetition_penalty);
  EXPECT_EQ(a.sampling.presence_penalty, b.sampling.presence_penalty);
  EXPECT_EQ(a.sampling.frequency_penalty, b.sampling.frequency_penalty);
  EXPECT_EQ(a.sampling.logit_bias, b.sampling.logit_bias);
  EXPECT_EQ(a.sampling.prompt_logprobs, b.sampling.prompt_logprobs);
  EXPECT_EQ(a.sampling.seed, b.sampling.seed);
  EXPECT_EQ(a.sampling.max_tokens, b.sampling.max_tokens);
  EXPECT_EQ(a.sampling.min_tokens, b.sampling.min_tokens);
  EXPECT_EQ(a.sampling.ignore_eos, b.sampling.ignore_eos);
  EXPECT_EQ(a.sampling.stop_token_ids, b.sampling.stop_token_ids);
  EXPECT_EQ(a.sampling.logprobs, b.sampling.logprobs);
  EXPECT_EQ(a.cache_salt, b.cache_salt);
  EXPECT_EQ(a.conversation_len, b.conversation_len);
  EXPECT_EQ(a.logits_hash, b.logits_hash);
  EXPECT_EQ(a.prefill_endpoint, b.prefill_endpoint);
  EXPECT_EQ(a.label, b.label);
}

TEST(GenerationJson, RequestRoundTrip) {
  for (const GenerateRequest& request : {FullRequest(), GenerateRequest{}}) {
    const auto decoded = DecodeRequest(EncodeRequest(request));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectEqual(*decoded, request);
  }
}

TEST(GenerationJson, EveryFieldOfARequestIsNeeded) {
  const Json json = *ParseJsonLenient(EncodeRequest(FullRequest()));
  for (const auto& [key, value] : json.items()) {
    Json damaged = json;
    damaged.erase(key);
    EXPECT_FALSE(DecodeRequest(DumpJson(damaged)).ok()) << key;
    damaged[key] = Json::object({{"x", 1}});
    EXPECT_FALSE(DecodeRequest(DumpJson(damaged)).ok()) << key;
  }
  for (const auto& [key, value] : json["sampling"].items()) {
    Json damaged = json;
    damaged["sampling"].erase(key);
    EXPECT_FALSE(DecodeRequest(DumpJson(damaged)).ok()) << key;
    damaged["sampling"][key] = "x";
    EXPECT_FALSE(DecodeRequest(DumpJson(damaged)).ok()) << key;
  }
}

TEST(GenerationJson, EventsRoundTrip) {
  std::vector<TokenEvent> events(2);
  events[0].token = UINT32_MAX;
  events[0].logprob = -0.1F;
  events[0].logits_hash = RandomBytes<Sha256>();
  events[0].top = {{1, -1.0F / 3}, {2, -std::numeric_limits<float>::infinity()}};
  events[1].logprob = std::nextafterf(-5.0F, 0.0F);
  const std::string line = EncodeEvents(events);
  ASSERT_EQ(line.find('\n'), line.size() - 1);
  const auto decoded = DecodeLine(line.substr(0, line.size() - 1));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& out = std::get<std::vector<TokenEvent>>(*decoded);
  ASSERT_EQ(out.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(out[i].token, events[i].token);
    EXPECT_EQ(out[i].logprob, events[i].logprob);
    EXPECT_EQ(out[i].logits_hash, events[i].logits_hash);
    EXPECT_EQ(out[i].top, events[i].top);
  }
}

TEST(GenerationJson, ResultRoundTrip) {
  GenerateResult result;
  result.reason = FinishReason::kError;
  result.stop_token = 9;
  result.error = Reject(Reason::kDigestMismatch, "part l3: expected \"a\"\nfound b");
  result.usage = {1, 2, 3, 4, 5, 6};
  result.handoffs.push_back({"id", 16, 3, 1LL << 40, 5, 0.1, 0.2, "shm", true, "r", "m"});
  result.prompt_scores = {{-0.1F, 3, {{1, -0.05F}, {2, -std::numeric_limits<float>::infinity()}}},
                          {-2.0F, 1, {}}};
  const std::string line = EncodeResult(result);
  ASSERT_EQ(line.find('\n'), line.size() - 1);
  const auto decoded = DecodeLine(line.substr(0, line.size() - 1));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& out = std::get<GenerateResult>(*decoded);
  EXPECT_EQ(out.reason, result.reason);
  EXPECT_EQ(out.stop_token, result.stop_token);
  EXPECT_EQ(out.error.message(), result.error.message());
  EXPECT_EQ(out.error.code(), result.error.code());
  EXPECT_EQ(ReasonOf(out.error), Reason::kDigestMismatch);
  EXPECT_EQ(UsageOf(out.usage), UsageOf(result.usage));
  ASSERT_EQ(out.prompt_scores.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(out.prompt_scores[i].logprob, result.prompt_scores[i].logprob);
    EXPECT_EQ(out.prompt_scores[i].rank, result.prompt_scores[i].rank);
    EXPECT_EQ(out.prompt_scores[i].top, result.prompt_scores[i].top);
  }
  ASSERT_EQ(out.handoffs.size(), 1u);
  EXPECT_EQ(HandoffToJson(out.handoffs[0]), HandoffToJson(result.handoffs[0]));
}

TEST(GenerationJson, StatusRoundTripForAllReasons) {
  for (int i = 0; i <= static_cast<int>(Reason::kCancelled); ++i) {
    const Status status = Reject(static_cast<Reason>(i), "why");
    const auto decoded = StatusFromJson(StatusToJson(status));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, status);
  }
  const Status plain = absl::UnavailableError("no worker");
  EXPECT_EQ(*StatusFromJson(StatusToJson(plain)), plain);
}

TEST(GenerationJson, DamagedLinesAreErrorsNeverCrashes) {
  std::vector<TokenEvent> events(1);
  events[0].top = {{1, -1.0F}};
  GenerateResult result;
  result.handoffs.emplace_back();
  SplitMix64 rng(3);
  for (const std::string& good : {EncodeEvents(events), EncodeResult(result)}) {
    for (int round = 0; round < 20000; ++round) {
      std::string line = good;
      for (uint64_t k = 1 + rng.Below(3); k > 0; --k) {
        line[rng.Below(line.size())] = "0{}[],:\"-e.xnull"[rng.Below(16)];
      }
      (void)DecodeLine(line);
      (void)DecodeRequest(line);
    }
  }
  for (const char* bad : {"", "{}", "[]", "null", "{\"tokens\":5}", "{\"tokens\":[[1,2,3]]}",
                          "{\"result\":{}}", "{\"tokens\":[[-1,0,\"00\",[]]]}"}) {
    EXPECT_FALSE(DecodeLine(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace baton::server
