// Question: how long does the first token of a resumed session take when its state comes back from
// memory, from the host tier or from disk, over computing the history again? One generated
// checkpoint of granite-100m's shape, a session of 4,096 tokens, then a second turn of 48 more;
// medians of interleaved rounds (5, or the first argument) with (min..max), and as a ratio.
// Checked: every way gives the same logits and really went that way.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
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
constexpr int64_t kSession = 4096;

struct Answer {
  std::shared_ptr<Sink> sink;
  double first_token_ms = 0;
};

Answer Ask(engine::Worker& w, const std::vector<TokenId>& prompt) {
  engine::GenerateRequest r;
  r.prompt = prompt;
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 16;
  Answer a;
  a.sink = std::make_shared<Sink>();
  const Instant start = kClock.Now();
  (void)Or(w.engine().Start(std::move(r), a.sink));
  a.sink->Wait();
  a.first_token_ms = static_cast<double>((a.sink->at.front() - start).count()) * 1e-6;
  return a;
}

std::unique_ptr<engine::Worker> MakeWorker(const model::Model& m,
                                           bool caching,
                                           const std::string& directory) {
  engine::WorkerOptions o;
  o.engine.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  o.engine.prefix_caching = caching;
  o.memory.slots = 16;
  o.memory.blocks = 1024;
  if (caching) {
    o.host_cache_bytes = uint64_t{512} << 20;
    o.disk.emplace();
    o.disk->directory = directory;
  }
  return Or(engine::Worker::Create(&m, std::move(o)));
}

void Print(const char* name, std::vector<double> v, double over) {
  std::sort(v.begin(), v.end());
  const double median = v[v.size() / 2];
  std::printf("%-28s %8.1f ms (%.1f..%.1f)   %.4f\n", name, median, v.front(), v.back(),
              median / over);
}

int Main(int rounds) {
  const std::filesystem::path base =
      std::filesystem::temp_directory_path() / ("baton-resume-" + RandomBytes<NodeId>().Hex());
  std::filesystem::create_directories(base / "model");
  std::filesystem::create_directories(base / "tier");
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  (void)Or(model::GenerateCheckpoint(Or(model::PresetConfig("granite-100m")), {},
                                     (base / "model").string(), &pool));
  model::LoadOptions load;
  load.pool = &pool;
  load.max_model_len = 8448;
  const std::unique_ptr<model::Model> m = Or(model::Model::Load((base / "model").string(), load));
  SplitMix64 rng(1);
  const auto draw = [&](std::vector<TokenId>* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      out->push_back(static_cast<TokenId>(rng.Below(static_cast<uint64_t>(m->vocab_size()))));
  };
  std::vector<TokenId> prompt;
  draw(&prompt, kSession - 16);

  auto cold = MakeWorker(*m, false, "");
  auto warm = MakeWorker(*m, true, (base / "tier").string());
  const Answer one = Ask(*warm, prompt);
  prompt.insert(prompt.end(), one.sink->tokens.begin(), one.sink->tokens.end());
  std::vector<TokenId> turn = prompt;
  draw(&turn, 48);

  engine::Tiering& tiers = warm->engine().tiers();
  const auto leave_memory = [&](bool host_too) {
    tiers.Flush();
    warm->engine().RunOnEngineThread([](engine::Core& core) { core.DropCheckpoints(); });
    if (host_too) tiers.tier_for_testing(0).EvictTo(0);
  };
  std::map<std::string, std::vector<double>> ms;
  double bytes = 0;
  bool ok = true;
  const auto note = [&](const std::string& name, const std::string& from, const Answer& a,
                        const Sha256& truth) {
    ms[name].push_back(a.first_token_ms);
    const auto& handoffs = a.sink->result.handoffs;
    const std::string came = handoffs.empty() ? "" : handoffs[0].connector;
    if (!handoffs.empty())
      bytes = static_cast<double>(handoffs[0].kv_bytes + handoffs[0].state_bytes);
    const int64_t cached = a.sink->result.usage.cached_tokens;
    if (a.sink->hash == truth && came == from && (name == "recompute") == (cached == 0)) return;
    std::printf("FAILED: %s came from '%s' with %ld cached tokens\n", name.c_str(), came.c_str(),
                static_cast<long>(cached));
    ok = false;
  };
  for (int round = 0; round < rounds && ok; ++round) {
    // The turn differs each time: what it leaves behind must not help the next round.
    turn.resize(prompt.size());
    draw(&turn, 48);
    const Answer recomputed = Ask(*cold, turn);
    note("recompute", "", recomputed, recomputed.sink->hash);
    leave_memory(true);
    note("disk", "disk", Ask(*warm, turn), recomputed.sink->hash);
    turn.resize(prompt.size());
    draw(&turn, 48);
    const Answer again = Ask(*cold, turn);
    note("recompute", "", again, again.sink->hash);
    leave_memory(false);
    note("host", "host", Ask(*warm, turn), again.sink->hash);
    turn.resize(prompt.size());
    draw(&turn, 48);
    note("memory", "", Ask(*warm, turn), Ask(*cold, turn).sink->hash);
  }
  if (ok) {
    std::sort(ms["recompute"].begin(), ms["recompute"].end());
    const double over = ms["recompute"][ms["recompute"].size() / 2];
    std::printf(
        "session of %ld tokens, turn of 48; bundle %.1f MB; first token, medians of %d rounds "
        "(min..max), over recompute\n",
        static_cast<long>(kSession), bytes / 1e6, rounds);
    Print("recompute", ms["recompute"], over);
    Print("from memory (checkpoint)", ms["memory"], over);
    Print("from the host tier", ms["host"], over);
    Print("from the disk tier", ms["disk"], over);
  }
  warm->Stop();
  cold->Stop();
  std::filesystem::remove_all(base);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc > 1 ? std::atoi(argv[1]) : 5); }
