// Turns one row of logits into a token. A pure function of (logits, params, history, position):
// no state, no libm, random numbers from base/rng.h's counter generator, so that every worker
// draws the same token for the same request.
//
// Order, as vLLM: minimum-length mask, logit_bias, repetition, frequency and presence penalty,
// temperature, top_k, top_p, min_p.
// Ties go to the lower token id. Thread rule: pure functions; Scratch belongs to one thread.
#ifndef BATON_ENGINE_SAMPLER_H_
#define BATON_ENGINE_SAMPLER_H_

#include <span>
#include <vector>

#include "base/status.h"
#include "engine/generator.h"

namespace baton::engine {

// Ranges of every parameter; the message names parameter, value and range. kInvalidArgument.
Status ValidateSampling(const SamplingParams& params, int64_t vocab_size);

struct SampleInput {
  std::span<const float> logits;     // [vocab], finite
  std::span<const TokenId> history;  // prompt and output so far, for the repetition penalty
  int64_t position = 0;              // index of the token being chosen in the whole sequence
  int64_t output_tokens = 0;         // already emitted, for min_tokens
};

struct Sample {
  TokenId token = 0;
  float logprob = 0;                           // of the unmodified distribution
  std::vector<std::pair<TokenId, float>> top;  // params.logprobs entries, most likely first
};

// Of the unmodified distribution; `k` entries in `top`.
struct SamplerScratch;
PromptScore ScoreToken(std::span<const float> logits,
                       TokenId token,
                       int32_t k,
                       SamplerScratch* scratch);

struct SamplerScratch {
  std::vector<float> logits;
  std::vector<TokenId> order;
  std::vector<float> weights;
};

Sample SampleToken(const SampleInput& input, const SamplingParams& params, SamplerScratch* scratch);

}  // namespace baton::engine

#endif  // BATON_ENGINE_SAMPLER_H_
