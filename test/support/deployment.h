// Several ways to run the same request inside one test process, so that their results can be
// compared bit for bit: all-in-one, or a prefill and a decode worker over a chosen connector.
#ifndef BATON_TEST_SUPPORT_DEPLOYMENT_H_
#define BATON_TEST_SUPPORT_DEPLOYMENT_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/worker.h"

namespace baton::testing {

// Loads a checkpoint of test/golden (e.g. "short/bamba"), the embedded model ("demo"), or any
// absolute directory; "@bf16" behind it gives the dtype of its recurrent state. CHECK-fails.
std::shared_ptr<const model::Model> LoadModel(const std::string& name);
// Directory of the source tree.
std::string SourcePath(const std::string& relative);

// A sink that keeps everything and can be waited for.
class Collector final : public engine::GenerationSink {
 public:
  void OnTokens(std::span<const engine::TokenEvent> events) override;
  void OnFinish(const engine::GenerateResult& result) override;
  // Blocks until OnFinish.
  const engine::GenerateResult& Wait();
  // Blocks until at least n tokens have arrived or the request has ended.
  void WaitForTokens(size_t n);
  std::vector<TokenId> tokens();
  std::vector<engine::TokenEvent> events();
  Sha256 logits_hash();
  bool finished();

 private:
  Mutex mu_;
  CondVar cv_;
  std::vector<engine::TokenEvent> events_ BATON_GUARDED_BY(mu_);
  std::optional<engine::GenerateResult> result_ BATON_GUARDED_BY(mu_);
};

// What tests run over: ucx where this build has it.
std::vector<const char*> Connectors();
// Those that reach another process: without inproc.
std::vector<const char*> ConnectorsAcrossHubs();
// "" (all-in-one) and Connectors().
std::vector<const char*> EveryConnector();

struct DeploymentOptions {
  std::string connector;  // "" = all-in-one; else "inproc", "shm", "tcp", "ucx"
  int threads = 1;
  uint32_t slots = 64;
  uint32_t blocks = 1024;
  int64_t token_budget = 64;
  engine::EngineOptions engine;  // threads and token_budget are overwritten by the above
  // Hooks for hostile parts, applied to one side.
  std::function<void(engine::WorkerOptions*)> tweak_prefill;
  std::function<void(engine::WorkerOptions*)> tweak_decode;
};

class Deployment {
 public:
  Deployment(std::shared_ptr<const model::Model> model, DeploymentOptions options);
  ~Deployment();

  // Starts the request on the decoding worker; with a connector it pulls from the prefill worker.
  std::shared_ptr<Collector> Start(engine::GenerateRequest request,
                                   std::shared_ptr<engine::Generation>* handle = nullptr);
  // All of them before the first is admitted, so that they meet in memory on any machine.
  std::vector<std::shared_ptr<Collector>> StartTogether(
      const std::vector<engine::GenerateRequest>& requests);
  engine::Worker& decode() { return *decode_; }
  engine::Worker& prefill() { return *prefill_; }
  bool disaggregated() const { return prefill_ != nullptr; }
  const model::Model& model() const { return *model_; }
  // Stops and starts one side again: new epoch, empty memory.
  void RestartPrefill();

  // After all requests ended: drops checkpoints and fails the test if any unit, lease or reference
  // is still held on either side.
  void ExpectNothingLeaks();

 private:
  engine::WorkerOptions Options(bool prefill) const;
  std::shared_ptr<const model::Model> model_;
  DeploymentOptions options_;
  InprocHub hub_;
  std::unique_ptr<engine::Worker> prefill_;
  std::unique_ptr<engine::Worker> decode_;
};

// `n` token ids drawn from `seed`, all below `vocab`.
std::vector<TokenId> RandomPrompt(uint64_t seed, size_t n, int64_t vocab);

// A sampled request of `n` random tokens for `max_tokens` more.
engine::GenerateRequest RandomRequest(const model::Model& model,
                                      uint64_t seed,
                                      size_t n,
                                      int64_t max_tokens);

// What was answered, and a hash over the logits of every sampled token.
struct Answer {
  std::vector<TokenId> tokens;
  Sha256 logits;
  friend bool operator==(const Answer&, const Answer&) = default;
};
Answer AnswerOf(Collector& sink);
// The reference for every other way: computed from token 0, alone, in memory with room to spare.
Answer ColdAnswer(std::shared_ptr<const model::Model> model,
                  const engine::GenerateRequest& request);

// The recorded short set of every type, and more names for LoadModel behind them; for ValuesIn.
std::vector<std::string> EveryType(const std::vector<std::string>& more = {});

}  // namespace baton::testing

#endif  // BATON_TEST_SUPPORT_DEPLOYMENT_H_
