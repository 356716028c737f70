#include "soak/truth.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace baton::soak {
namespace {

constexpr size_t kKnownMax = 20000;

Sha256 KeyOf(const engine::GenerateRequest& r) {
  Sha256Hasher hasher;
  hasher.Update(std::as_bytes(std::span(r.prompt)));
  const std::string rest = absl::StrCat(r.sampling.temperature, "/", r.sampling.seed, "/",
                                        r.sampling.max_tokens, "/", r.cache_salt);
  hasher.Update(std::as_bytes(std::span(rest)));
  return hasher.Finish();
}

}  // namespace

void Answer::OnTokens(std::span<const engine::TokenEvent> events) {
  MutexLock lock(&mu_);
  for (const engine::TokenEvent& e : events) {
    tokens_.push_back(e.token);
    logits_hash_ = e.logits_hash;
  }
  changed_.NotifyAll();
}

void Answer::OnFinish(const engine::GenerateResult& result) {
  MutexLock lock(&mu_);
  BATON_CHECK(!result_.has_value());
  result_ = result;
  changed_.NotifyAll();
}

engine::GenerateResult Answer::Wait() {
  MutexLock lock(&mu_);
  while (!result_.has_value()) changed_.Wait(&mu_);
  return *result_;
}

bool Answer::WaitFor(size_t n, Duration timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  while (tokens_.size() < n && !result_.has_value()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    changed_.WaitFor(&mu_, until - now);
  }
  return result_.has_value();
}

std::vector<TokenId> Answer::tokens() {
  MutexLock lock(&mu_);
  return tokens_;
}

Sha256 Answer::logits_hash() {
  MutexLock lock(&mu_);
  return logits_hash_;
}

Truth::Truth(const model::Model* model) {
  engine::WorkerOptions options;
  options.engine.prefix_caching = false;
  options.memory.slots = 64;
  options.memory.blocks = 2048;
  auto worker = engine::Worker::Create(model, std::move(options));
  BATON_CHECK(worker.ok());
  worker_ = *std::move(worker);
}

Truth::~Truth() = default;

Said Truth::Of(engine::GenerateRequest request) {
  request.prefill_endpoint.clear();
  const Sha256 key = KeyOf(request);
  {
    MutexLock lock(&mu_);
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
  }
  auto answer = std::make_shared<Answer>();
  const auto started = worker_->engine().Start(std::move(request), answer);
  BATON_CHECK(started.ok());
  BATON_CHECK(answer->Wait().reason == engine::FinishReason::kLength);
  const Said said{answer->tokens(), answer->logits_hash()};
  MutexLock lock(&mu_);
  ++computed_;
  if (known_.emplace(key, said).second) order_.push_back(key);
  if (order_.size() > kKnownMax) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  return said;
}

uint64_t Truth::computed() const {
  MutexLock lock(&mu_);
  return computed_;
}

}  // namespace baton::soak
