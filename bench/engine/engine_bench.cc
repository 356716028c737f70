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

#include "absl/strings/str_format.h"
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
    slot_bytes_ = l.slot_bytes() + m.slot_tail_bytes();
    // As a worker's memory is.
    auto arena = Arena::Create(n * slot_bytes_, {.huge_pages = true});
    if (!arena.ok()) std::abort();
    slots_ = *std::move(arena);
    blocks_per_ = static_cast<size_t>(BlocksFor(tokens));
    block_bytes_ = l.groups()[0].block_bytes;
    blocks_.resize(n * blocks_per_ * block_bytes_ + 64);
    auto* base = blocks_.data();
    for (size_t i = 0; i < n * blocks_per_; ++i) pointers_.push_back(base + i * block_bytes_);
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

std::unique_ptr<model::Model> Generated(const std::string& preset,
                                        ThreadPool* pool,
                                        kernel::StateDType state_dtype = kernel::StateDType::kF32) {
  const std::string dir =
      (std::filesystem::temp_directory_path() / ("baton-bench-" + preset)).string();
  std::filesystem::create_directories(dir);
  const auto or_exit = [](const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  };
  const auto config = model::PresetConfig(preset);
  or_exit(config.status());
  if (!std::filesystem::exists(dir + "/model.safetensors"))
    or_exit(model::GenerateCheckpoint(*config, {}, dir, pool).status());
  model::LoadOptions load;
  load.pool = pool;
  load.state_dtype = state_dtype;
  auto loaded = model::Model::Load(dir, load);
  or_exit(loaded.status());
  return *std::move(loaded);
}

// One value per round.
struct Figures {
  std::vector<double> bandwidth, peak, x1, x16, prefill;
  std::vector<double> x1_share, x16_gain, prefill_share;
};

// Weights that a decode step reads, and those that each row of a prompt is multiplied with. Of an
// embedding table that is not also the output matrix one row is read.
struct WeightCount {
  double read = 0, per_row = 0;
};
WeightCount CountWeights(const model::Model& m) {
  const double all = static_cast<double>(m.weight_bytes()) / 4;
  const double table = static_cast<double>(m.vocab_size() * m.config().hidden_size);
  const bool tied = m.config().tie_word_embeddings;
  // The output matrix runs for a prompt's last row only.
  return {tied ? all : all - table, tied ? all - table : all - 2 * table};
}

class Measurement {
 public:
  Measurement(ThreadPool* pool, int threads) : pool_(pool), threads_(threads) {
    // 256 MiB: beyond every cache; huge pages, as the weights have.
    madvise(data_.get(), kFloats * 4, MADV_HUGEPAGE);
    std::fill(data_.get(), data_.get() + kFloats, 1.f);
  }

  Figures Run(const model::Model& m, int rounds) {
    Bench b{m, *pool_, threads_, {}};
    const auto vocab = static_cast<size_t>(m.vocab_size());
    std::vector<float> logits(16 * vocab), again(16 * vocab);
    std::vector<TokenId> prompt(512);
    SplitMix64 rng(1);
    for (TokenId& t : prompt) t = static_cast<TokenId>(rng.Below(vocab));
    const WeightCount weights = CountWeights(m);
    Sequences one(m, 1, 600), sixteen(m, 16, 64);
    Figures f;
    for (int r = -1; r < rounds; ++r) {
      const double bandwidth =
          ReadBandwidth(pool_, std::span<const float>(data_.get(), kFloats), threads_);
      one.Clear();
      const double x1 = b.Decode(&one, 1, 16, logits.data());
      sixteen.Clear();
      const double x16 = b.Decode(&sixteen, 16, 16, again.data());
      for (size_t k = 0; k < 16; ++k)
        Check(std::memcmp(logits.data(), again.data() + k * vocab, vocab * 4) == 0 &&
                  std::memcmp(one.slot(0), sixteen.slot(k), one.slot_bytes()) == 0,
              "a sequence of 16 differs from the one alone");
      const double peak = FmaPeak(pool_, threads_);
      one.Clear();
      const double prefill = b.Prefill(&one, prompt, 512, logits.data());
      if (r < 0) {  // warm-up; and the split prefill must agree
        std::vector<std::byte> whole(one.slot(0), one.slot(0) + one.slot_bytes());
        one.Clear();
        b.Prefill(&one, prompt, 100, again.data());
        Check(std::memcmp(logits.data(), again.data(), vocab * 4) == 0 &&
                  std::memcmp(whole.data(), one.slot(0), one.slot_bytes()) == 0,
              "split prefill differs from the whole one");
        continue;
      }
      f.bandwidth.push_back(bandwidth);
      f.peak.push_back(peak);
      f.x1.push_back(x1);
      f.x16.push_back(x16);
      f.prefill.push_back(prefill);
      f.x1_share.push_back(4 * weights.read / x1 / bandwidth);
      f.x16_gain.push_back(16 * x1 / x16);
      // Two operations per weight and row.
      f.prefill_share.push_back(2 * weights.per_row * 512 / prefill / peak);
    }
    return f;
  }

 private:
  static constexpr size_t kFloats = size_t{64} << 20;
  static void Check(bool ok, const char* what) {
    if (ok) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
  }

  ThreadPool* pool_;
  int threads_;
  std::unique_ptr<float, decltype(&std::free)> data_{
      static_cast<float*>(std::aligned_alloc(size_t{2} << 20, kFloats * 4)), &std::free};
};

