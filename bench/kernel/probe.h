// What the machine can do at this moment: the denominators of kernel_bench's ratios.
// Thread rule: each call runs on the calling thread and touches only its arguments.
#ifndef BATON_BENCH_KERNEL_PROBE_H_
#define BATON_BENCH_KERNEL_PROBE_H_

#include <cstdint>

namespace baton::bench {

// Runs many rounds of 12 independent fused multiply-adds on the widest vectors of this CPU, or on
// 256-bit ones if `narrow`. Returns the number of floating-point operations done.
double RunFma(bool narrow);
// Reads n floats (n % 64 == 0) once, as plainly and as fast as it can.
float ReadAll(const float* p, int64_t n);
// Reads, scales and writes back n floats (n % 64 == 0) in place.
void UpdateAll(float* p, int64_t n);

}  // namespace baton::bench

#endif  // BATON_BENCH_KERNEL_PROBE_H_
