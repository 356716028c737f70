#include "support/deployment.h"

#include <atomic>

#include "base/rng.h"
#include "connector/connectors.h"
#include "gtest/gtest.h"
#include "model/test_types.h"

namespace baton::testing {
namespace {

std::string FreshEndpoint(const std::string& connector) {
  static std::atomic<int> next{0};
  const std::string name = "baton-test-" + RandomBytes<NodeId>().Hex().substr(0, 12) + "-" +
                           std::to_string(next.fetch_add(1));
  if (connector == "tcp" || connector == "ucx") return connector + ":127.0.0.1:0";
  if (connector == "shm") return "shm:@" + name;
  return "inproc:" + name;
}

}  // namespace

std::vector<const char*> ConnectorsAcrossHubs() {
  std::vector<const char*> names = {"shm", "tcp"};
  if (HaveUcx()) names.push_back("ucx");
  return names;
}

std::vector<const char*> Connectors() {
  std::vector<const char*> names = ConnectorsAcrossHubs();
  names.insert(names.begin(), "inproc");
  return names;
}

std::vector<const char*> EveryConnector() {
  std::vector<const char*> names = Connectors();
  names.insert(names.begin(), "");
  return names;
}

std::string SourcePath(const std::string& relative) {
  return std::string(BATON_SOURCE_DIR) + "/" + relative;
}

std::shared_ptr<const model::Model> LoadModel(const std::string& name) {
  const size_t at = name.find('@');
  const std::string dir = name.substr(0, at);
  model::LoadOptions options;
  if (at != std::string::npos) options.state_dtype = *kernel::ParseStateDType(name.substr(at + 1));
  const std::string path = dir[0] == '/'   ? dir
                           : dir == "demo" ? SourcePath("models/demo")
                                           : SourcePath("test/golden/" + dir);
  auto model = model::Model::Load(path, options);
  if (!model.ok()) ADD_FAILURE() << model.status();
  BATON_CHECK(model.ok());
  return std::shared_ptr<const model::Model>(*std::move(model));
}

std::vector<TokenId> RandomPrompt(uint64_t seed, size_t n, int64_t vocab) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

engine::GenerateRequest RandomRequest(const model::Model& model,
                                      uint64_t seed,
                                      size_t n,
                                      int64_t max_tokens) {
  engine::GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, model.vocab_size());
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.8;
  r.sampling.seed = seed;
  return r;
}

Answer AnswerOf(Collector& sink) {
  EXPECT_EQ(sink.Wait().reason, engine::FinishReason::kLength) << sink.Wait().error;
  return {sink.tokens(), sink.logits_hash()};
}

Answer ColdAnswer(std::shared_ptr<const model::Model> model,
                  const engine::GenerateRequest& request) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  return AnswerOf(*d.Start(request));
}

