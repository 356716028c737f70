// Recomputation: what one engine that is never disturbed says to a request. Each question is
// computed once and kept. Thread rule: thread-safe.
#ifndef BATON_TEST_SOAK_TRUTH_H_
#define BATON_TEST_SOAK_TRUTH_H_

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/worker.h"

namespace baton::soak {

// A sink that keeps everything and can be waited for.
class Answer final : public engine::GenerationSink {
 public:
  void OnTokens(std::span<const engine::TokenEvent> events) override;
  void OnFinish(const engine::GenerateResult& result) override;
  // Blocks until OnFinish.
  engine::GenerateResult Wait();
  // Blocks until n tokens have come, the request has ended, or `timeout` passed. True if it ended.
  bool WaitFor(size_t n, Duration timeout);
  std::vector<TokenId> tokens();
  Sha256 logits_hash();

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<TokenId> tokens_ BATON_GUARDED_BY(mu_);
  Sha256 logits_hash_ BATON_GUARDED_BY(mu_);
  std::optional<engine::GenerateResult> result_ BATON_GUARDED_BY(mu_);
};

struct Said {
  std::vector<TokenId> tokens;
  Sha256 logits_hash;  // rolling, over all of them
};

class Truth {
 public:
  // The model outlives it.
  explicit Truth(const model::Model* model);
  ~Truth();
  // The request's answer, by an engine without peers, cache, pressure or company.
  Said Of(engine::GenerateRequest request) BATON_EXCLUDES(mu_);
  uint64_t computed() const BATON_EXCLUDES(mu_);

 private:
  std::unique_ptr<engine::Worker> worker_;
  mutable Mutex mu_;
  std::map<Sha256, Said> known_ BATON_GUARDED_BY(mu_);
  std::list<Sha256> order_ BATON_GUARDED_BY(mu_);  // oldest first; bounded
  uint64_t computed_ BATON_GUARDED_BY(mu_) = 0;
};

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_TRUTH_H_
