#include "soak/conversation.h"

#include <algorithm>

#include "soak/models.h"

namespace baton::soak {
namespace {

constexpr uint64_t kPrefixes = 4;  // that are shared
constexpr size_t kPrefixMax = 96;

}  // namespace

engine::GenerateRequest User::Next() {
  engine::GenerateRequest r;
  const bool more = !history_.empty() && history_.size() + 64 < options_.prompt_max;
  if (more && rng_.Below(3) != 0) {
    r.prompt = history_;
  } else {
    const char* const tenants[] = {"", "", "blue", "green"};
    tenant_ = tenants[rng_.Below(4)];
    if (rng_.Below(3) != 0) {
      SplitMix64 shared(7 + rng_.Below(kPrefixes));
      r.prompt = RandomTokens(&shared, 16 + shared.Below(kPrefixMax - 16), options_.vocab);
    }
  }
  const size_t room = options_.prompt_max - r.prompt.size();
  size_t n =
      r.prompt.size() + 1 + rng_.Below(rng_.Below(2) == 0 ? room : std::min<size_t>(room, 40));
  // Half of them one before, on, one or two after a grid boundary.
  if (rng_.Below(2) == 0 && n > 18)
    n = std::max(r.prompt.size() + 1, n / 16 * 16 - 1 + rng_.Below(4));
  const auto tail = RandomTokens(&rng_, n - r.prompt.size(), options_.vocab);
  r.prompt.insert(r.prompt.end(), tail.begin(), tail.end());
  r.cache_salt = tenant_;
  if (rng_.Below(2) == 0) r.conversation_len = static_cast<int64_t>(1 + rng_.Below(n));
  r.sampling.max_tokens =
      1 + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(options_.answer_max)));
  r.sampling.temperature = rng_.Below(2) == 0 ? 0 : 0.8;
  r.sampling.seed = rng_.Below(1000);
  r.sampling.ignore_eos = true;
  return r;
}

void User::Heard(const engine::GenerateRequest& request, const std::vector<TokenId>& answer) {
  history_ = request.prompt;
  history_.insert(history_.end(), answer.begin(), answer.end());
}

}  // namespace baton::soak