std::vector<std::string> EveryType(const std::vector<std::string>& more) {
  std::vector<std::string> names = model::GoldenSet("short");
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void Collector::OnTokens(std::span<const engine::TokenEvent> events) {
  MutexLock lock(&mu_);
  events_.insert(events_.end(), events.begin(), events.end());
  cv_.NotifyAll();
}

void Collector::OnFinish(const engine::GenerateResult& result) {
  MutexLock lock(&mu_);
  EXPECT_FALSE(result_.has_value()) << "OnFinish called twice";
  result_ = result;
  cv_.NotifyAll();
}

const engine::GenerateResult& Collector::Wait() {
  MutexLock lock(&mu_);
  while (!result_.has_value()) cv_.Wait(&mu_);
  return *result_;
}

void Collector::WaitForTokens(size_t n) {
  MutexLock lock(&mu_);
  while (events_.size() < n && !result_.has_value()) cv_.Wait(&mu_);
}

std::vector<engine::TokenEvent> Collector::events() {
  MutexLock lock(&mu_);
  return events_;
}

std::vector<TokenId> Collector::tokens() {
  MutexLock lock(&mu_);
  std::vector<TokenId> out;
  for (const auto& e : events_) out.push_back(e.token);
  return out;
}

Sha256 Collector::logits_hash() {
  MutexLock lock(&mu_);
  return events_.empty() ? Sha256() : events_.back().logits_hash;
}

bool Collector::finished() {
  MutexLock lock(&mu_);
  return result_.has_value();
}

Deployment::Deployment(std::shared_ptr<const model::Model> model, DeploymentOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  if (!options_.connector.empty()) RestartPrefill();
  auto decode = engine::Worker::Create(model_.get(), Options(false));
  if (!decode.ok()) ADD_FAILURE() << decode.status();
  BATON_CHECK(decode.ok());
  decode_ = *std::move(decode);
}

Deployment::~Deployment() = default;

engine::WorkerOptions Deployment::Options(bool prefill) const {
  engine::WorkerOptions o;
  o.engine = options_.engine;
  o.engine.threads = options_.threads;
  o.engine.token_budget = options_.token_budget;
  o.engine.serve_from_cache_only = !prefill;
  o.engine.hint_peers = {"*"};
  o.memory.slots = options_.slots;
  o.memory.blocks = options_.blocks;
  o.hub = const_cast<InprocHub*>(&hub_);
  if (!options_.connector.empty()) o.listen = {FreshEndpoint(options_.connector)};
  const auto& tweak = prefill ? options_.tweak_prefill : options_.tweak_decode;
  if (tweak) tweak(&o);
  return o;
}

void Deployment::RestartPrefill() {
  prefill_.reset();
  auto prefill = engine::Worker::Create(model_.get(), Options(true));
  if (!prefill.ok()) ADD_FAILURE() << prefill.status();
  BATON_CHECK(prefill.ok());
  prefill_ = *std::move(prefill);
}

std::shared_ptr<Collector> Deployment::Start(engine::GenerateRequest request,
                                             std::shared_ptr<engine::Generation>* handle) {
  if (prefill_ != nullptr && request.prefill_endpoint.empty())
    request.prefill_endpoint = prefill_->EndpointOf(options_.connector);
  auto sink = std::make_shared<Collector>();
  auto started = decode_->engine().Start(std::move(request), sink);
  EXPECT_TRUE(started.ok()) << started.status();
  if (started.ok() && handle != nullptr) *handle = *started;
  return sink;
}

std::vector<std::shared_ptr<Collector>> Deployment::StartTogether(
    const std::vector<engine::GenerateRequest>& requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  decode_->engine().RunOnEngineThread([&](engine::Core&) {
    for (const auto& request : requests) sinks.push_back(Start(request));
  });
  return sinks;
}

void Deployment::ExpectNothingLeaks() {
  for (engine::Worker* w : {prefill_.get(), decode_.get()}) {
    if (w == nullptr) continue;
    // A peer's release may still be on its way.
    PoolStats slots;
    uint64_t used = 1;
    for (int i = 0; i < 500 && used > 0; ++i) {
      w->engine().RunOnEngineThread([&](engine::Core& core) {
        if (core.Empty()) core.DropCheckpoints();
      });
      used = 0;
      const PoolSet pools = w->memory().pools();
      if (pools.slots != nullptr) used += pools.slots->Stats().used + pools.slots->Stats().leases;
      for (BlockPool* p : pools.blocks)
        used += p->Stats().used + p->Stats().leases + p->Stats().references;
      if (used > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(used, 0u) << "units, leases or references still held by the "
                        << (w == decode_.get() ? "decode" : "prefill") << " worker";
    const PoolSet pools = w->memory().pools();
    if (pools.slots != nullptr) {
      EXPECT_TRUE(pools.slots->CheckInvariants().ok());
    }
    for (BlockPool* p : pools.blocks) EXPECT_TRUE(p->CheckInvariants().ok());
  }
}

}  // namespace baton::testing
