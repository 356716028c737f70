#include "cache/checkpoint_store.h"

#include "base/rng.h"
#include "gtest/gtest.h"
#include "memory/arena.h"
#include "memory/device.h"

namespace baton {
namespace {

constexpr uint64_t kUnitBytes = 4096;

class CheckpointStoreTest : public testing::Test {
 protected:
  CheckpointStoreTest() {
    arena_ = Arena::Create(96 * kUnitBytes, {}).value();
    PoolOptions options;
    options.arena = arena_.get();
    options.device = &device_;
    options.unit_bytes = kUnitBytes;
    options.units = 8;
    options.pool_id = 1;
    slots_ = SlotPool::Create(options).value();
    options.pool_id = 2;
    options.units = 16;
    blocks_ = BlockPool::Create(options).value();
    pools_ = {slots_.get(), {blocks_.get()}};
  }

  // A checkpoint of the first `blocks` blocks of `tokens`.
  std::shared_ptr<const Checkpoint> Make(const std::vector<TokenId>& tokens, size_t blocks) {
    const PrefixChain chain(base_.scope, std::span(tokens).first(blocks * kBlockTokens));
    Seal seal;
    seal.identity = base_.At(chain);
    seal.state_id = RandomBytes<StateId>();
    const SlotHandle slot = slots_->Reserve({}).value();
    EXPECT_TRUE(slots_->Activate(slot).ok());
    EXPECT_TRUE(slots_->Seal(slot).ok());
    std::vector<BlockHandle> held;
    for (size_t i = 0; i < blocks; ++i) {
      held.push_back(blocks_->Reserve({}).value());
      EXPECT_TRUE(blocks_->Activate(held.back()).ok());
      EXPECT_TRUE(blocks_->Seal(held.back()).ok());
    }
    const std::vector<std::vector<BlockHandle>> per_group = {held};
    const std::vector<std::vector<Digest128>> digests = {std::vector<Digest128>(blocks)};
    return std::make_shared<Checkpoint>(pools_, seal, slot, per_group, digests);
  }

  void Insert(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<TokenId>& tokens) {
    const std::vector<Sha256> hashes = PrefixChain::BlockHashes(base_.scope, tokens);
    store_.Insert(checkpoint, std::span(hashes).first(checkpoint->boundary() / kBlockTokens));
  }

  static std::vector<TokenId> Tokens(size_t n, TokenId first = 0) {
    std::vector<TokenId> t(n);
    for (size_t i = 0; i < n; ++i) t[i] = first + static_cast<TokenId>(i);
    return t;
  }

  std::shared_ptr<const Checkpoint> Deepest(const std::vector<TokenId>& tokens, uint64_t max) {
    return store_.FindDeepest(base_, PrefixChain::BlockHashes(base_.scope, tokens), max);
  }

  HostDevice device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SlotPool> slots_;
  std::unique_ptr<BlockPool> blocks_;
  PoolSet pools_;
  IdentityBase base_{{}, {}, ScopeOf("")};
  CheckpointStore store_;
};

TEST_F(CheckpointStoreTest, FindsTheDeepestPrefixUpToTheLimit) {
  const auto tokens = Tokens(80);
  Insert(Make(tokens, 1), tokens);
  Insert(Make(tokens, 3), tokens);
  EXPECT_EQ(Deepest(tokens, 80)->boundary(), 48u);
  EXPECT_EQ(Deepest(tokens, 47)->boundary(), 16u);
  EXPECT_EQ(Deepest(tokens, 15), nullptr);
  EXPECT_EQ(Deepest(Tokens(80, 1), 80), nullptr);
}

TEST_F(CheckpointStoreTest, AnotherTenantsScopeFindsNothing) {
  const auto tokens = Tokens(32);
  Insert(Make(tokens, 2), tokens);
  IdentityBase other = base_;
  other.scope = ScopeOf("tenant");
  EXPECT_EQ(store_.FindDeepest(other, PrefixChain::BlockHashes(other.scope, tokens), 32), nullptr);
}

TEST_F(CheckpointStoreTest, EvictionIsLeastRecentlyUsedAndFreesMemoryWithTheLastHolder) {
  const auto a = Tokens(16), b = Tokens(16, 100);
  Insert(Make(a, 1), a);
  Insert(Make(b, 1), b);
  auto held = Deepest(a, 16);  // a is now the more recent one, and is held
  EXPECT_TRUE(store_.EvictOne());
  EXPECT_EQ(Deepest(b, 16), nullptr);
  EXPECT_TRUE(store_.EvictOne());
  EXPECT_FALSE(store_.EvictOne());
  EXPECT_EQ(slots_->Stats().used, 1u);
  held.reset();
  EXPECT_EQ(slots_->Stats().used, 0u);
  EXPECT_EQ(blocks_->Stats().used, 0u);
}

TEST_F(CheckpointStoreTest, InsertingTheSameIdentityReplacesAndLeaksNothing) {
  const auto tokens = Tokens(32);
  Insert(Make(tokens, 2), tokens);
  Insert(Make(tokens, 2), tokens);
  EXPECT_EQ(store_.size(), 1u);
  EXPECT_EQ(slots_->Stats().used, 1u);
  EXPECT_EQ(blocks_->Stats().used, 2u);
}

TEST_F(CheckpointStoreTest, ASealOfAnotherHistoryIsNotKept) {
  const auto a = Tokens(32), b = Tokens(32, 100);
  Insert(Make(a, 2), b);
  store_.Insert(Make(a, 2), PrefixChain::BlockHashes(base_.scope, std::span(a).first(16)));
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(slots_->Stats().used, 0u);
  EXPECT_EQ(Deepest(a, 32), nullptr);
}

TEST_F(CheckpointStoreTest, IndexAndStoreHoldTheSame) {
  const auto a = Tokens(80);
  Insert(Make(a, 1), a);
  Insert(Make(a, 3), a);
  Insert(Make(a, 3), a);
  EXPECT_EQ(store_.index().state_count(), 2u);
  EXPECT_EQ(store_.index().resident_blocks(), 3u);
  store_.Remove(*Deepest(a, 80));
  EXPECT_EQ(store_.index().state_count(), 1u);
  EXPECT_EQ(store_.index().resident_blocks(), 1u);
  absl::flat_hash_set<StateId> ids = {Deepest(a, 80)->seal().state_id};
  EXPECT_EQ(store_.Revoke(&ids), 1u);
  EXPECT_EQ(store_.index().resident_blocks(), 0u);
  store_.index().CheckInvariants();
}

TEST_F(CheckpointStoreTest, AnotherSequencesEqualBlocksAreFound) {
  const auto a = Tokens(80);
  std::vector<TokenId> b = a;
  b[40] = 9999;  // in the third block
  Insert(Make(a, 3), a);
  const auto hashes = PrefixChain::BlockHashes(base_.scope, b);
  const CheckpointStore::Sharing sharing = store_.FindSharing(base_, hashes);
  EXPECT_EQ(sharing.blocks, 2u);
  EXPECT_EQ(sharing.checkpoint->boundary(), 48u);
  IdentityBase other = base_;
  other.scope = ScopeOf("tenant");
  EXPECT_EQ(store_.FindSharing(other, hashes).checkpoint, nullptr);
  EXPECT_EQ(store_.counters().lookups, 0u);
}

}  // namespace
}  // namespace baton
