#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "kernel/functions.h"

namespace baton::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Status OutOfRange(std::string_view name, double value, std::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(name.data(), name.size()), " is ", value,
                   "; allowed: ", absl::string_view(range.data(), range.size())));
}

// Most likely first, the lower id first among equals.
void SortByLogit(std::span<const float> logits,
                 std::vector<TokenId>::iterator begin,
                 std::vector<TokenId>::iterator mid,
                 std::vector<TokenId>::iterator end) {
  std::partial_sort(begin, mid, end, [&](TokenId a, TokenId b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
}

TokenId ArgMax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<TokenId>(best);
}

bool Modifies(const SampleInput& in, const SamplingParams& p) {
  return p.repetition_penalty != 1.0 || in.output_tokens < p.min_tokens || !p.logit_bias.empty() ||
         ((p.presence_penalty != 0 || p.frequency_penalty != 0) && in.output_tokens > 0);
}

// Everything that changes a logit before temperature, in vLLM's order.
void Modify(const SampleInput& in, const SamplingParams& p, std::vector<float>* logits) {
  if (in.output_tokens < p.min_tokens)
    for (TokenId t : p.stop_token_ids)
      if (t < logits->size()) (*logits)[t] = kMinusInfinity;
  for (const auto& [t, bias] : p.logit_bias) (*logits)[t] += bias;
  if (p.repetition_penalty != 1.0) {
    const float penalty = static_cast<float>(p.repetition_penalty);
    absl::flat_hash_set<TokenId> seen(in.history.begin(), in.history.end());
    for (TokenId t : seen) {
      float& l = (*logits)[t];
      l = l > 0 ? l / penalty : l * penalty;
    }
  }
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    absl::flat_hash_map<TokenId, int64_t> counts;
    for (TokenId t : in.history.last(static_cast<size_t>(in.output_tokens))) ++counts[t];
    const float once = static_cast<float>(p.presence_penalty);
    const float each = static_cast<float>(p.frequency_penalty);
    for (const auto& [t, n] : counts) {
      (*logits)[t] -= each * static_cast<float>(n);
      (*logits)[t] -= once;
    }
  }
}

// Keeps the shortest prefix of `weights` (descending) whose share of the total reaches top_p, and
// of that those within min_p of the first. Always keeps one.
size_t Nucleus(std::span<const float> weights, const SamplingParams& p) {
  double total = 0;
  for (float w : weights) total += w;
  size_t keep = weights.size();
  if (p.top_p < 1.0) {
    double cumulative = 0;
    for (size_t i = 0; i < keep; ++i) {
      cumulative += weights[i];
      if (cumulative >= p.top_p * total) {
        keep = i + 1;
        break;
      }
    }
  }
  if (p.min_p > 0) {
    const float least = static_cast<float>(p.min_p) * weights[0];
    while (keep > 1 && weights[keep - 1] < least) --keep;
  }
  return std::max<size_t>(keep, 1);
}

// Inverse transform over `order`: the first token whose cumulative weight exceeds u * total.
TokenId Draw(std::span<const TokenId> order, std::span<const float> weights, double u) {
  double total = 0;
  for (float w : weights) total += w;
  const double target = u * total;
  double cumulative = 0;
  size_t last = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (weights[i] <= 0) continue;
    cumulative += weights[i];
    last = i;
    if (cumulative > target) break;
  }
  return order[last];
}

TokenId DrawWithTemperature(std::span<const float> logits,
                            const SampleInput& in,
                            const SamplingParams& p,
                            SamplerScratch* s) {
  const size_t vocab = logits.size();
  const bool limited = (p.top_k > 0 && p.top_k < static_cast<int64_t>(vocab));
  const bool sorted = limited || p.top_p < 1.0 || p.min_p > 0;
  s->order.resize(vocab);
  std::iota(s->order.begin(), s->order.end(), TokenId{0});
  size_t n = vocab;
  if (sorted) {
    n = limited ? static_cast<size_t>(p.top_k) : vocab;
    SortByLogit(logits, s->order.begin(), s->order.begin() + static_cast<ptrdiff_t>(n),
                s->order.end());
  }
  const float inverse = static_cast<float>(1.0 / p.temperature);
  const float max = logits[sorted ? s->order[0] : ArgMax(logits)];
  s->weights.resize(n);
  for (size_t i = 0; i < n; ++i) s->weights[i] = kernel::Exp((logits[s->order[i]] - max) * inverse);
  if (sorted) n = Nucleus(std::span(s->weights).first(n), p);
  const double u = CounterUniform(p.seed, static_cast<uint64_t>(in.position), 0);
  return Draw(std::span(s->order).first(n), std::span(s->weights).first(n), u);
}

}  // namespace

