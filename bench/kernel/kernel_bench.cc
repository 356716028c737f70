// Question: which share of what binds it does each kernel reach? Bounds are measured here, in the
// same rounds, interleaved with the kernels: plain read bandwidth, read-and-write-back bandwidth,
// and the rate of independent fused multiply-adds of the target's vector width on one thread.
// Every result is compared with the reference bit for bit before it is timed.
//
//   kernel_bench [--rounds N] [--target avx2|avx512] [--only SUBSTRING] [--threads N]
//
// --threads is for the memory-bound cases. With 1 they are timed, like the fma-bound ones, by the
// thread's own clock, which a busy machine disturbs least.
//
// Shares are medians over rounds of (rate of the kernel / rate of its bound in that round).
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernel/kernels.h"
#include "probe.h"

namespace baton::bench {
namespace {

using kernel::DType;
using kernel::Kernels;
using kernel::PackedMatrix;

enum class Bound { kRead, kUpdate, kFma };
constexpr const char* kBoundName[] = {"read", "update", "fma"};

// Big arrays in huge pages, as weights are: otherwise address translation is part of the bound.
template <class T>
struct HugePages {
  using value_type = T;
  T* allocate(size_t n) {
    constexpr size_t kPage = size_t{2} << 20;
    const size_t bytes = n * sizeof(T);
    void* p = aligned_alloc(bytes < kPage ? 64 : kPage, (bytes + kPage - 1) / kPage * kPage);
    BATON_CHECK(p != nullptr);
    if (bytes >= kPage) madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t) { std::free(p); }
  bool operator==(const HugePages&) const { return true; }
};
using Floats = std::vector<float, HugePages<float>>;

// A kernel call to be timed: `run` does `work` bytes (kRead, kUpdate) or floating-point operations
// (kFma) and leaves its results in `out`.
struct Case {
  std::string name;
  Bound bound;
  double work;
  std::function<void(const Kernels&)> run;
  std::function<Floats()> out;
  std::function<void()> reset = [] {};
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Shortest of several calls: other processes only ever add time. Work on one thread is timed by
// that thread's own clock, which stops while another process has the core.
double BestSeconds(bool one_thread, const std::function<void()>& run) {
  const auto clock = [one_thread] {
    timespec t;
    clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  double best = 1e30;
  const double end = Now() + 0.02;
  for (int calls = 0; calls < 3 || Now() < end; ++calls) {
    const double t = clock();
    run();
    best = std::min(best, clock() - t);
  }
  return best;
}

Floats Uniform(int64_t n, double lo = -1, double hi = 1) {
  static SplitMix64 rng(7);
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng.Uniform());
  return v;
}

template <class T>
std::shared_ptr<T> Share(T v) {
  return std::make_shared<T>(std::move(v));
}

PackedMatrix Weights(DType dtype, int64_t rows, int64_t cols, ThreadPool* pool) {
  const Floats w = Uniform(rows * cols);
  std::vector<uint16_t> half;
  if (dtype != DType::kF32) {
    for (float v : w)
      half.push_back(dtype == DType::kBF16
                         ? kernel::ToBF16(v)
                         : static_cast<uint16_t>((v < 0 ? 0xb000 : 0x3000) | int(v * v * 1023)));
  }
  const void* src = dtype == DType::kF32 ? static_cast<const void*>(w.data()) : half.data();
  auto m = PackedMatrix::Pack(src, dtype, rows, cols, cols, pool);
  BATON_CHECK(m.ok());
  return *std::move(m);
}

constexpr const char* kDTypeName[] = {"f32", "bf16", "f16"};

Case MatmulCase(DType dtype, int64_t rows, int64_t out, int64_t depth, ThreadPool* pool) {
  auto w = Share(Weights(dtype, out, depth, pool));
  auto x = Share(Uniform(rows * depth));
  auto y = Share(Floats(static_cast<size_t>(rows * out)));
  const int64_t chunk = pool->threads() > 1 ? 16 : w->panels();
  Case c;
  c.name = "matmul " + std::string(kDTypeName[int(dtype)]) + " " + std::to_string(rows) + "x" +
           std::to_string(out) + "x" + std::to_string(depth);
  c.bound = rows == 1 ? Bound::kRead : Bound::kFma;
  c.work = rows == 1 ? double(w->bytes()) : 2.0 * rows * out * depth;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor((w->panels() + chunk - 1) / chunk, [&](int64_t i) {
      k.matmul({.x = x->data(),
                .ldx = depth,
                .rows = rows,
                .w = w.get(),
                .panel_begin = i * chunk,
                .panel_end = std::min((i + 1) * chunk, w->panels()),
                .y = y->data(),
                .ldy = out});
    });
  };
  c.out = [=] { return *y; };
  return c;
}

Case Mamba2Case(int64_t tokens, int64_t heads, ThreadPool* pool) {
  constexpr int64_t kP = 64, kN = 128;
  const int64_t ldx = std::min<int64_t>(heads, 24) * kP + 2 * kN;
  const int64_t wrap = std::min<int64_t>(heads, 24);  // heads beyond these are other sequences
  auto start = Share(Uniform(heads * kP * kN));
  auto state = Share(*start);
  auto x = Share(Uniform(tokens * ldx));
  auto dt = Share(Uniform(tokens * wrap, 0.001, 0.1));
  auto decay = Share(Uniform(tokens * wrap, 0.9, 1));
  auto y = Share(Floats(static_cast<size_t>(tokens * wrap * kP)));
  Case c;
  c.name = "mamba2 " + std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads";
  c.bound = tokens == 1 ? Bound::kUpdate : Bound::kFma;
  c.work = tokens == 1 ? 8.0 * heads * kP * kN : 5.0 * tokens * heads * kP * kN;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor(wrap, [&](int64_t h0) {
      for (int64_t h = h0; h < heads; h += wrap)
        k.mamba2({.state = state->data() + h * kP * kN,
                  .n_state = kN,
                  .head_dim = kP,
                  .tokens = tokens,
                  .x = x->data() + h0 * kP,
                  .ldx = ldx,
                  .b = x->data() + wrap * kP,
                  .c = x->data() + wrap * kP + kN,
                  .ldbc = ldx,
                  .dt = dt->data() + h0,
                  .decay = decay->data() + h0,
                  .lddt = wrap,
                  .d = 0.5f,
                  .y = y->data() + h0 * kP,
                  .ldy = wrap * kP});
    });
  };
  c.out = [=] {
    Floats all = *y;
    all.insert(all.end(), state->begin(), state->end());
    return all;
  };
  c.reset = [=] { *state = *start; };
  return c;
}

Case Mamba1Case(int64_t tokens, int64_t channels) {
  constexpr int64_t kN = 16;
  auto start = Share(Uniform(channels * kN));
  auto state = Share(*start);
  auto x = Share(Uniform(tokens * channels));
  auto bc = Share(Uniform(tokens * 2 * kN));
  auto dt = Share(Uniform(tokens * channels, 0.001, 0.1));
  auto a = Share(Uniform(kN * channels, -4, 0));
  auto d = Share(Uniform(channels));
  auto y = Share(Floats(static_cast<size_t>(tokens * channels)));
  Case c;
  c.name = "mamba1 " + std::to_string(tokens) + " tokens, " + std::to_string(channels) + " ch";
  c.bound = Bound::kFma;
  c.work = 24.0 * tokens * channels * kN;  // exp: 17, the rest: 7
  c.run = [=](const Kernels& k) {
    k.mamba1({.state = state->data(),
              .n_state = kN,
              .channels = channels,
              .begin = 0,
              .end = channels,
              .tokens = tokens,
              .x = x->data(),
              .ldx = channels,
              .b = bc->data(),
              .c = bc->data() + kN,
              .ldbc = 2 * kN,
              .dt = dt->data(),
              .lddt = channels,
              .a = a->data(),
              .d = d->data(),
              .y = y->data(),
              .ldy = channels});
  };
  c.out = [=] {
    Floats all = *y;
    all.insert(all.end(), state->begin(), state->end());
    return all;
  };
  c.reset = [=] { *state = *start; };
  return c;
}

// `heads` KV heads, each with its own blocks.
Case AttentionCase(
    int64_t rows, int64_t context, int64_t dim, int64_t group, int64_t heads, ThreadPool* pool) {
  const int64_t blocks = (context + 15) / 16;
  const int64_t block = 2 * dim * 16;
  auto kv = Share(Uniform(heads * blocks * block));
  std::vector<const float*> pointers;
  for (int64_t b = 0; b < heads * blocks; ++b) pointers.push_back(kv->data() + b * block);
  auto table = Share(std::make_pair(std::move(pointers), kv));  // keeps the blocks alive
  auto q = Share(Uniform(rows * heads * group * dim));
  auto y = Share(Floats(q->size()));
  const int64_t first = context - rows + 1;
  const double keys = double(rows) * (first + context) / 2;
  Case c;
  c.name = "attention " + std::to_string(rows) + " rows, context " + std::to_string(context) +
           ", D" + std::to_string(dim) + " group " + std::to_string(group) + " heads " +
           std::to_string(heads);
  c.bound = rows == 1 ? Bound::kRead : Bound::kFma;
  c.work = rows == 1 ? 4.0 * heads * blocks * block : 4.0 * dim * keys * group * heads;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor(heads, [&](int64_t h) {
      k.attention({.blocks = table->first.data() + h * blocks,
                   .k_offset = 0,
                   .v_offset = dim * 16,
                   .head_dim = dim,
                   .group = group,
                   .rows = rows,
                   .first_len = first,
                   .scale = 0.125f,
                   .q = q->data() + h * group * dim,
                   .ldq = heads * group * dim,
                   .out = y->data() + h * group * dim,
                   .ldo = heads * group * dim});
    });
  };
  c.out = [=] { return *y; };
  return c;
}

