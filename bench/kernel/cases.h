// The kernel calls that kernel_bench times. Thread rule: build and run on one thread, which may own
// the pool a case splits its work over.
#ifndef BATON_BENCH_KERNEL_CASES_H_
#define BATON_BENCH_KERNEL_CASES_H_

#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernel/kernels.h"

namespace baton::bench {

enum class Bound { kRead, kUpdate, kFma };
inline constexpr const char* kBoundName[] = {"read", "update", "fma"};

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
  std::function<void(const kernel::Kernels&)> run;
  std::function<Floats()> out;
  std::function<void()> reset = [] {};
};

// Memory-bound cases run on `pool`, the others on `one` thread.
std::vector<Case> MakeCases(ThreadPool* pool, ThreadPool* one);

}  // namespace baton::bench

#endif  // BATON_BENCH_KERNEL_CASES_H_
