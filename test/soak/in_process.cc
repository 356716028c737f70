#include "soak/in_process.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "connector/connectors.h"
#include "soak/conversation.h"
#include "soak/counts.h"
#include "soak/models.h"
#include "soak/truth.h"
#include "support/fake_model.h"

namespace baton::soak {
namespace {

using engine::FinishReason;
using std::chrono::milliseconds;

// A request that has not ended by then never will.
constexpr Duration kHung = std::chrono::seconds(180);

class Round {
 public:
  Round(const RoundOptions& options, Findings* findings)
      : options_(options),
        model_(options.model == "fake" ? std::make_shared<testing::FakeModel>()
                                       : LoadModel(options.model)),
        findings_(findings),
        truth_(model_.get()),
        fleet_(model_.get(), options.fleet, findings) {}

  void Run() {
    std::vector<std::thread> users;
    for (size_t u = 0; u < options_.users; ++u) users.emplace_back([this, u] { Use(u); });
    Disturb();
    over_ = true;
    for (std::thread& t : users) t.join();
    fleet_.Retire();
    findings_->Count("answers recomputed", truth_.computed());
  }

 private:
  // Restarts workers, one after the other, while users use them.
  void Disturb() {
    SplitMix64 rng(options_.fleet.seed + 17);
    const auto until = std::chrono::steady_clock::now() +
                       milliseconds(static_cast<int64_t>(1e3 * options_.seconds));
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(50 + rng.Below(700)));
      if (options_.restarts)
        fleet_.Restart(rng.Below(2) == 0 ? Role::kPrefill : Role::kDecode, &rng);
    }
  }

  void Use(uint64_t u) {
    User user(options_.fleet.seed * 1000 + u, {.vocab = model_->vocab_size()});
    while (!over_) {
      // Arrivals: exponential, 10 ms on the average.
      const double wait_ms = -10 * std::log(1 - user.rng()->Uniform());
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(1e3 * wait_ms)));
      const engine::GenerateRequest request = user.Next();
      const bool cancel = options_.cancels && user.rng()->Below(6) == 0;
      const Said said = Ask(request, cancel, user.rng());
      if (!said.tokens.empty()) user.Heard(request, said.tokens);
    }
  }

  std::string RouteTo(engine::Worker* prefill, SplitMix64* rng) {
    const std::vector<std::string> schemes = Schemes(options_.fleet.ucx);
    const auto any = [&] { return prefill->EndpointOf(schemes[rng->Below(schemes.size())]); };
    const uint64_t dice = rng->Below(10);
    if (dice == 0) return "";  // computed where it is decoded
    if (dice < 5) return any();
    const std::string kv = any(), state = any();
    return rng->Below(2) == 0 ? absl::StrCat("kv=", kv, ",state=", state)
                              : absl::StrCat("state=", state, ",kv=", kv);
  }

  // The whole answer, from as many workers as it takes; judged. Empty if it was cancelled.
  Said Ask(const engine::GenerateRequest& request, bool cancel, SplitMix64* rng) {
    Said said;
    for (;;) {
      engine::GenerateRequest r = request;
      r.prompt_len = static_cast<int64_t>(request.prompt.size());
      r.prompt.insert(r.prompt.end(), said.tokens.begin(), said.tokens.end());
      if (!said.tokens.empty()) r.logits_hash = said.logits_hash;
      const auto decode = fleet_.Any(Role::kDecode, rng);
      r.prefill_endpoint = RouteTo(fleet_.Any(Role::kPrefill, rng).get(), rng);
      const auto answer = std::make_shared<Answer>();
      const auto started = decode->engine().Start(r, answer);
      if (!started.ok()) {
        if (started.status().code() != absl::StatusCode::kUnavailable) {
          findings_->Wrong(absl::StrCat("not started: ", started.status().message()));
          return {};
        }
        std::this_thread::sleep_for(milliseconds(1));  // it is being restarted
        continue;
      }
      if (cancel) {
        if (rng->Below(2) == 0) answer->WaitFor(1 + rng->Below(10), std::chrono::seconds(1));
        std::this_thread::sleep_for(std::chrono::microseconds(rng->Below(20000)));
        (*started)->Cancel();
      }
      if (!answer->WaitFor(SIZE_MAX, kHung)) Hung(r);
      const engine::GenerateResult result = answer->Wait();
      const std::vector<TokenId> more = answer->tokens();
      said.tokens.insert(said.tokens.end(), more.begin(), more.end());
      if (!more.empty()) said.logits_hash = answer->logits_hash();
      findings_->Count("rejects", static_cast<uint64_t>(result.usage.rejects));
      if (result.reason == FinishReason::kCancelled && !cancel) {
        findings_->Count("requests continued elsewhere");
        if (static_cast<int64_t>(said.tokens.size()) < request.sampling.max_tokens) continue;
      }
      Judge(request, r, said, result, cancel);
      return result.reason == FinishReason::kLength ? said : Said();
    }
  }

  void Judge(const engine::GenerateRequest& request,
             const engine::GenerateRequest& last,
             const Said& said,
             const engine::GenerateResult& result,
             bool cancelled) {
    const std::string what =
        absl::StrCat(options_.model, ", ", request.prompt.size(), " tokens and ",
                     said.tokens.size(), " said, last by ", last.prefill_endpoint, ": ");
    if (result.reason == FinishReason::kError)
      return findings_->Wrong(absl::StrCat(what, result.error.message()));
    if (said.tokens.empty()) return findings_->Count("requests cancelled before their first token");
    const Said truth = truth_.Of(request);
    const bool whole = said.tokens.size() == truth.tokens.size();
    const bool same = said.tokens.size() <= truth.tokens.size() &&
                      std::equal(said.tokens.begin(), said.tokens.end(), truth.tokens.begin());
    if (!same || (whole && said.logits_hash != truth.logits_hash)) {
      findings_->Count("wrong answers");
      return findings_->Wrong(what + "differs from recomputation");
    }
    if (!whole && !cancelled) return findings_->Wrong(what + "ended early");
    findings_->Count(whole ? "answers compared" : "answers cancelled in mid-stream, compared");
    findings_->Count("tokens compared", said.tokens.size());
  }

  [[noreturn]] void Hung(const engine::GenerateRequest& request) {
    findings_->Wrong(absl::StrCat(options_.model, ": a request of ", request.prompt.size(),
                                  " tokens by ", request.prefill_endpoint,
                                  " has not ended for minutes\n", fleet_.Text()));
    std::_Exit(3);
  }

  const RoundOptions options_;
  const std::shared_ptr<const model::Model> model_;
  Findings* const findings_;
  Truth truth_;
  Fleet fleet_;
  std::atomic<bool> over_{false};
};

}  // namespace

