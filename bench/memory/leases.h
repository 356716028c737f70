// What the leases of a step cost: every block of a sequence is pinned before and let go after.
#ifndef BATON_BENCH_MEMORY_LEASES_H_
#define BATON_BENCH_MEMORY_LEASES_H_

namespace baton::bench {

// Prints the time to lease and release the blocks of contexts up to 32k tokens, with the tables in
// cache and after reading 256 MB of something else, as a step reads its weights. Returns 0.
int MeasureLeases();

}  // namespace baton::bench

#endif  // BATON_BENCH_MEMORY_LEASES_H_