PromptScore ScoreToken(std::span<const float> logits, TokenId token, int32_t k, SamplerScratch* s) {
  PromptScore out;
  const float max = logits[ArgMax(logits)];
  double sum = 0;
  for (float l : logits) sum += kernel::Exp(l - max);
  const float log_sum = kernel::Log(static_cast<float>(sum));
  const auto logprob = [&](TokenId t) { return logits[t] - max - log_sum; };
  out.logprob = logprob(token);
  out.rank =
      1 + std::count_if(logits.begin(), logits.end(), [&](float l) { return l > logits[token]; });
  if (k <= 0) return out;
  s->order.resize(logits.size());
  std::iota(s->order.begin(), s->order.end(), TokenId{0});
  const auto mid = s->order.begin() + std::min<ptrdiff_t>(k, static_cast<ptrdiff_t>(logits.size()));
  SortByLogit(logits, s->order.begin(), mid, s->order.end());
  for (auto it = s->order.begin(); it != mid; ++it) out.top.emplace_back(*it, logprob(*it));
  return out;
}

Status ValidateSampling(const SamplingParams& p, int64_t vocab_size) {
  if (!(p.temperature >= 0 && p.temperature <= 100))
    return OutOfRange("temperature", p.temperature, "0 to 100");
  if (p.top_k < -1) return OutOfRange("top_k", static_cast<double>(p.top_k), "-1 (off) or more");
  if (!(p.top_p > 0 && p.top_p <= 1)) return OutOfRange("top_p", p.top_p, "above 0, up to 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return OutOfRange("min_p", p.min_p, "0 to 1");
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 100))
    return OutOfRange("repetition_penalty", p.repetition_penalty, "above 0, up to 100");
  for (const auto& [name, value] : {std::pair{"presence_penalty", p.presence_penalty},
                                    std::pair{"frequency_penalty", p.frequency_penalty}})
    if (!(value >= -2 && value <= 2)) return OutOfRange(name, value, "-2 to 2");
  for (const auto& [t, bias] : p.logit_bias) {
    if (t >= vocab_size)
      return OutOfRange("logit_bias", t, absl::StrCat("token ids 0 to ", vocab_size - 1));
    if (!(bias >= -100 && bias <= 100)) return OutOfRange("logit_bias", bias, "-100 to 100");
  }
  if (p.max_tokens < 1)
    return OutOfRange("max_tokens", static_cast<double>(p.max_tokens), "1 or more");
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens)
    return OutOfRange("min_tokens", static_cast<double>(p.min_tokens), "0 to max_tokens");
  if (p.logprobs > vocab_size)
    return OutOfRange("logprobs", p.logprobs, absl::StrCat("0 to ", vocab_size));
  if (p.prompt_logprobs > vocab_size)
    return OutOfRange("prompt_logprobs", p.prompt_logprobs, absl::StrCat("0 to ", vocab_size));
  for (TokenId t : p.forced_tokens)
    if (t >= vocab_size)
      return OutOfRange("forced_tokens", t, absl::StrCat("0 to ", vocab_size - 1));
  for (TokenId t : p.stop_token_ids)
    if (t >= vocab_size)
      return OutOfRange("stop_token_ids", t, absl::StrCat("0 to ", vocab_size - 1));
  return absl::OkStatus();
}

Sample SampleToken(const SampleInput& in, const SamplingParams& p, SamplerScratch* s) {
  Sample out;
  std::span<const float> logits = in.logits;
  if (Modifies(in, p)) {
    s->logits.assign(in.logits.begin(), in.logits.end());
    Modify(in, p, &s->logits);
    logits = s->logits;
  }
  const auto forced = static_cast<size_t>(in.output_tokens);
  if (forced < p.forced_tokens.size()) {
    out.token = p.forced_tokens[forced];
  } else {
    out.token = p.temperature == 0 ? ArgMax(logits) : DrawWithTemperature(logits, in, p, s);
  }
  if (p.logprobs >= 0) {
    PromptScore score = ScoreToken(in.logits, out.token, p.logprobs, s);
    out.logprob = score.logprob;
    out.top = std::move(score.top);
  }
  return out;
}

}  // namespace baton::engine