RoundOptions RoundOf(uint64_t n, uint64_t seed) {
  SplitMix64 rng(seed * 7919 + n);
  RoundOptions o;
  const std::string models[] = {"fake",
                                "models/demo",
                                "test/golden/short/granitemoehybrid",
                                "fake",
                                "test/golden/short/bamba",
                                "models/demo",
                                "test/golden/short/jamba",
                                "test/golden/short/llama",
                                "test/golden/short/qwen3_5",
                                "test/golden/short/recurrent_gemma",
                                "test/golden/short/mamba",
                                "fake",
                                "test/golden/short/minimax",
                                "test/golden/short/falcon_h1",
                                "test/golden/short/lfm2",
                                "models/demo"};
  o.model = models[n % std::size(models)];
  o.users = 6 + rng.Below(6);
  o.cancels = rng.Below(4) != 0;
  o.restarts = n % 3 != 1;
  o.fleet.workers = 1 + rng.Below(2);
  o.fleet.slots = 6 + static_cast<uint32_t>(rng.Below(8));
  o.fleet.blocks = 30 + static_cast<uint32_t>(rng.Below(50));
  o.fleet.prefill_blocks = 24 + static_cast<uint32_t>(rng.Below(50));
  o.fleet.fixed = rng.Below(5) == 0;
  o.fleet.compact_each_step = rng.Below(2) == 0;
  o.fleet.early_blocks = rng.Below(6) != 0;
  o.fleet.token_budget = 16 << rng.Below(4);
  if (n % 4 != 3) o.fleet.hostility = {.die = 0.06, .haunt = 0.04, .flip = 0.02, .stall = 0.05};
  // Few: a process can take part in 64 greetings that ucx cannot undo, then it refuses ucx.
  o.fleet.ucx = n % 8 == 3 && HaveUcx();
  if (o.fleet.ucx) o.restarts = false;
  o.fleet.seed = seed * 100003 + n;
  return o;
}

void RunRound(const RoundOptions& options, Findings* findings) {
  const ProcessCounts before = CountsOfProcess(getpid());
  Round(options, findings).Run();
  findings->Count("rounds in this process");
  const ProcessCounts after = CountsOfProcess(getpid());
  // ucx keeps what a peer left behind in the middle of a greeting, bounded, until the process ends.
  if (options.fleet.ucx) return findings->Count("rounds with ucx");
  if (after != before)
    findings->Wrong(absl::StrCat(options.model, ": ", before.Text(), " before the round, ",
                                 after.Text(), " after it"));
}

}  // namespace baton::soak
