#include "leases.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "memory/pool.h"

namespace baton::bench {
namespace {

constexpr uint32_t kBlocks = 16384;

std::vector<BlockHandle> Sequence(BlockPool* pool, size_t blocks) {
  std::vector<BlockHandle> held;
  for (size_t i = 0; i < blocks; ++i) {
    auto h = pool->Reserve({});
    BATON_CHECK(h.ok() && pool->Activate(*h).ok());
    if (i + 1 < blocks) BATON_CHECK(pool->Seal(*h).ok());  // as while decoding
    held.push_back(*h);
  }
  return held;
}

// Median and tenth percentile in microseconds.
void Row(BlockPool* pool, const std::vector<BlockHandle>& blocks, std::vector<char>* other) {
  const MonotonicClock clock;
  std::vector<double> us;
  for (int round = 0; round < 41; ++round) {
    for (size_t i = 0; i < other->size(); i += 64) ++(*other)[i];
    const Instant start = clock.Now();
    {
      auto set = pool->AcquireAll(blocks, LeaseFor::kCompute);
      BATON_CHECK(set.ok() && set->size() == blocks.size());
    }
    us.push_back(1e6 * Seconds(clock.Now() - start));
  }
  std::sort(us.begin(), us.end());
  std::printf("  %-10s %8.1f us (%.1f to %.1f)\n", other->empty() ? "in cache" : "cold", us[20],
              us[4], us[36]);
}

}  // namespace

int MeasureLeases() {
  auto arena = Arena::Create(uint64_t{kBlocks} * 4096, {});
  BATON_CHECK(arena.ok());
  const HostDevice device;
  PoolOptions options;
  options.arena = arena->get();
  options.device = &device;
  options.unit_bytes = 4096;
  options.units = kBlocks;
  options.poison = false;
  options.guards = false;
  options.pool_id = 1;
  auto pool = BlockPool::Create(options);
  BATON_CHECK(pool.ok());
  std::vector<char> none;
  std::vector<char> other(size_t{256} << 20, 1);
  for (const size_t blocks : {size_t{128}, size_t{512}, size_t{2048}}) {
    std::printf("%zu tokens, %zu blocks: lease and release\n", blocks * kBlockTokens, blocks);
    const std::vector<BlockHandle> sequence = Sequence(pool->get(), blocks);
    Row(pool->get(), sequence, &none);
    Row(pool->get(), sequence, &other);
  }
  return 0;
}

}  // namespace baton::bench
