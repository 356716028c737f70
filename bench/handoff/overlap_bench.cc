// Question: how long after the last prompt token is computed does the first output token come, and
// does that grow with the prompt? A prefill and a decode worker around one generated checkpoint
// (4 layers of granite-100m's shape, one of them attention), over shm and tcp; with blocks offered
// while later tokens compute, and with everything offered at the end. Three spans are printed,
// medians of interleaved rounds (7, or the first argument) with (min..max):
//   hand-off   end of the prefill's last step -> start of the decode worker's first step
//   step       the decode worker's step over the last 1..16 prompt tokens, whose attention reads
//              the whole prompt
//   to token   end of the prefill's last step -> first output token: both, and the sampler
// Checked: the tokens are those of an all-in-one worker, no hand-off is rejected, and blocks were
// offered early exactly where they should be.
#include <algorithm>
#include <atomic>
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

// The model, and when it was last at work.
class TimedModel final : public model::Model {
 public:
  explicit TimedModel(const model::Model* inner) : inner_(inner) {}
  const model::ModelConfig& config() const override { return inner_->config(); }
  const Layout& layout() const override { return inner_->layout(); }
  const Sha256& fingerprint() const override { return inner_->fingerprint(); }
  int64_t vocab_size() const override { return inner_->vocab_size(); }
  int64_t max_model_len() const override { return inner_->max_model_len(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  Status Forward(std::span<const model::BatchItem> batch,
                 model::Workspace* workspace,
                 ThreadPool* pool) const override {
    int64_t none = 0;
    first_start.compare_exchange_strong(none, kClock.Now().count());
    const Status status = inner_->Forward(batch, workspace, pool);
    last_end = kClock.Now().count();
    none = 0;
    first_end.compare_exchange_strong(none, last_end.load());
    return status;
  }
  mutable std::atomic<int64_t> first_start{0};
  mutable std::atomic<int64_t> first_end{0};
  mutable std::atomic<int64_t> last_end{0};

 private:
  const model::Model* inner_;
};

struct Spans {
  std::vector<double> handoff_ms, step_ms, token_ms;
};

void Print(const char* name, std::vector<double> v) {
  std::sort(v.begin(), v.end());
  std::printf("  %s %7.2f ms (%.2f..%.2f)", name, v[v.size() / 2], v.front(), v.back());
}

std::unique_ptr<engine::Worker> MakeWorker(const model::Model& m, bool prefill, bool early) {
  engine::WorkerOptions o;
  o.engine.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  o.engine.serve_from_cache_only = !prefill;
  o.engine.prefix_caching = false;  // every round computes and hands over everything
  o.memory.slots = 4;
  o.memory.blocks = 1024;
  o.early_blocks = early;
  o.listen = {"tcp:127.0.0.1:0", "shm:@baton-overlap-" + RandomBytes<NodeId>().Hex()};
  return Or(engine::Worker::Create(&m, std::move(o)));
}

engine::GenerateRequest Request(int64_t n, int64_t vocab) {
  engine::GenerateRequest r;
  r.prompt.resize(static_cast<size_t>(n));
  SplitMix64 rng(static_cast<uint64_t>(n));
  for (TokenId& x : r.prompt) x = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab)));
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 2;
  return r;
}

std::vector<TokenId> AllInOne(const model::Model& m, int64_t n) {
  auto worker = MakeWorker(m, true, false);
  auto sink = std::make_shared<Sink>();
  (void)Or(worker->engine().Start(Request(n, m.vocab_size()), sink));
  sink->Wait();
  return sink->tokens;
}

void Round(const model::Model& m,
           const std::string& connector,
           bool early,
           int64_t n,
           const std::vector<TokenId>& truth,
           Spans* spans) {
  const TimedModel at_prefill(&m), at_decode(&m);
  auto prefill = MakeWorker(at_prefill, true, early);
  auto decode = MakeWorker(at_decode, false, early);
  engine::GenerateRequest r = Request(n, m.vocab_size());
  r.prefill_endpoint = prefill->EndpointOf(connector);
  auto sink = std::make_shared<Sink>();
  (void)Or(decode->engine().Start(std::move(r), sink));
  sink->Wait();
  if (sink->tokens != truth || sink->result.usage.rejects != 0) {
    std::printf("FAILED: tokens differ or a hand-off was rejected\n");
    std::exit(1);
  }
  const uint64_t offered = decode->handoff_stats().early_blocks.load();
  if (early ? offered * 16 + 512 < static_cast<uint64_t>(n) : offered != 0) {
    std::printf("FAILED: %lu blocks came early\n", offered);
    std::exit(1);
  }
  if (spans == nullptr) return;
  const auto ms = [&](int64_t t) {
    return static_cast<double>(t - at_prefill.last_end.load()) * 1e-6;
  };
  spans->handoff_ms.push_back(ms(at_decode.first_start.load()));
  spans->step_ms.push_back(ms(at_decode.first_end.load()) - ms(at_decode.first_start.load()));
  spans->token_ms.push_back(ms(sink->at.front().count()));
}

int Main(int rounds) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(threads);
  Json config = Or(model::PresetConfig("granite-100m"));
  config["num_hidden_layers"] = 4;
  config["layer_types"] = {"mamba", "mamba", "attention", "mamba"};
  const std::string dir =
      (std::filesystem::temp_directory_path() / ("baton-overlap-" + RandomBytes<NodeId>().Hex()))
          .string();
  std::filesystem::create_directories(dir);
  (void)Or(model::GenerateCheckpoint(config, {}, dir, &pool));
  model::LoadOptions load;
  load.pool = &pool;
  load.max_model_len = 8448;
  auto loaded = model::Model::Load(dir, load);
  std::filesystem::remove_all(dir);
  const std::unique_ptr<model::Model> m = Or(std::move(loaded));
  std::printf(
      "state %.2f MiB, KV %lu bytes per token; %d threads; medians of %d rounds, (min..max)\n",
      static_cast<double>(m->layout().slot_bytes()) / (1 << 20),
      static_cast<unsigned long>(m->layout().kv_bytes_per_token()), threads, rounds);
  // Decode recomputes what lies behind the last multiple of 16: 16 tokens, or 1.
  const int64_t lengths[] = {512, 513, 2048, 2049, 8192, 8193};
  std::map<int64_t, std::vector<TokenId>> truth;
  for (const int64_t n : lengths) truth[n] = AllInOne(*m, n);
  for (const std::string connector : {"shm", "tcp"}) {
    std::map<std::pair<bool, int64_t>, Spans> spans;
    Round(*m, connector, true, 512, truth[512], nullptr);  // warm-up
    for (int round = 0; round < rounds; ++round)
      for (const int64_t n : lengths)
        for (const bool early : {true, false})
          Round(*m, connector, early, n, truth[n], &spans[{early, n}]);
    for (const auto& [key, s] : spans) {
      std::printf("%s %-9s %5ld tokens |", connector.c_str(), key.first ? "early" : "at end",
                  static_cast<long>(key.second));
      Print("hand-off", s.handoff_ms);
      Print("step", s.step_ms);
      Print("to token", s.token_ms);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc > 1 ? std::atoi(argv[1]) : 7); }
