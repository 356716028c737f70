// Question: what does a checkpoint of real size cost to load, hold, run and hand over?
// Generates a sharded bf16 checkpoint (default: the shape of a published 36 + 4 layer hybrid of
// about 1 B parameters), loads it, and runs a prefill and a decode worker over shm and tcp. The
// tokens of both and of an all-in-one worker are compared.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "base/rng.h"
#include "engine/worker.h"
#include "model/generate.h"
#include "model/model.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

double RssGiB() {
  std::ifstream in("/proc/self/statm");
  long size = 0, resident = 0;
  in >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
}

template <class T>
T Or(StatusOr<T> v) {
  if (v.ok()) return *std::move(v);
  std::fprintf(stderr, "%s\n", std::string(v.status().message()).c_str());
  std::exit(1);
}

class Sink final : public engine::GenerationSink {
 public:
  void OnTokens(std::span<const engine::TokenEvent> events) override {
    MutexLock lock(&mu_);
    for (const auto& e : events) tokens.push_back(e.token);
    if (first_ == 0) first_ = Since(start_);
  }
  void OnFinish(const engine::GenerateResult& r) override {
    MutexLock lock(&mu_);
    result = r;
    total_ = Since(start_);
    done_ = true;
    cv_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!done_) cv_.Wait(&mu_);
  }
  double first() const { return first_; }
  double decode_per_token() const {
    return (total_ - first_) / static_cast<double>(tokens.size() - 1);
  }
  std::vector<TokenId> tokens;
  engine::GenerateResult result;

 private:
  const Clock::time_point start_ = Clock::now();
  Mutex mu_;
  CondVar cv_;
  bool done_ = false;
  double first_ = 0, total_ = 0;
};

std::unique_ptr<engine::Worker> MakeWorker(const model::Model& m, bool prefill, int threads) {
  engine::WorkerOptions o;
  o.engine.threads = threads;
  o.engine.serve_from_cache_only = !prefill;
  o.memory.slots = 8;
  o.memory.blocks = 256;
  o.listen = {"tcp:127.0.0.1:0", "shm:@baton-realsize-" + RandomBytes<NodeId>().Hex()};
  return Or(engine::Worker::Create(&m, std::move(o)));
}

int Main(int argc, char** argv) {
  const std::string preset = argc > 1 ? argv[1] : "granite-1b";
  const int64_t n = argc > 2 ? std::atol(argv[2]) : 257;
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(threads);
  const std::string dir =
      (std::filesystem::temp_directory_path() / ("baton-realsize-" + preset)).string();
  std::filesystem::create_directories(dir);
  if (!std::filesystem::exists(dir + "/config.json")) {
    model::GenerateOptions g;
    g.dtype = model::TensorDType::kBF16;
    g.shard_bytes_max = uint64_t{512} << 20;
    const auto t = Clock::now();
    const auto report =
        Or(model::GenerateCheckpoint(Or(model::PresetConfig(preset)), g, dir, &pool));
    std::printf("generated %.2f B parameters, %.2f GB bf16 in %zu files, %.1f s\n",
                static_cast<double>(report.parameters) / 1e9,
                static_cast<double>(report.bytes) / 1e9, report.files, Since(t));
  }
  const double before = RssGiB();
  auto t = Clock::now();
  model::LoadOptions load;
  load.pool = &pool;
  auto model = Or(model::Model::Load(dir, load));
  const model::Model& m = *model;
  std::printf(
      "load: %.1f s with every weight digested and repacked; weights %.2f GB, RSS %.2f GiB (%.2f "
      "before)\n",
      Since(t), static_cast<double>(m.weight_bytes()) / 1e9, RssGiB(), before);
  std::printf("layout: state %.1f MiB per sequence, KV %lu bytes per token\n",
              static_cast<double>(m.layout().slot_bytes()) / (1 << 20),
              m.layout().kv_bytes_per_token());

  engine::GenerateRequest r;
  r.prompt.resize(static_cast<size_t>(n));
  SplitMix64 rng(3);
  for (TokenId& x : r.prompt)
    x = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(m.vocab_size())));
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 17;
  std::vector<TokenId> truth;
  for (const std::string connector : {"", "shm", "tcp"}) {
    auto prefill = connector.empty() ? nullptr : MakeWorker(m, true, threads);
    auto decode = MakeWorker(m, false, threads);
    if (prefill) r.prefill_endpoint = prefill->EndpointOf(connector);
    auto sink = std::make_shared<Sink>();
    (void)Or(decode->engine().Start(r, sink));
    sink->Wait();
    if (truth.empty()) truth = sink->tokens;
    std::printf(
        "%-10s first token %.2f s for %ld prompt tokens (%.1f tokens/s), decode %.1f tokens/s",
        connector.empty() ? "all-in-one" : connector.c_str(), sink->first(), n,
        static_cast<double>(n) / sink->first(), 1 / sink->decode_per_token());
    for (const auto& h : sink->result.handoffs)
      std::printf("; hand-off of %.1f MB %s in %.1f ms",
                  static_cast<double>(h.kv_bytes + h.state_bytes) / 1e6,
                  h.verified ? "verified" : h.reason.c_str(), h.milliseconds);
    std::printf("\n");
    if (sink->tokens != truth || sink->result.usage.rejects != 0) {
      std::printf("FAILED: tokens differ or a hand-off was rejected\n");
      return 1;
    }
  }
  std::printf("RSS at the end %.2f GiB; the same tokens three times\n", RssGiB());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
