// Private to this module: what a request came to, and an attack on it. Thread rule: plain values.
#ifndef BATON_DRILL_DRILL_INTERNAL_H_
#define BATON_DRILL_DRILL_INTERNAL_H_

#include <optional>
#include <vector>

#include "drill/drill.h"

namespace baton::drill {

constexpr int64_t kBystanderTokens = 60;

inline bool Done(const engine::GenerateResult& r) {
  return r.reason == engine::FinishReason::kStop || r.reason == engine::FinishReason::kLength;
}

struct Drill::Outcome {
  engine::GenerateResult result;
  std::vector<engine::TokenEvent> events;

  std::vector<TokenId> tokens() const {
    std::vector<TokenId> out;
    for (const auto& e : events) out.push_back(e.token);
    return out;
  }
  bool Same(const Outcome& other) const {
    const Sha256 mine = events.empty() ? Sha256() : events.back().logits_hash;
    const Sha256 theirs = other.events.empty() ? Sha256() : other.events.back().logits_hash;
    return Done(result) && tokens() == other.tokens() && mine == theirs;
  }
};

struct Drill::Attempted {
  Outcome victim;
  std::unique_ptr<Outcome> afterwards;  // the same request again, when the first was cancelled
  bool accepted = false;                // at rest: the bundle was used, nothing was refused
  bool beside_equal = true;
  uint64_t held = 0;
};

}  // namespace baton::drill

#endif  // BATON_DRILL_DRILL_INTERNAL_H_
