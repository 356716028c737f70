// A recurrence with decay near 1 alone, without a model around it. Thread rule: free functions.
#ifndef BATON_BENCH_STATE_DTYPE_SYNTHETIC_H_
#define BATON_BENCH_STATE_DTYPE_SYNTHETIC_H_

#include <cstdint>

namespace baton::bench {

// One Mamba-2 head of 128 x 64 with the constant decay `decay` over `tokens` random inputs that
// lean to one side (what a state remembers for long is a mean), read out as logits 3 * y / rms(y);
// prints the divergence of every policy.
void RunSynthetic(double decay, int64_t tokens, int64_t rest_every);

}  // namespace baton::bench

#endif  // BATON_BENCH_STATE_DTYPE_SYNTHETIC_H_
