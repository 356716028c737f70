// Question: what share of the machine does the engine reach on a ~100 M-parameter hybrid?
//   decode x1     weight bytes per token against plain read bandwidth
//   decode x16    tokens/s against x1
//   prefill 512   floating-point operations against measured FMA peak
//   stall         rows in the longest step while a 512-token prefill is admitted beside 7 decoders
// One run, interleaved rounds, medians, ratios. Every result is checked: x16 gives each sequence
// the bits of x1, and the split prefill those of the whole one.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/worker.h"
#include "memory/arena.h"
#include "model/generate.h"
#include "model/model.h"
#include "probe.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void PrintSpread(const char* name, const std::vector<double>& v, const char* unit, double scale) {
  const auto [lo, hi] = std::minmax_element(v.begin(), v.end());
  std::printf("%-28s %10.3f %s   (%.3f to %.3f)\n", name, Median(v) * scale, unit, *lo * scale,
              *hi * scale);
}

// Memory of some sequences, without pools: this bench asks what the model reaches.
class Sequences {
 public:
  Sequences(const model::Model& m, size_t n, int64_t tokens) : n_(n) {
    const Layout& l = m.layout();
    // As a worker's memory is.
    auto arena = Arena::Create(n * l.slot_bytes(), {.huge_pages = true});
    if (!arena.ok()) std::abort();
    slots_ = *std::move(arena);
    blocks_per_ = static_cast<size_t>(BlocksFor(tokens));
    block_bytes_ = l.groups()[0].block_bytes;
    blocks_.resize(n * blocks_per_ * block_bytes_ + 64);
    auto* base = blocks_.data();
    for (size_t i = 0; i < n * blocks_per_; ++i) pointers_.push_back(base + i * block_bytes_);
    slot_bytes_ = l.slot_bytes();
  }
  model::BatchItem Item(size_t i,
                        std::span<const TokenId> tokens,
                        int64_t position,
                        float* logits) {
    model::BatchItem item;
    item.tokens = tokens;
    item.position = position;
    item.slot = slots_->data() + i * slot_bytes_;
    item.blocks = {std::span<std::byte* const>(pointers_).subspan(i * blocks_per_, blocks_per_)};
    item.logits = logits;
    return item;
  }
  const std::byte* slot(size_t i) const { return slots_->data() + i * slot_bytes_; }
  void Clear() { std::memset(slots_->data(), 0, n_ * slot_bytes_); }
  size_t slot_bytes() const { return slot_bytes_; }

 private:
  size_t n_, blocks_per_ = 0, block_bytes_ = 0, slot_bytes_ = 0;
  std::unique_ptr<Arena> slots_;
  std::vector<std::byte> blocks_;
  std::vector<std::byte*> pointers_;
};

double ReadBandwidth(ThreadPool* pool, std::span<const float> data, int threads) {
  const int64_t part = static_cast<int64_t>(data.size()) / threads / 64 * 64;
  const auto t = Clock::now();
  std::vector<float> sums(static_cast<size_t>(threads));
  pool->ParallelFor(threads, [&](int64_t i) {
    sums[static_cast<size_t>(i)] = bench::ReadAll(data.data() + i * part, part);
  });
  const double s = Since(t);
  return static_cast<double>(part) * threads * 4 / s + (sums[0] == 12345.f ? 1 : 0);
}

double FmaPeak(ThreadPool* pool, int threads) {
  std::vector<double> done(static_cast<size_t>(threads));
  const auto t = Clock::now();
  pool->ParallelFor(threads,
                    [&](int64_t i) { done[static_cast<size_t>(i)] = bench::RunFma(false); });
  const double s = Since(t);
  double total = 0;
  for (double d : done) total += d;
  return total / s;
}

struct Bench {
  const model::Model& m;
  ThreadPool& pool;
  int threads;
  model::Workspace work;

