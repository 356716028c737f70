// Question: does a decode notice that checkpoints go down to the tiers and come up again meanwhile?
// One thread decodes; another puts a bundle into the host and the disk tier and restores it from
// there, again and again, at a stated number of bytes a second. Phases A (nothing), A, B (traffic)
// in turn; time between two tokens, median and 99th percentile over all rounds (5, or the first
// argument; MB/s each way: the second, 100), B over A and A over A. A generated checkpoint of
// granite-100m's shape; the bundle is a session of 2,048 tokens. Run it on a machine with two idle
// cores. Checked: every phase gives the same logits, and the bytes really moved.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/worker.h"
#include "model/generate.h"
#include "model/model.h"
#include "worker_bench.h"

namespace baton {
namespace {

using bench::Or;
using bench::Sink;

const MonotonicClock kClock;

std::shared_ptr<Sink> Ask(engine::Worker& w, std::vector<TokenId> prompt, int64_t tokens) {
  engine::GenerateRequest r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = tokens;
  auto sink = std::make_shared<Sink>();
  (void)Or(w.engine().Start(std::move(r), sink));
  sink->Wait();
  return sink;
}

// The bundle down into every tier and up from each, paced.
class Traffic {
 public:
  Traffic(engine::Worker* w,
          std::shared_ptr<const Checkpoint> checkpoint,
          PrefixChain chain,
          std::vector<TokenId> tokens)
      : w_(w),
        checkpoint_(std::move(checkpoint)),
        chain_(std::move(chain)),
        tokens_(std::move(tokens)) {}

  void Run(double bytes_per_second, const std::atomic<bool>* stop) {
    engine::Tiering& tiers = w_->engine().tiers();
    const ContentIdentity identity = checkpoint_->seal().identity;
    const Instant start = kClock.Now();
    uint64_t moved = 0;
    while (!*stop) {
      for (size_t i = 0; i < tiers.count(); ++i) tiers.tier_for_testing(i).Remove(identity);
      tiers.Demote(checkpoint_, chain_);
      tiers.Flush();
      for (size_t i = 0; i < tiers.count() && !*stop; ++i) moved += Restore(i);
      const double due = static_cast<double>(moved) / bytes_per_second;
      while (!*stop && static_cast<double>((kClock.Now() - start).count()) * 1e-9 < due)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    bytes += moved;
    seconds += static_cast<double>((kClock.Now() - start).count()) * 1e-9;
  }
  uint64_t bytes = 0;  // each way
  double seconds = 0;

 private:
  uint64_t Restore(size_t tier) {
    const PoolSet pools = w_->memory().pools();
    PullRequest request;
    request.ask.attempt = Attempt(++attempt_);
    request.ask.expected = checkpoint_->seal().identity;
    request.ask.tokens = tokens_;
    request.slot = Or(pools.slots->Reserve({}));
    for (size_t g = 0; g < pools.blocks.size(); ++g) {
      request.blocks.emplace_back();
      for (size_t b = 0; b < checkpoint_->blocks()[g].size(); ++b)
        request.blocks[g].push_back(Or(pools.blocks[g]->Reserve({})));
    }
    PullResult r = w_->engine().tiers().Restore(tier, request, CancelToken());
    Or(r.status);
    Or(pools.slots->Free(*r.slot));
    for (size_t g = 0; g < pools.blocks.size(); ++g)
      for (const BlockHandle block : r.blocks[g]) Or(pools.blocks[g]->Free(block));
    return r.report.landed;
  }

  engine::Worker* w_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  PrefixChain chain_;
  std::vector<TokenId> tokens_;
  uint64_t attempt_ = 1 << 20;
};

struct Times {
  std::vector<double> ms;
  void Add(const Sink& sink) {
    for (size_t i = 1; i < sink.at.size(); ++i)
      ms.push_back(static_cast<double>((sink.at[i] - sink.at[i - 1]).count()) * 1e-6);
  }
  double At(double share) {
    std::sort(ms.begin(), ms.end());
    return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))];
  }
};

int Main(int rounds, double mb_per_second) {
  const std::filesystem::path base =
      std::filesystem::temp_directory_path() / ("baton-background-" + RandomBytes<NodeId>().Hex());
  std::filesystem::create_directories(base / "model");
  std::filesystem::create_directories(base / "tier");
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  (void)Or(model::GenerateCheckpoint(Or(model::PresetConfig("granite-100m")), {},
                                     (base / "model").string(), &pool));
  model::LoadOptions load;
  load.pool = &pool;
  const std::unique_ptr<model::Model> m = Or(model::Model::Load((base / "model").string(), load));
  engine::WorkerOptions o;
  o.engine.threads = 1;
  o.memory.slots = 16;
  o.memory.blocks = 1024;
  o.host_cache_bytes = uint64_t{512} << 20;
  o.disk.emplace();
  o.disk->directory = (base / "tier").string();
  auto worker = Or(engine::Worker::Create(m.get(), std::move(o)));

  SplitMix64 rng(1);
  std::vector<TokenId> session(2049), prompt(64);
  for (auto* tokens : {&session, &prompt})
    for (TokenId& t : *tokens)
      t = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(m->vocab_size())));
  Ask(*worker, session, 1);
  session.resize(2048);
  const PrefixChain chain(ScopeOf(""), session);
  std::shared_ptr<const Checkpoint> checkpoint;
  worker->engine().RunOnEngineThread(
      [&](engine::Core& core) { checkpoint = core.FindCheckpoint(core.BaseOf("").At(chain)); });
  if (checkpoint == nullptr) return std::printf("FAILED: no checkpoint\n"), 1;
  worker->engine().tiers().Flush();
  Traffic traffic(worker.get(), checkpoint, chain, session);

  Times a1, a2, b;
  const Sha256 truth = Ask(*worker, prompt, 128)->hash;
  bool same = true;
  const auto phase = [&](Times* times) {
    const auto sink = Ask(*worker, prompt, 128);
    same &= sink->hash == truth;
    times->Add(*sink);
  };
  for (int round = 0; round < rounds; ++round) {
    phase(&a1);
    phase(&a2);
    std::atomic<bool> stop{false};
    std::thread mover([&] { traffic.Run(mb_per_second * 1e6, &stop); });
    phase(&b);
    stop = true;
    mover.join();
  }
  const double rate = static_cast<double>(traffic.bytes) / 1e6 / traffic.seconds;
  std::printf("%d rounds of 3 x 127 tokens; traffic %.0f MB/s down and as much up\n", rounds, rate);
  std::printf(
      "A  median %.2f ms, p99 %.2f\nA  median %.2f ms, p99 %.2f\nB  median %.2f ms, p99 %.2f\n",
      a1.At(0.5), a1.At(0.99), a2.At(0.5), a2.At(0.99), b.At(0.5), b.At(0.99));
  std::printf(
      "A/A median %.3f p99 %.3f; B over the first A: median %.3f, p99 %.3f; B over the "
      "larger A p99 %.3f\n",
      a2.At(0.5) / a1.At(0.5), a2.At(0.99) / a1.At(0.99), b.At(0.5) / a1.At(0.5),
      b.At(0.99) / a1.At(0.99), b.At(0.99) / std::max(a1.At(0.99), a2.At(0.99)));
  checkpoint.reset();
  const bool ok = same && traffic.bytes > 0;
  if (!ok) std::printf("FAILED: logits differ or nothing moved\n");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atof(argv[2]) : 100);
}
