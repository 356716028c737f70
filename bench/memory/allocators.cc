#include "allocators.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "memory/elastic.h"

namespace baton::bench {
namespace {

constexpr int64_t kBlock = 16;

int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Slots and blocks, or pages, by count: two fixed numbers of identical units never fragment.
class Counting final : public Allocator {
 public:
  struct Sizes {
    int64_t states = 0;     // units of the first kind there are
    int64_t blocks = 0;     // of the second; `shared`: both kinds come out of these
    int64_t per_state = 1;  // units a state takes
    int64_t per_block = 1;  // units a block takes
    int64_t block_tokens = kBlock;
    bool shared = false;
  };
  explicit Counting(const Sizes& sizes) : sizes_(sizes) {
    states_free_ = sizes.states;
    blocks_free_ = sizes.blocks;
  }
  bool Admit(size_t sequence, int64_t tokens) override {
    if (!Take(sizes_.per_state, &StatesFree())) return false;
    if (Take(Ceil(tokens, sizes_.block_tokens) * sizes_.per_block, &blocks_free_)) {
      held_[sequence] = Ceil(tokens, sizes_.block_tokens);
      return true;
    }
    StatesFree() += sizes_.per_state;
    return false;
  }
  void Landed(size_t) override {}
  bool Grow(size_t sequence, int64_t tokens) override {
    int64_t& held = held_.at(sequence);
    const int64_t more = Ceil(tokens, sizes_.block_tokens) - held;
    if (more <= 0) return true;
    if (!Take(more * sizes_.per_block, &blocks_free_)) return false;
    held += more;
    return true;
  }
  void Finish(size_t sequence) override {
    StatesFree() += sizes_.per_state;
    blocks_free_ += held_.at(sequence) * sizes_.per_block;
    held_.erase(sequence);
  }
  Status CheckEmpty() const override {
    if (!held_.empty() || blocks_free_ != sizes_.blocks || states_free_ != sizes_.states)
      return absl::InternalError("counts do not return to where they began");
    return absl::OkStatus();
  }

 private:
  int64_t& StatesFree() { return sizes_.shared ? blocks_free_ : states_free_; }
  static bool Take(int64_t n, int64_t* free) {
    if (n > *free) return false;
    *free -= n;
    return true;
  }
  const Sizes sizes_;
  int64_t states_free_ = 0;
  int64_t blocks_free_ = 0;
  std::unordered_map<size_t, int64_t> held_;  // blocks by sequence
};

// Bytes that do not exist: the pools decide and count, and nothing is written.
class NoBytes final : public Device {
 public:
  void Copy(MutableByteSpan, ByteSpan) const override {}
  void Fill(MutableByteSpan, std::byte) const override {}
  PartDigest Digest(const Digester&, const DigestSeed&, ByteSpan) const override { return {}; }
};

class ElasticAllocator final : public Allocator {
 public:
  ElasticAllocator(const Geometry& geometry, uint64_t bytes) {
    ElasticOptions options;
    auto arena = Arena::Create(bytes, {});
    BATON_CHECK(arena.ok());
    arena_ = *std::move(arena);
    options.arena = arena_.get();
    options.bytes = bytes / Arena::kAlign * Arena::kAlign;
    PoolOptions pool;
    pool.device = &device_;
    pool.poison = false;
    pool.guards = false;
    pool.pool_id = 1;
    pool.unit_bytes = geometry.state_bytes;
    pool.align = 4096;
    options.slots = pool;
    pool.pool_id = 2;
    pool.unit_bytes = geometry.kv_token_bytes * kBlock;
    pool.align = 64;
    options.blocks.push_back(pool);
    auto memory = ElasticMemory::Create(options);
    BATON_CHECK(memory.ok());
    memory_ = *std::move(memory);
  }

