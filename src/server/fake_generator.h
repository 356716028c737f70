// For tests: a Generator without a model. Tokens are a function of (history, seed) or a given
// script; logits hashes chain over the tokens, so that a continuation elsewhere must carry them on.
// Thread rule: thread-safe; one thread of its own makes the tokens.
#ifndef BATON_SERVER_FAKE_GENERATOR_H_
#define BATON_SERVER_FAKE_GENERATOR_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/sha256.h"
#include "engine/generator.h"

namespace baton::server {

class FakeGenerator final : public engine::Generator {
 public:
  struct Options {
    int64_t max_model_len = 4096;
    int64_t vocab_size = 260;
    int64_t running_max = 1'000'000;  // kResourceExhausted above
    std::vector<TokenId> script;      // output instead of the function of history
    int64_t hold_after = INT64_MAX;   // output tokens, then wait for Release()
    std::chrono::microseconds step{0};
    Status start_error;
    std::optional<Status> finish_error;  // kError after `hold_after` tokens instead of waiting
    std::vector<engine::HandoffRecord> handoffs;
    engine::Usage usage;  // prompt and completion are filled in
  };

  explicit FakeGenerator(Options options)
      : options_(std::move(options)), thread_([this] { Loop(); }) {}
  FakeGenerator() : FakeGenerator(Options{}) {}
  ~FakeGenerator() override {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      wake_.NotifyAll();
    }
    thread_.join();
    for (auto& run : running_) run->sink.reset();  // handles may outlive this
  }

  StatusOr<std::shared_ptr<engine::Generation>> Start(
      engine::GenerateRequest request, std::shared_ptr<engine::GenerationSink> sink) override {
    MutexLock lock(&mu_);
    if (!options_.start_error.ok()) return options_.start_error;
    if (static_cast<int64_t>(running_.size()) >= options_.running_max) {
      return absl::ResourceExhaustedError("queue full");
    }
    auto run = std::make_shared<Run>();
    run->tokens = request.prompt;
    run->prompt_len =
        request.prompt_len > 0 ? request.prompt_len : static_cast<int64_t>(request.prompt.size());
    run->hash = request.logits_hash.value_or(Sha256{});
    run->sampling = request.sampling;
    run->sink = std::move(sink);
    requests_.push_back(std::move(request));
    running_.push_back(run);
    wake_.NotifyAll();
    return std::shared_ptr<engine::Generation>(std::make_shared<Handle>(this, std::move(run)));
  }

  int64_t max_model_len() const override { return options_.max_model_len; }
  int64_t vocab_size() const override { return options_.vocab_size; }

  // Lets held generations go on.
  void Release() {
    MutexLock lock(&mu_);
    options_.hold_after = INT64_MAX;
    wake_.NotifyAll();
  }
  std::vector<engine::GenerateRequest> requests() const {
    MutexLock lock(&mu_);
    return requests_;
  }
  int64_t cancelled() const {
    MutexLock lock(&mu_);
    return cancelled_;
  }
  size_t running() const {
    MutexLock lock(&mu_);
    return running_.size();
  }

  // The token that follows a history: a printable byte.
  static TokenId NextToken(const std::vector<TokenId>& history, uint64_t seed) {
    uint64_t h = seed * 0x9E3779B97F4A7C15ull + 12345;
    for (const TokenId t : history) h = (h ^ t) * 0x100000001B3ull + 7;
    return static_cast<TokenId>('a' + (h >> 33) % 26);
  }
  static Sha256 NextHash(const Sha256& previous, TokenId token) {
    Sha256Hasher hasher;
    hasher.Update(AsBytes(previous.bytes));
    hasher.Update(std::to_string(token));
    return hasher.Finish();
  }

 private:
  struct Run {
    std::vector<TokenId> tokens;
    int64_t prompt_len = 0;
    Sha256 hash;
    engine::SamplingParams sampling;
    std::shared_ptr<engine::GenerationSink> sink;
    bool cancel = false;
    int64_t made() const { return static_cast<int64_t>(tokens.size()) - prompt_len; }
  };

  class Handle final : public engine::Generation {
   public:
    Handle(FakeGenerator* owner, std::shared_ptr<Run> run) : owner_(owner), run_(std::move(run)) {}
    void Cancel() override {
      MutexLock lock(&owner_->mu_);
      run_->cancel = true;
      owner_->wake_.NotifyAll();
    }

   private:
    FakeGenerator* const owner_;
    const std::shared_ptr<Run> run_;
  };

  // What the run does now; nothing if it is held.
  struct Action {
    std::optional<engine::TokenEvent> event;
    std::optional<engine::GenerateResult> result;
  };

  Action Decide(Run* run) BATON_REQUIRES(mu_) {
    Action action;
    engine::GenerateResult result;
    result.usage = options_.usage;
    result.usage.prompt_tokens = run->prompt_len;
    result.usage.completion_tokens = run->made();
    result.handoffs = options_.handoffs;
    if (run->cancel) {
      result.reason = engine::FinishReason::kCancelled;
      ++cancelled_;
      action.result = std::move(result);
      return action;
    }
    if (run->made() >= options_.hold_after) {
      if (!options_.finish_error.has_value()) return action;
      result.reason = engine::FinishReason::kError;
      result.error = *options_.finish_error;
      action.result = std::move(result);
      return action;
    }
    if (run->made() >= run->sampling.max_tokens) {
      result.reason = engine::FinishReason::kLength;
      action.result = std::move(result);
      return action;
    }
    const auto at = static_cast<size_t>(run->made());
    const TokenId next = options_.script.empty() ? NextToken(run->tokens, run->sampling.seed)
                                                 : options_.script[at % options_.script.size()];
    const auto& stops = run->sampling.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), next) != stops.end()) {
      result.reason = engine::FinishReason::kStop;
      result.stop_token = next;
      action.result = std::move(result);
      return action;
    }
    run->tokens.push_back(next);
    run->hash = NextHash(run->hash, next);
    engine::TokenEvent event;
    event.token = next;
    event.logprob = -0.5F;
    for (int32_t i = 0; i < run->sampling.logprobs; ++i) {
      event.top.emplace_back(next + static_cast<TokenId>(i), -0.5F - static_cast<float>(i));
    }
    event.logits_hash = run->hash;
    action.event = std::move(event);
    return action;
  }

  void Loop() {
    for (;;) {
      std::vector<std::pair<std::shared_ptr<Run>, Action>> actions;
      {
        MutexLock lock(&mu_);
        for (;;) {
          if (stop_) return;
          for (auto& run : running_) {
            Action action = Decide(run.get());
            if (action.event || action.result) actions.emplace_back(run, std::move(action));
          }
          std::erase_if(running_, [&](const auto& run) {
            return std::any_of(actions.begin(), actions.end(), [&](const auto& a) {
              return a.first == run && a.second.result.has_value();
            });
          });
          if (!actions.empty()) break;
          wake_.Wait(&mu_);
        }
      }
      for (auto& [run, action] : actions) {
        if (action.event) run->sink->OnTokens(std::span(&*action.event, 1));
        if (action.result) {
          run->sink->OnFinish(*action.result);
          run->sink.reset();
        }
      }
      if (options_.step.count() > 0) std::this_thread::sleep_for(options_.step);
    }
  }

  mutable Mutex mu_;
  CondVar wake_;
  Options options_;
  bool stop_ BATON_GUARDED_BY(mu_) = false;
  int64_t cancelled_ BATON_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<Run>> running_ BATON_GUARDED_BY(mu_);
  std::vector<engine::GenerateRequest> requests_ BATON_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_FAKE_GENERATOR_H_
