// The time of the state advance alone, narrow against f32. Thread rule: free functions.
#ifndef BATON_BENCH_STATE_DTYPE_DECODE_H_
#define BATON_BENCH_STATE_DTYPE_DECODE_H_

namespace baton::bench {

// One layer of 128 heads of 128 x 64 (4 MiB of f32 state) for 8 sequences, decode over a whole grid
// step with its fold, and prefill of 256 tokens of one: by the thread's own clock, in interleaved
// rounds, as ratios to the f32 step form of the same round.
void RunDecode(int rounds);

}  // namespace baton::bench

#endif  // BATON_BENCH_STATE_DTYPE_DECODE_H_