  bool Admit(size_t sequence, int64_t tokens) override {
    Held held;
    auto slot = memory_->slots()->Reserve({.fill = FillMode::kGapsOnly});
    if (!slot.ok()) return false;
    held.slot = *slot;
    Must(memory_->slots()->Land(held.slot, Attempt(1)));
    for (int64_t i = 0; i < Ceil(tokens, kBlock); ++i) {
      auto block = memory_->blocks(0)->Reserve({.fill = FillMode::kGapsOnly});
      if (!block.ok()) {
        GiveBack(held);
        return false;
      }
      Must(memory_->blocks(0)->Land(*block, Attempt(1)));
      held.blocks.push_back(*block);
    }
    held_.emplace(sequence, std::move(held));
    return true;
  }
  void Landed(size_t sequence) override {
    Held& held = held_.at(sequence);
    const auto commit = [](auto* pool, auto h) {
      Must(pool->Landed(h));
      Must(pool->Verified(h));
      Must(pool->Activate(h));
    };
    commit(memory_->slots(), held.slot);
    for (const BlockHandle h : held.blocks) commit(memory_->blocks(0), h);
    held.landed = true;
  }
  bool Grow(size_t sequence, int64_t tokens) override {
    Held& held = held_.at(sequence);
    while (static_cast<int64_t>(held.blocks.size()) < Ceil(tokens, kBlock)) {
      auto block = memory_->blocks(0)->Reserve({});
      if (!block.ok()) return false;
      Must(memory_->blocks(0)->Activate(*block));
      held.blocks.push_back(*block);
    }
    return true;
  }
  void Finish(size_t sequence) override {
    GiveBack(held_.at(sequence));
    held_.erase(sequence);
  }
  uint64_t bytes_moved() const override { return memory_->Stats().bytes_moved; }
  Status CheckEmpty() const override {
    if (!held_.empty() || memory_->Stats().bytes_used != 0)
      return absl::InternalError("units are still held");
    return memory_->CheckInvariants();
  }

 private:
  struct Held {
    SlotHandle slot;
    std::vector<BlockHandle> blocks;
    bool landed = false;
  };
  static void Must(const Status& s) { BATON_CHECK(s.ok()); }
  void GiveBack(const Held& held) {
    const auto free = [&](auto* pool, auto h) {
      if (held.landed) return Must(pool->Free(h));
      Must(pool->Quarantine(h));  // nothing was ever on its way
      Must(pool->ProvenQuiet(h));
    };
    free(memory_->slots(), held.slot);
    for (const BlockHandle h : held.blocks) free(memory_->blocks(0), h);
  }

  NoBytes device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ElasticMemory> memory_;
  std::unordered_map<size_t, Held> held_;
};

uint64_t PageBytes(const Geometry& g) {
  return std::max(
      (g.state_bytes + g.state_layers - 1) / g.state_layers,
      g.kv_token_bytes / g.attention_layers * static_cast<uint64_t>(PaddedBlockTokens(g)));
}

}  // namespace

std::unique_ptr<Allocator> StaticSplit(const Geometry& g, uint64_t bytes, double slot_share) {
  Counting::Sizes sizes;
  sizes.states = static_cast<int64_t>(static_cast<double>(bytes) * slot_share /
                                      static_cast<double>(g.state_bytes));
  const uint64_t left = bytes - static_cast<uint64_t>(sizes.states) * g.state_bytes;
  sizes.blocks = static_cast<int64_t>(left / (g.kv_token_bytes * kBlock));
  return std::make_unique<Counting>(sizes);
}

int64_t PaddedBlockTokens(const Geometry& g) {
  const uint64_t layer_state = (g.state_bytes + g.state_layers - 1) / g.state_layers;
  const uint64_t layer_token = g.kv_token_bytes / g.attention_layers;
  return Ceil(Ceil(static_cast<int64_t>(layer_state), static_cast<int64_t>(layer_token)), kBlock) *
         kBlock;
}

std::unique_ptr<Allocator> PaddedPages(const Geometry& g, uint64_t bytes) {
  Counting::Sizes sizes;
  sizes.shared = true;
  sizes.blocks = static_cast<int64_t>(bytes / PageBytes(g));
  sizes.per_state = g.state_layers;
  sizes.per_block = g.attention_layers;
  sizes.block_tokens = PaddedBlockTokens(g);
  return std::make_unique<Counting>(sizes);
}

std::unique_ptr<Allocator> Elastic(const Geometry& geometry, uint64_t bytes) {
  return std::make_unique<ElasticAllocator>(geometry, bytes);
}

}  // namespace baton::bench