  double Decode(Sequences* s, size_t n, int64_t steps, float* logits) {
    const auto vocab = static_cast<size_t>(m.vocab_size());
    std::vector<TokenId> token(n, 7);
    const auto t = Clock::now();
    for (int64_t i = 0; i < steps; ++i) {
      std::vector<model::BatchItem> batch;
      for (size_t k = 0; k < n; ++k)
        batch.push_back(s->Item(k, std::span(&token[k], 1), i, logits + k * vocab));
      if (!m.Forward(batch, &work, &pool).ok()) std::abort();
    }
    return Since(t) / static_cast<double>(steps);
  }
  double Prefill(Sequences* s, const std::vector<TokenId>& prompt, int64_t chunk, float* logits) {
    const auto t = Clock::now();
    for (size_t at = 0; at < prompt.size(); at += static_cast<size_t>(chunk)) {
      const size_t n = std::min(static_cast<size_t>(chunk), prompt.size() - at);
      auto item = s->Item(0, std::span(prompt).subspan(at, n), static_cast<int64_t>(at), logits);
      if (!m.Forward(std::span(&item, 1), &work, &pool).ok()) std::abort();
    }
    return Since(t);
  }
};

// Times tokens of one sequence as its client sees them.
class TimingSink final : public engine::GenerationSink {
 public:
  void OnTokens(std::span<const engine::TokenEvent>) override {
    const auto now = Clock::now();
    MutexLock lock(&mu_);
    if (last_.has_value()) gaps_.push_back(std::chrono::duration<double>(now - *last_).count());
    last_ = now;
    cv_.NotifyAll();
  }
  void OnFinish(const engine::GenerateResult&) override {
    MutexLock lock(&mu_);
    done_ = true;
    cv_.NotifyAll();
  }
  void WaitFor(size_t n) {
    MutexLock lock(&mu_);
    while (gaps_.size() < n && !done_) cv_.Wait(&mu_);
  }
  std::vector<double> gaps() {
    MutexLock lock(&mu_);
    return gaps_;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  std::optional<Clock::time_point> last_;
  std::vector<double> gaps_;
  bool done_ = false;
};

void Stall(const model::Model& m, int threads) {
  for (const int64_t budget : {int64_t{16}, int64_t{64}, int64_t{256}}) {
    engine::WorkerOptions o;
    o.engine.threads = threads;
    o.engine.token_budget = budget;
    o.engine.prefix_caching = false;
    o.memory.slots = 16;
    o.memory.blocks = 1024;
    auto w = engine::Worker::Create(&m, std::move(o)).value();
    std::vector<std::shared_ptr<TimingSink>> sinks;
    auto start = [&](size_t n, int64_t max_tokens) {
      engine::GenerateRequest r;
      r.prompt.assign(n, 5);
      r.sampling.temperature = 0;
      r.sampling.max_tokens = max_tokens;
      sinks.push_back(std::make_shared<TimingSink>());
      (void)w->engine().Start(r, sinks.back()).value();
    };
    for (int i = 0; i < 7; ++i) start(4, 160);
    sinks[6]->WaitFor(40);
    const size_t before = sinks[0]->gaps().size();
    start(512, 1);
    for (auto& s : sinks) s->WaitFor(1000000);
    const std::vector<double> gaps = sinks[0]->gaps();
    const std::vector<double> quiet(gaps.begin() + 8,
                                    gaps.begin() + static_cast<ptrdiff_t>(before));
    const double worst =
        *std::max_element(gaps.begin() + static_cast<ptrdiff_t>(before), gaps.end());
    std::printf(
        "stall, budget %4ld: longest step %4ld rows; decode step %.1f ms alone, %.1f ms at worst "
        "beside the prefill\n",
        budget, w->engine().stats().longest_step_rows.load(), Median(quiet) * 1e3, worst * 1e3);
    if (w->engine().stats().longest_step_rows.load() > budget) {
      std::printf("FAILED: a step exceeded the token budget\n");
      std::exit(1);
    }
  }
}

int Main(int argc, char** argv) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::string preset = argc > 2 ? argv[2] : "granite-100m";
  const std::string dir =
      (std::filesystem::temp_directory_path() / ("baton-bench-" + preset)).string();
  std::filesystem::create_directories(dir);
  ThreadPool pool(threads);
  if (!std::filesystem::exists(dir + "/model.safetensors")) {
    auto report = model::GenerateCheckpoint(*model::PresetConfig(preset), {}, dir, &pool);
    if (!report.ok()) {
      std::fprintf(stderr, "%s\n", std::string(report.status().message()).c_str());
      return 1;
    }
  }
  model::LoadOptions load;
  load.pool = &pool;
  auto loaded = model::Model::Load(dir, load);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
    return 1;
  }
  const model::Model& m = **loaded;
  Bench b{m, pool, threads, {}};
  const double weight_bytes = static_cast<double>(m.weight_bytes());
  const double parameters = weight_bytes / 4;
  std::printf("machine: %d threads, kernels %s; model %s, %.1f M parameters, f32\n", threads,
              kernel::SimdKernels().name, preset.c_str(), parameters / 1e6);

  // 256 MiB: beyond every cache; huge pages, as the weights have.
  const size_t floats = size_t{64} << 20;
  const std::unique_ptr<float, decltype(&std::free)> data(
      static_cast<float*>(std::aligned_alloc(size_t{2} << 20, floats * 4)), &std::free);
  madvise(data.get(), floats * 4, MADV_HUGEPAGE);
  std::fill(data.get(), data.get() + floats, 1.f);
  const auto vocab = static_cast<size_t>(m.vocab_size());
  std::vector<float> logits(16 * vocab), again(16 * vocab);
  std::vector<TokenId> prompt(512);
  SplitMix64 rng(1);
  for (TokenId& t : prompt) t = static_cast<TokenId>(rng.Below(vocab));
  std::vector<double> bandwidth, peak, x1, x16, prefill;
  Sequences one(m, 1, 600), sixteen(m, 16, 64);
  for (int r = -1; r < rounds; ++r) {
    const double bw = ReadBandwidth(&pool, std::span<const float>(data.get(), floats), threads);
    one.Clear();
    const double d1 = b.Decode(&one, 1, 16, logits.data());
    sixteen.Clear();
    const double d16 = b.Decode(&sixteen, 16, 16, again.data());
    for (size_t k = 0; k < 16; ++k)
      if (std::memcmp(logits.data(), again.data() + k * vocab, vocab * 4) != 0 ||
          std::memcmp(one.slot(0), sixteen.slot(k), one.slot_bytes()) != 0) {
        std::printf("FAILED: sequence %zu of 16 differs from the one alone\n", k);
        return 1;
      }
    const double pk = FmaPeak(&pool, threads);
    one.Clear();
    const double pf = b.Prefill(&one, prompt, 512, logits.data());
    if (r < 0) {  // warm-up; and the split prefill must agree
      std::vector<std::byte> whole(one.slot(0), one.slot(0) + one.slot_bytes());
      one.Clear();
      b.Prefill(&one, prompt, 100, again.data());
      if (std::memcmp(logits.data(), again.data(), vocab * 4) != 0 ||
          std::memcmp(whole.data(), one.slot(0), one.slot_bytes()) != 0) {
        std::printf("FAILED: split prefill differs from the whole one\n");
        return 1;
      }
      continue;
    }
    bandwidth.push_back(bw);
    peak.push_back(pk);
    x1.push_back(d1);
    x16.push_back(d16);
    prefill.push_back(pf);
  }
  PrintSpread("plain read", bandwidth, "GB/s", 1e-9);
  PrintSpread("FMA peak", peak, "GFLOP/s", 1e-9);
  PrintSpread("decode x1", x1, "ms/token", 1e3);
  PrintSpread("decode x16", x16, "ms/step", 1e3);
  PrintSpread("prefill 512", prefill, "ms", 1e3);
  std::vector<double> r1, r16, rp;
  for (size_t i = 0; i < x1.size(); ++i) {
    r1.push_back(weight_bytes / x1[i] / bandwidth[i]);
    r16.push_back(16 * x1[i] / x16[i]);
    // Two operations per weight and row, the embedding table being the tied lm_head, which runs
    // for the last row only.
    const double body =
        parameters - static_cast<double>(vocab) * static_cast<double>(m.config().hidden_size);
    rp.push_back(2 * body * 512 / prefill[i] / peak[i]);
  }
  std::printf("\n");
  PrintSpread("decode x1 / read bandwidth", r1, "(bar 0.75)", 1);
  PrintSpread("decode x16 / x1 tokens", r16, "(bar 6)   ", 1);
  PrintSpread("prefill / FMA peak", rp, "(bar 0.40)", 1);
  Stall(m, threads);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
