// What the HTTP layer knows of generation: start a request, get its tokens, cancel it. Token ids
// in, token ids out; text, stop strings and JSON live above. Implemented by LocalGenerator (this
// process's engine) and by the router's RemoteGenerator (a decode worker elsewhere).
//
// Determinism: tokens and logits are a function of (model, prompt, sampling incl. seed). A request
// may therefore be resubmitted elsewhere in mid-stream as prompt + tokens already emitted, with
// `prompt_len` kept, and continues with the same tokens.
//
// Thread rule: Generator is thread-safe. Sinks are called from one thread at a time, must not
// block and must not call back into the generator except Generation::Cancel.
#ifndef BATON_ENGINE_GENERATOR_H_
#define BATON_ENGINE_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace baton::engine {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0 or -1: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;  // over prompt and output
  // Over the output alone: taken off the logit of each token it holds, once for being there and
  // once for every time.
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to these logits; each id once
  uint64_t seed = 0;  // random numbers are a function of (seed, position)
  int64_t max_tokens = 16;
  int64_t min_tokens = 0;  // eos and stop ids are masked before
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  // eos ids included by the caller unless ignore_eos
  int32_t logprobs = -1;                // -1: none; k >= 0: chosen token and k most likely
  // k >= 0: the same of every prompt token but the first, in the result. The prompt is then
  // computed here from its first token: what a cache or a peer holds has no logits.
  int32_t prompt_logprobs = -1;
  // Teacher forcing: the first output tokens are these, whatever the logits say; for scoring a
  // given text. Stop ids among them end nothing.
  std::vector<TokenId> forced_tokens;
};

struct GenerateRequest {
  std::vector<TokenId> prompt;  // for a continuation: original prompt + tokens already emitted
  int64_t prompt_len = 0;       // original prompt length; 0 means prompt.size()
  SamplingParams sampling;
  std::string cache_salt;  // tenant; separates state from token 0
  // Tokens of the rendered conversation before the generation prompt; a checkpoint is kept at the
  // grid boundary below it. 0: use the prompt's own hand-off boundary.
  int64_t conversation_len = 0;
  // Rolling logits hash of the tokens already emitted (continuations).
  std::optional<Sha256> logits_hash;
  std::string prefill_endpoint;  // hand-off endpoint to pull from, "" = compute here
  std::string label;             // for logs only; the owner id is minted by the engine
};

struct TokenEvent {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // most likely first
  // h_i = SHA-256(h_{i-1} || fp32 logits of this step), h_{-1} = 32 zero bytes.
  Sha256 logits_hash;
};

// How likely a prompt token was, given those before it.
struct PromptScore {
  float logprob = 0;
  int64_t rank = 0;                            // 1: the most likely
  std::vector<std::pair<TokenId, float>> top;  // most likely first
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

// One hand-off (or attempt) made for a request, as shown to users.
struct HandoffRecord {
  std::string state_id;
  int64_t boundary = 0;
  int64_t parts = 0;
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;
  double milliseconds = 0;       // pull and verification, without waiting for the computation
  double wait_milliseconds = 0;  // from the ask to the offer
  std::string connector;
  bool verified = false;
  std::string reason;  // reason code if rejected
  std::string message;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;         // of the prompt, not computed anywhere for this request
  int64_t local_prefill_tokens = 0;  // prompt tokens computed by the worker that decodes
  int64_t recomputed_tokens = 0;     // prompt tokens computed here because a hand-off failed
  int64_t rejects = 0;
};

struct GenerateResult {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token;  // set if a stop id ended it (not part of the output)
  Status error;                       // set if kError; carries a Reason where there is one
  Usage usage;
  std::vector<HandoffRecord> handoffs;
  // Of prompt tokens 1, 2, ...; empty unless asked for, and if the end came before they were known.
  std::vector<PromptScore> prompt_scores;
};

// Bounds prompt_scores: prompt tokens times (prompt_logprobs + 1).
inline constexpr int64_t kPromptScoresMax = int64_t{1} << 18;

class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void OnTokens(std::span<const TokenEvent> events) = 0;
  // Called exactly once, last.
  virtual void OnFinish(const GenerateResult& result) = 0;
};

// Handle of a running request. Dropping it does not cancel.
class Generation {
 public:
  virtual ~Generation() = default;
  // Idempotent; OnFinish(kCancelled) follows unless the request has already finished.
  virtual void Cancel() = 0;
};

class Generator {
 public:
  virtual ~Generator() = default;
  // kInvalidArgument: prompt empty, too long, token out of range. kResourceExhausted: queue full
  // (HTTP 429). kUnavailable: draining or no worker (HTTP 503).
  virtual StatusOr<std::shared_ptr<Generation>> Start(GenerateRequest request,
                                                      std::shared_ptr<GenerationSink> sink) = 0;
  virtual int64_t max_model_len() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_GENERATOR_H_