Case ConvCase(int64_t tokens, int64_t channels) {
  auto start = Share(Uniform(3 * channels));
  auto state = Share(*start);
  auto w = Share(Uniform(4 * channels));
  auto x = Share(Uniform(tokens * channels));
  auto y = Share(Floats(x->size()));
  Case c;
  c.name = "conv+silu " + std::to_string(tokens) + " tokens, " + std::to_string(channels) + " ch";
  c.bound = Bound::kFma;
  c.work = 29.0 * tokens * channels;  // 4 fma and a silu of about 21
  c.run = [=](const Kernels& k) {
    k.conv({.state = state->data(),
            .channels = channels,
            .begin = 0,
            .end = channels,
            .width = 4,
            .weight = w->data(),
            .bias = w->data(),
            .tokens = tokens,
            .x = x->data(),
            .ldx = channels,
            .y = y->data(),
            .ldy = channels,
            .silu = true});
  };
  c.out = [=] { return *y; };
  c.reset = [=] { *state = *start; };
  return c;
}

Case VectorCase(const char* name,
                double flops,
                void (*run)(const Kernels&, const float*, const float*, float*, int64_t)) {
  constexpr int64_t kN = 8192;
  auto x = Share(Uniform(kN, -8, 8));
  auto w = Share(Uniform(kN));
  auto y = Share(Floats(kN));
  Case c;
  c.name = std::string(name) + " " + std::to_string(kN);
  c.bound = Bound::kFma;
  c.work = flops * kN * 32;
  c.run = [=](const Kernels& k) {
    for (int i = 0; i < 32; ++i) run(k, x->data(), w->data(), y->data(), kN);
  };
  c.out = [=] { return *y; };
  return c;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Bounds {
  Floats memory = Floats(size_t{32} << 20, 1.0f);
  ThreadPool* pool;
  bool narrow;

  // Rate of each bound now, in units per second.
  std::vector<double> Measure() {
    const int64_t n = static_cast<int64_t>(memory.size()) / 64;
    const int64_t chunk = n / 64 * 64;
    const double read = 64.0 * chunk * 4 / BestSeconds(pool->threads() == 1, [&] {
                          pool->ParallelFor(64, [&](int64_t i) {
                            volatile float sink = ReadAll(memory.data() + i * chunk, chunk);
                            (void)sink;
                          });
                        });
    const double update =
        64.0 * chunk * 8 / BestSeconds(pool->threads() == 1, [&] {
          pool->ParallelFor(64, [&](int64_t i) { UpdateAll(memory.data() + i * chunk, chunk); });
        });
    double flops = 0;
    const double seconds = BestSeconds(true, [&] { flops = RunFma(narrow); });
    return {read, update, flops / seconds};
  }
};

std::vector<Case> MakeCases(ThreadPool* pool, ThreadPool* one) {
  std::vector<Case> cases;
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    cases.push_back(MatmulCase(t, 1, 32768, 768, pool));
  for (int64_t rows : {2, 4, 8, 16, 64, 512})
    cases.push_back(MatmulCase(DType::kF32, rows, 2048, 768, one));
  for (int64_t rows : {16, 512}) {
    cases.push_back(MatmulCase(DType::kBF16, rows, 2048, 768, one));
    cases.push_back(MatmulCase(DType::kF16, rows, 2048, 768, one));
  }
  cases.push_back(MatmulCase(DType::kF32, 512, 768, 4096, one));
  cases.push_back(Mamba2Case(512, 24, one));
  cases.push_back(Mamba2Case(16, 24, one));
  cases.push_back(Mamba2Case(1, 24 * 96, pool));
  cases.push_back(Mamba1Case(128, 1536));
  cases.push_back(AttentionCase(512, 512, 64, 1, 4, one));
  cases.push_back(AttentionCase(512, 512, 128, 4, 1, one));
  cases.push_back(AttentionCase(1, 4096, 64, 1, 32, pool));
  cases.push_back(AttentionCase(1, 4096, 128, 4, 16, pool));
  cases.push_back(ConvCase(512, 1792));
  cases.push_back(VectorCase(
      "rms_norm", 4, [](const Kernels& k, const float* x, const float* w, float* y, int64_t n) {
        k.rms_norm(x, w, n, 1e-5f, y);
      }));
  cases.push_back(VectorCase(
      "silu_mul", 22, [](const Kernels& k, const float* x, const float* w, float* y, int64_t n) {
        k.silu_mul(x, w, n, y);
      }));
  return cases;
}

bool Check(const Case& c, const Kernels& k) {
  c.reset();
  c.run(kernel::ReferenceKernels());
  const Floats want = c.out();
  c.reset();
  c.run(k);
  const Floats got = c.out();
  return std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0;
}

struct Options {
  int rounds = 9;
  int threads = 2;
  std::string target, only;
};

bool RunTarget(const Kernels& k, const Options& o) {
  ThreadPool pool(o.threads), one(1);
  Bounds bounds{.pool = &pool, .narrow = std::string_view(k.name) == "avx2"};
  std::vector<Case> cases;
  for (Case& c : MakeCases(&pool, &one))
    if (c.name.find(o.only) != std::string::npos) cases.push_back(std::move(c));
  bool ok = true;
  for (const Case& c : cases) {
    if (Check(c, k)) continue;
    std::printf("WRONG: %s differs from the reference on %s\n", c.name.c_str(), k.name);
    ok = false;
  }
  std::vector<std::vector<double>> rates(cases.size()), shares(cases.size()), bound(3);
  for (int r = 0; r < o.rounds; ++r) {
    for (size_t i = 0; i < cases.size(); ++i) {
      if (i % 4 == 0) {
        const std::vector<double> now = bounds.Measure();
        for (size_t b = 0; b < 3; ++b) bound[b].push_back(now[b]);
      }
      cases[i].reset();
      const bool one_thread = cases[i].bound == Bound::kFma || pool.threads() == 1;
      rates[i].push_back(cases[i].work / BestSeconds(one_thread, [&] { cases[i].run(k); }));
      shares[i].push_back(rates[i].back() / bound[size_t(cases[i].bound)].back());
    }
  }
  std::printf("\n%s: read %.1f GB/s, update %.1f GB/s (%d threads); fma %.1f GFLOP/s (1 thread)\n",
              k.name, Median(bound[0]) / 1e9, Median(bound[1]) / 1e9, o.threads,
              Median(bound[2]) / 1e9);
  std::printf("%-52s %10s %8s %7s  %s\n", "kernel", "G/s", "bound", "share", "min..max");
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [lo, hi] = std::minmax_element(shares[i].begin(), shares[i].end());
    std::printf("%-52s %10.1f %8s %7.2f  %.2f..%.2f\n", cases[i].name.c_str(),
                Median(rates[i]) / 1e9, kBoundName[int(cases[i].bound)], Median(shares[i]), *lo,
                *hi);
  }
  return ok;
}

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--rounds") o.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--threads") o.threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--target") o.target = argv[i + 1];
    if (flag == "--only") o.only = argv[i + 1];
  }
  kernel::SetCanonicalFpMode();
  bool ok = true;
  for (const Kernels* k : kernel::SupportedKernels()) {
    if (k == &kernel::ReferenceKernels() || (!o.target.empty() && o.target != k->name)) continue;
    ok = RunTarget(*k, o) && ok;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
