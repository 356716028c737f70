#include "soak/clean.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "soak/counts.h"
#include "soak/models.h"
#include "soak/truth.h"

namespace baton::soak {
namespace {

constexpr size_t kAtOnce = 8;

// A route as it is asked for, and how the engine names what carried the bytes.
struct Route {
  std::string plan;
  std::string carried_by;
  uint64_t handoffs = 0;
};

class CleanRun {
 public:
  CleanRun(const std::string& name, uint64_t seed, Findings* findings)
      : name_(name),
        model_(LoadModel(name)),
        truth_(model_.get()),
        rng_(seed),
        findings_(findings) {
    prefill_ = NewWorker(true);
    decode_ = NewWorker(false);
    MakeRoutes();
  }

  void Run(uint64_t handoffs) {
    while (made_ < handoffs) Batch();
    for (engine::Worker* w : {decode_.get(), prefill_.get()}) {
      ExpectEmpty(w, name_ + (w == decode_.get() ? " decode" : " prefill"), false, findings_);
      for (size_t r = 0; r < kReasonCount; ++r) {
        const uint64_t refused =
            w->handoff_stats().rejects[r].load() + w->handoff_stats().refusals[r].load();
        if (refused != 0)
          findings_->Wrong(absl::StrCat(name_, ": ", refused, " times ",
                                        std::string(ReasonName(static_cast<Reason>(r)))));
      }
      for (const auto& [connector, counts] : w->handoff_stats().connectors.Snapshot())
        if (counts.failovers != 0)
          findings_->Wrong(
              absl::StrCat(name_, ": ", counts.failovers, " failovers of ", connector));
    }
    for (const Route& r : routes_)
      std::printf("%-24s %-20s %llu\n", name_.c_str(), r.carried_by.c_str(),
                  static_cast<unsigned long long>(r.handoffs));
    findings_->Count("early blocks", decode_->handoff_stats().early_blocks.load());
  }

 private:
  std::unique_ptr<engine::Worker> NewWorker(bool prefill) {
    engine::WorkerOptions o;
    o.hub = &hub_;
    o.engine.token_budget = 64;
    o.engine.serve_from_cache_only = !prefill;
    o.memory.slots = 64;
    o.memory.blocks = 1024;
    if (prefill) o.listen = FreshEndpoints(true);
    auto worker = engine::Worker::Create(model_.get(), std::move(o));
    BATON_CHECK(worker.ok());
    return *std::move(worker);
  }

  void MakeRoutes() {
    const std::vector<std::string> schemes = Schemes(true);
    for (const std::string& s : schemes) routes_.push_back({prefill_->EndpointOf(s), s});
    const bool mixes = model_->layout().has_state() && !model_->layout().groups().empty();
    if (!mixes) return;
    for (size_t i = 0; i < schemes.size(); ++i) {
      const std::string& kv = schemes[i];
      const std::string& state = schemes[(i + 1) % schemes.size()];
      routes_.push_back(
          {absl::StrCat("kv=", prefill_->EndpointOf(kv), ",state=", prefill_->EndpointOf(state)),
           std::min(kv, state) + "+" + std::max(kv, state)});
    }
  }

  // Every prompt is new, so that every one is handed over; one in eight is long enough for its
  // blocks to come while it is computed.
  void Batch() {
    struct Asked {
      engine::GenerateRequest request;
      std::shared_ptr<Answer> answer = std::make_shared<Answer>();
      Route* route = nullptr;
    };
    std::vector<Asked> asked(kAtOnce);
    for (Asked& a : asked) {
      engine::GenerateRequest& r = a.request;
      const size_t n = made_ % 8 == 7 ? 100 + rng_.Below(150) : 17 + rng_.Below(64);
      r.prompt = RandomTokens(&rng_, n, model_->vocab_size());
      r.sampling.max_tokens = 3;
      r.sampling.temperature = made_ % 2 == 0 ? 0 : 0.8;
      r.sampling.seed = rng_.Next();
      a.route = &routes_[made_++ % routes_.size()];
      r.prefill_endpoint = a.route->plan;
      const auto started = decode_->engine().Start(r, a.answer);
      if (!started.ok()) return findings_->Wrong(std::string(started.status().message()));
    }
    for (Asked& a : asked) Judge(a.request, a.answer.get(), a.route);
  }

  void Judge(const engine::GenerateRequest& request, Answer* answer, Route* route) {
    const engine::GenerateResult result = answer->Wait();
    const std::string what =
        absl::StrCat(name_, " over ", route->plan, ", ", request.prompt.size(), " tokens: ");
    if (result.reason != engine::FinishReason::kLength)
      return findings_->Wrong(absl::StrCat(what, result.error.message()));
    if (result.usage.rejects != 0 || result.handoffs.size() != 1 || !result.handoffs[0].verified)
      return findings_->Wrong(
          absl::StrCat(what, result.handoffs.size(), " hand-offs, ", result.usage.rejects,
                       " rejects: ", result.handoffs.empty() ? "" : result.handoffs[0].message));
    if (result.handoffs[0].connector != route->carried_by)
      findings_->Wrong(absl::StrCat(what, "carried by ", result.handoffs[0].connector));
    const Said said = truth_.Of(request);
    if (answer->tokens() != said.tokens || answer->logits_hash() != said.logits_hash)
      findings_->Wrong(what + "tokens differ from recomputation");
    ++route->handoffs;
    findings_->Count("clean hand-offs");
  }

  const std::string name_;
  const std::shared_ptr<const model::Model> model_;
  InprocHub hub_;
  Truth truth_;
  SplitMix64 rng_;
  Findings* const findings_;
  std::unique_ptr<engine::Worker> prefill_;
  std::unique_ptr<engine::Worker> decode_;
  std::vector<Route> routes_;
  uint64_t made_ = 0;
};

}  // namespace

void RunClean(uint64_t handoffs, uint64_t seed, Findings* findings) {
  const std::vector<std::string> models = RealModels();
  for (const std::string& name : models)
    CleanRun(name, ++seed, findings).Run((handoffs + models.size() - 1) / models.size());
}

}  // namespace baton::soak