// The same figures for a checkpoint of each kind of recurrence, and how they stand to those of the
// first.
int Kinds(Measurement* measurement, ThreadPool* pool, int rounds) {
  constexpr struct {
    const char *kind, *preset;
  } kKinds[] = {{"Mamba-2", "granite-100m"},          {"Mamba-1", "jamba-100m"},
                {"gated delta rule", "qwen3_5-100m"}, {"lightning", "minimax-100m"},
                {"RG-LRU", "recurrent_gemma-100m"},   {"short conv", "lfm2-100m"}};
  double first_x1 = 0, first_prefill = 0;
  std::printf("%-17s %8s %9s  %-30s %-22s %-30s\n", "kind", "weights", "state",
              "x1 / read bandwidth", "x16 / x1", "prefill / FMA peak");
  for (const auto& [kind, preset] : kKinds) {
    const std::unique_ptr<model::Model> m = Generated(preset, pool);
    const Figures f = measurement->Run(*m, rounds);
    const double x1 = Median(f.x1_share), prefill = Median(f.prefill_share);
    if (first_x1 == 0) {
      first_x1 = x1;
      first_prefill = prefill;
    }
    const auto spread = [](const std::vector<double>& v) {
      const auto [lo, hi] = std::minmax_element(v.begin(), v.end());
      return absl::StrFormat("%.2f (%.2f to %.2f)", Median(v), *lo, *hi);
    };
    std::printf("%-17s %6.1f M %6.2f MB  %-22s x %.2f  %-22s %-22s x %.2f\n", kind,
                static_cast<double>(m->weight_bytes()) / 4e6,
                static_cast<double>(m->layout().slot_bytes()) / 1e6, spread(f.x1_share).c_str(),
                x1 / first_x1, spread(f.x16_gain).c_str(), spread(f.prefill_share).c_str(),
                prefill / first_prefill);
  }
  return 0;
}

// Whole decode steps of a preset with narrow state beside those with f32: bytes of a
// sequence's state and time of a step, over two grid steps with their folds.
int States(const std::string& preset, ThreadPool* pool, int threads, int rounds) {
  using kernel::StateDType;
  constexpr StateDType kTypes[] = {StateDType::kF32, StateDType::kBF16, StateDType::kF16,
                                   StateDType::kF8E4M3};
  struct Row {
    std::unique_ptr<model::Model> model;
    std::unique_ptr<Bench> bench;
    std::unique_ptr<Sequences> one, sixteen;
    std::vector<double> x1, x16, ratio1, ratio16;
  };
  std::vector<Row> rows;
  for (const StateDType type : kTypes) {
    Row& row = rows.emplace_back();
    row.model = Generated(preset, pool, type);
    row.bench.reset(new Bench{*row.model, *pool, threads, {}});
    row.one = std::make_unique<Sequences>(*row.model, 1, 64);
    row.sixteen = std::make_unique<Sequences>(*row.model, 16, 64);
  }
  std::vector<float> logits(16 * static_cast<size_t>(rows[0].model->vocab_size()));
  for (int r = -1; r < rounds; ++r) {
    for (Row& row : rows) {
      row.one->Clear();
      row.sixteen->Clear();
      const double x1 = row.bench->Decode(row.one.get(), 1, 32, logits.data());
      const double x16 = row.bench->Decode(row.sixteen.get(), 16, 32, logits.data());
      if (r < 0) continue;  // warm-up
      row.x1.push_back(x1);
      row.x16.push_back(x16);
      row.ratio1.push_back(x1 / rows[0].x1.back());
      row.ratio16.push_back(x16 / rows[0].x16.back());
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::printf("--state-dtype %s: %.2f MB a sequence, %.2f with the tail\n",
                std::string(kernel::StateDTypeName(kTypes[i])).c_str(),
                static_cast<double>(row.model->layout().slot_bytes()) / 1e6,
                static_cast<double>(row.one->slot_bytes()) / 1e6);
    PrintSpread("  decode x1", row.x1, "ms/token", 1e3);
    PrintSpread("  decode x16", row.x16, "ms/step", 1e3);
    PrintSpread("  x1 over f32", row.ratio1, "", 1);
    PrintSpread("  x16 over f32", row.ratio16, "", 1);
  }
  return 0;
}

// engine_bench [rounds] [preset | kinds | states [preset]]
int Main(int argc, char** argv) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::string preset = argc > 2 ? argv[2] : "granite-100m";
  if (rounds < 1) {
    std::fprintf(stderr, "usage: engine_bench [rounds] [preset | kinds | states [preset]]\n");
    return 2;
  }
  ThreadPool pool(threads);
  if (preset == "states")
    return States(argc > 3 ? argv[3] : "granite-100m", &pool, threads, rounds);
  Measurement measurement(&pool, threads);
  if (preset == "kinds") return Kinds(&measurement, &pool, rounds);
  const std::unique_ptr<model::Model> m = Generated(preset, &pool);
  std::printf("machine: %d threads, kernels %s; model %s, %.1f M parameters, f32\n", threads,
              kernel::SimdKernels().name, preset.c_str(),
              static_cast<double>(m->weight_bytes()) / 4e6);
  const Figures f = measurement.Run(*m, rounds);
  PrintSpread("plain read", f.bandwidth, "GB/s", 1e-9);
  PrintSpread("FMA peak", f.peak, "GFLOP/s", 1e-9);
  PrintSpread("decode x1", f.x1, "ms/token", 1e3);
  PrintSpread("decode x16", f.x16, "ms/step", 1e3);
  PrintSpread("prefill 512", f.prefill, "ms", 1e3);
  std::printf("\n");
  PrintSpread("decode x1 / read bandwidth", f.x1_share, "(bar 0.75)", 1);
  PrintSpread("decode x16 / x1 tokens", f.x16_gain, "(bar 6)   ", 1);
  PrintSpread("prefill / FMA peak", f.prefill_share, "(bar 0.40)", 1);
  Stall(*m, threads);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
