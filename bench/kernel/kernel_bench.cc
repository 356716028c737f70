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
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cases.h"
#include "kernel/kernels.h"
#include "probe.h"

namespace baton::bench {
namespace {

using kernel::Kernels;

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
  for (int calls = 0; calls < 8 || Now() < end; ++calls) {
    const double t = clock();
    run();
    best = std::min(best, clock() - t);
  }
  return best;
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

std::string CpuName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
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
  std::printf("%s, compiler %s, dispatch picks %s\n", CpuName().c_str(), __VERSION__,
              kernel::SimdKernels().name);
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
