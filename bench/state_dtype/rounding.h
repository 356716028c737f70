// Ways of keeping a recurrent state in fewer bits, put into any model: a kernel table whose mamba2
// rounds the f32 state in place at given points. The arithmetic between two roundings is the f32
// step form, so that runs differ in nothing but rounding.
// Thread rule: one run at a time in a process; its own pool threads may call the kernels.
#ifndef BATON_BENCH_STATE_DTYPE_ROUNDING_H_
#define BATON_BENCH_STATE_DTYPE_ROUNDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/kernels.h"

namespace baton::bench {

struct Policy {
  kernel::StateDType dtype = kernel::StateDType::kF32;
  kernel::Rounding rounding = kernel::Rounding::kNearest;
  int64_t every = 0;  // tokens, at absolute positions; 0: never
};

// "bf16 nearest, every 16".
std::string Name(const Policy& policy);
// f32, then each dtype, each rounding, for the three intervals.
std::vector<Policy> AllPolicies(int64_t rest_every);

// SimdKernels() with a rounding mamba2; rounds nothing until BeginCall names a policy.
const kernel::Kernels& RoundingKernels();
// What the next Forward of one sequence shall do: it starts at `position` on the state at `slot`.
void BeginCall(const Policy& policy, int64_t position, const std::byte* slot);

}  // namespace baton::bench

#endif  // BATON_BENCH_STATE_DTYPE_ROUNDING_H_
