// One user of a soak: conversations of several turns, from a seed. Thread rule: one thread.
#ifndef BATON_TEST_SOAK_CONVERSATION_H_
#define BATON_TEST_SOAK_CONVERSATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/generator.h"

namespace baton::soak {

struct UserOptions {
  int64_t vocab = 0;
  size_t prompt_max = 260;
  int64_t answer_max = 40;
};

class User {
 public:
  User(uint64_t seed, UserOptions options) : rng_(seed), options_(options) {}

  // The next request: the next turn of the present conversation, or the first of a new one. Lengths
  // lie on both sides of the grid, new ones often begin with a prefix that others have too, some
  // belong to another tenant, half are greedy.
  engine::GenerateRequest Next();
  // What was said to it, so that the next turn can follow.
  void Heard(const engine::GenerateRequest& request, const std::vector<TokenId>& answer);
  SplitMix64* rng() { return &rng_; }

 private:
  SplitMix64 rng_;
  const UserOptions options_;
  std::vector<TokenId> history_;
  std::string tenant_;
};

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_CONVERSATION_H_
