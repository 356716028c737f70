// A node without a model, for tests of the hand-off: real pools, arena, identity and client, and a
// provider whose bundles hold pseudo-random bytes that are a function of (content identity, part).
// Whoever knows the tokens therefore knows every byte that must land. Not linked into the product.
// Thread rule: FakeProvider is thread-safe; the rest belongs to the test's thread.
#ifndef BATON_HANDOFF_TESTING_FAKE_NODE_H_
#define BATON_HANDOFF_TESTING_FAKE_NODE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "handoff/client.h"
#include "handoff/parts.h"
#include "handoff/provider.h"
#include "handoff/server.h"
#include "memory/arena.h"
#include "memory/live_record.h"

namespace baton {

// Three recurrent layers whose conv and recurrent parts have the same size across layers, a full
// KV group and a windowed one: a bundle of a few KiB.
Layout SmallLayout();
// `layers` layers with `part_bytes` of state each, and a full KV group of block_bytes.
Layout BigLayout(size_t layers, uint64_t part_bytes);

struct FakeNodeOptions {
  const Layout* layout = nullptr;
  Sha256 model;
  Digester digester;
  uint32_t protocol = kHandoffProtocolVersion;
  uint32_t slots = 4;
  uint32_t blocks = 64;  // per group
  const Clock* clock = nullptr;
};

// Memory and identity of one process.
class FakeNode {
 public:
  explicit FakeNode(const FakeNodeOptions& options);

  const LocalIdentity& self() const { return self_; }
  const Layout& layout() const { return *self_.layout; }
  const BundlePools& pools() const { return pools_; }
  const Device& device() const { return device_; }
  SourceRegion region() const { return {{arena_->data(), arena_->size()}, arena_->fd()}; }
  ContentIdentity IdentityOf(std::span<const TokenId> tokens) const;
  // For the tests' own scope.
  static Sha256 Scope();
  IdentityBase Base() const { return {self_.model, layout().fingerprint(), Scope()}; }

  // A request with fresh RESERVED units for `tokens`.
  PullRequest NewRequest(const std::string& endpoint,
                         std::vector<TokenId> tokens,
                         Attempt attempt,
                         Instant deadline);
  void FreeUnits(const PullRequest& request);
  // State of every unit of a request, UnitState::kFree for a stale handle.
  std::vector<UnitState> StatesOf(const PullRequest& request) const;
  // The bytes of each part, read back from VERIFIED units.
  std::vector<std::vector<std::byte>> BytesOf(const PullRequest& request) const;
  // Units not FREE, over all pools; quarantined ones included.
  uint64_t UnitsInUse() const;
  uint64_t UnitsQuarantined() const;
  Status CheckInvariants() const;

 private:
  HostDevice device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SlotPool> slots_;
  std::vector<std::unique_ptr<BlockPool>> blocks_;
  BundlePools pools_;
  LocalIdentity self_;
  std::atomic<uint64_t> owners_{1};
};

// Finite floats (or bf16 patterns) that are a function of seed alone.
void FillFinite(MutableByteSpan bytes, const Sha256& seed);
// What a part of the bundle of `tokens` must hold: the reference all tests compare with.
std::vector<std::byte> ReferenceBytes(const IdentityBase& base,
                                      std::span<const TokenId> tokens,
                                      const BundlePart& part);
std::vector<std::vector<std::byte>> ReferenceBundle(const FakeNode& node,
                                                    std::span<const TokenId> tokens);

// A sealed bundle in a source node's pools; frees its units when destroyed.
class FakeBundle : public ServedBundle {
 public:
  // What goes into the units, and what is said about it.
  struct Content {
    IdentityBase base;
    std::vector<TokenId> tokens;        // history of the KV blocks, and of the claim
    std::vector<TokenId> state_tokens;  // history the slot has really absorbed
    // True: sealing compares the claim with a record of state_tokens, as an engine does. False:
    // with a record of `tokens`, as an engine does whose bookkeeping has gone wrong.
    bool honest_record = true;
    StateId state_id = {};  // zero: a random one
  };
  // Reserves, fills, seals and leases.
  static StatusOr<std::unique_ptr<FakeBundle>> Make(FakeNode* node, const Content& content);
  ~FakeBundle() override;
  void OnEnd(ServeEnd end) override;
  // Drops leases and units, as an owner does whose lease has run out; the memory may be reused.
  void Free();
  FakeNode* node() { return node_; }

  std::vector<std::vector<BlockHandle>> block_handles;
  std::optional<SlotHandle> slot_handle;
  std::function<void(ServeEnd)> on_end;

 private:
  explicit FakeBundle(FakeNode* node) : node_(node) {}
  Status Reserve(uint64_t boundary);
  Status Write(const Content& content);
  Status SealUnits();
  FakeNode* node_;
};

// Serves the bundle of whatever is asked. Hooks run on conversation threads.
class FakeProvider final : public BundleProvider {
 public:
  explicit FakeProvider(FakeNode* node) : node_(node) {}
  StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                  Instant deadline,
                                                  const CancelToken& cancel) override;
  StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
      const Ask& ask,
      Instant deadline,
      const CancelToken& cancel,
      const std::shared_ptr<BlockStream>& stream) override;
  // Set before serving. `before` may block or fail; `tamper` may change the bundle.
  std::function<Status(const Ask&, const CancelToken&)> before;
  std::function<void(FakeBundle*)> tamper;
  std::function<void(FakeBundle::Content*)> content;
  // Blocks of each group to hand over early, in so many batches; `between` runs after each, before
  // the next. 0: all at the end.
  size_t early_batches = 0;
  std::function<void(size_t batch, FakeBundle*, BlockStream*)> between;
  std::function<void(std::vector<EarlyBlock>*)> tamper_early;
  std::atomic<int> asked{0};
  std::atomic<int> ended[5] = {};  // by ServeEnd

 private:
  Status Stream(FakeBundle* bundle, BlockStream* stream);
  FakeNode* node_;
};

// A seal of the right shape for `identity` with made-up digests.
Seal ReferenceSeal(const LocalIdentity& self, const ContentIdentity& identity);
std::vector<TokenId> SomeTokens(size_t count, uint64_t seed);

}  // namespace baton

#endif  // BATON_HANDOFF_TESTING_FAKE_NODE_H_
