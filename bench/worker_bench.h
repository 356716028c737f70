// What benchmarks around whole workers share: results or the end of the program, and a sink that
// notes when each token came. Thread rule: a sink may be waited for from one other thread.
#ifndef BATON_BENCH_WORKER_BENCH_H_
#define BATON_BENCH_WORKER_BENCH_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/generator.h"

namespace baton::bench {

template <class T>
T Or(StatusOr<T> v) {
  if (v.ok()) return *std::move(v);
  std::fprintf(stderr, "%s\n", std::string(v.status().message()).c_str());
  std::exit(1);
}
inline void Or(const Status& s) {
  if (s.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(s.message()).c_str());
  std::exit(1);
}

class Sink final : public engine::GenerationSink {
 public:
  void OnTokens(std::span<const engine::TokenEvent> events) override {
    const Instant now = MonotonicClock().Now();
    MutexLock lock(&mu_);
    for (const auto& e : events) {
      at.push_back(now);
      tokens.push_back(e.token);
      hash = e.logits_hash;
    }
  }
  void OnFinish(const engine::GenerateResult& r) override {
    MutexLock lock(&mu_);
    result = r;
    done_ = true;
    cv_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!done_) cv_.Wait(&mu_);
  }
  // After Wait.
  std::vector<TokenId> tokens;
  std::vector<Instant> at;
  Sha256 hash;
  engine::GenerateResult result;

 private:
  Mutex mu_;
  CondVar cv_;
  bool done_ = false;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_WORKER_BENCH_H_
