#include "api/plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "handoff/parts.h"
#include "handoff/seal_bundle.h"
#include "handoff/verify.h"

namespace baton::plane::internal {
namespace {

constexpr uint32_t kUnitsMax = uint32_t{1} << 24;

ElementType Internal(Element e) {
  switch (e) {
    case Element::kBF16:
      return ElementType::kBF16;
    case Element::kF16:
      return ElementType::kF16;
    case Element::kF32:
      break;
  }
  return ElementType::kF32;
}

absl::StatusOr<Layout> LayoutOf(const Options& options) {
  LayoutSpec spec;
  for (const plane::StatePart& p : options.parts) {
    baton::StatePart part;
    part.layer = p.layer;
    part.component = p.component;
    part.dtype = Internal(p.element);
    part.shape = p.shape;
    part.axes = p.axes;
    spec.parts.push_back(std::move(part));
  }
  for (const plane::KvGroup& g : options.groups) {
    baton::KvGroup group;
    group.name = g.name;
    group.layers = g.layers;
    group.kv_heads = g.kv_heads;
    group.head_dim = g.head_dim;
    group.dtype = Internal(g.element);
    group.window = g.window;
    spec.groups.push_back(std::move(group));
  }
  std::copy(options.numerics.begin(), options.numerics.end(), spec.numerics_tag.bytes.begin());
  if (spec.parts.empty() && spec.groups.empty())
    return absl::InvalidArgumentError("neither state parts nor KV groups are described");
  return Layout::Build(std::move(spec));
}

// Pool 1: slots; 2, 3, ...: blocks of each group.
absl::StatusOr<std::vector<PoolOptions>> PoolsOf(const Layout& layout, const Options& options) {
  const auto in_range = [](uint32_t n) { return n >= 1 && n <= kUnitsMax; };
  if (!in_range(options.slots) || !in_range(options.blocks))
    return absl::InvalidArgumentError(absl::StrCat("slots ", options.slots, ", blocks ",
                                                   options.blocks, ": expected 1 to ", kUnitsMax));
  std::vector<PoolOptions> pools;
  if (layout.has_state()) {
    PoolOptions pool;
    pool.unit_bytes = layout.slot_bytes();
    pool.align = Layout::kSlotAlign;
    pool.units = options.slots;
    pool.pool_id = 1;
    for (const baton::StatePart& part : layout.parts())
      pool.extents.push_back({part.offset, part.bytes});
    pools.push_back(std::move(pool));
  }
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    PoolOptions pool;
    pool.unit_bytes = layout.groups()[g].block_bytes;
    pool.units = options.blocks;
    pool.pool_id = static_cast<uint32_t>(2 + g);
    pools.push_back(std::move(pool));
  }
  return pools;
}

// What a served bundle pins, and the bundle itself.
class Served final : public ServedBundle {
 public:
  explicit Served(std::shared_ptr<Offered> offered) : offered_(std::move(offered)) {}
  void OnEnd(ServeEnd end) override {
    if (end != ServeEnd::kReleased) return;
    MutexLock lock(&offered_->mu);
    ++offered_->released;
    offered_->changed.NotifyAll();
  }

 private:
  std::shared_ptr<Offered> offered_;
};

}  // namespace

plane::Status ToPublic(const absl::Status& status) {
  plane::Status out;
  out.ok = status.ok();
  if (const auto reason = ReasonOf(status)) out.reason = std::string(ReasonName(*reason));
  out.message = std::string(status.message());
  return out;
}

SequenceState::~SequenceState() { plane->Free(slot, blocks); }

Offered::~Offered() { plane->Free(slot, blocks); }

void Plane::Free(const std::optional<SlotHandle>& slot,
                 const std::vector<std::vector<BlockHandle>>& blocks) {
  // A unit that a peer still reads is kept by its lease until that ends.
  if (slot.has_value()) (void)slots_->Free(*slot);
  for (size_t g = 0; g < blocks.size(); ++g)
    for (const BlockHandle& block : blocks[g]) (void)blocks_[g]->Free(block);
}

absl::StatusOr<uint64_t> Plane::MemoryBytes(const Options& options) {
  BATON_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(options));
  BATON_ASSIGN_OR_RETURN(const std::vector<PoolOptions> pools, PoolsOf(layout, options));
  uint64_t bytes = 0;
  for (const PoolOptions& pool : pools)
    bytes += (PoolBytes(pool) + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
  return bytes;
}

absl::Status Plane::MakeMemory(const Options& options) {
  BATON_ASSIGN_OR_RETURN(std::vector<PoolOptions> pools, PoolsOf(layout_, options));
  BATON_ASSIGN_OR_RETURN(const uint64_t bytes, MemoryBytes(options));
  if (options.memory != nullptr) {
    if (options.memory_bytes < bytes)
      return absl::InvalidArgumentError(
          absl::StrCat("memory of ", options.memory_bytes, " bytes; ", bytes, " are needed"));
    BATON_ASSIGN_OR_RETURN(arena_, Arena::Adopt({static_cast<std::byte*>(options.memory),
                                                 static_cast<size_t>(options.memory_bytes)},
                                                options.memory_fd));
  } else {
    ArenaOptions arena;
    arena.shareable = true;
    BATON_ASSIGN_OR_RETURN(arena_, Arena::Create(bytes, arena));
  }
  for (PoolOptions& pool : pools) {
    pool.arena = arena_.get();
    pool.device = &device_;
    pool.node = self_.node;
    pool.epoch = self_.epoch;
    if (pool.pool_id == 1) {
      BATON_ASSIGN_OR_RETURN(slots_, SlotPool::Create(pool));
    } else {
      BATON_ASSIGN_OR_RETURN(auto blocks, BlockPool::Create(pool));
      blocks_.push_back(std::move(blocks));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Plane>> Plane::Create(const Options& options) {
  auto plane = std::unique_ptr<Plane>(new Plane);
  BATON_ASSIGN_OR_RETURN(plane->layout_, LayoutOf(options));
  LocalIdentity& self = plane->self_;
  self.node = RandomBytes<NodeId>();
  self.epoch = RandomBytes<Epoch>();
  std::copy(options.model.begin(), options.model.end(), self.model.bytes.begin());
  self.layout = &plane->layout_;
  if (!options.digest_key.empty()) {
    BATON_ASSIGN_OR_RETURN(
        self.digester, Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(options.digest_key)));
  }
  plane->on_ask_ = options.on_ask;
  plane->tenants_[ScopeOf("")] = "";
  for (const std::string& tenant : options.tenants) plane->tenants_[ScopeOf(tenant)] = tenant;
  BATON_RETURN_IF_ERROR(plane->MakeMemory(options));

  plane->connectors_ =
      std::make_unique<ConnectorSet>(ConnectorSet::Standard(&plane->clock_, nullptr));
  HandoffClientOptions client;
  client.self = self;
  client.pools.slots = plane->slots_.get();
  for (const auto& pool : plane->blocks_) client.pools.blocks.push_back(pool.get());
  client.clock = &plane->clock_;
  client.device = &plane->device_;
  client.connectors = plane->connectors_.get();
  client.stats = &plane->stats_;
  plane->client_ = std::make_unique<HandoffClient>(std::move(client));

  HandoffServerOptions server;
  server.self = self;
  server.clock = &plane->clock_;
  server.regions = {
      SourceRegion{ByteSpan(plane->arena_->data(), plane->arena_->size()), plane->arena_->fd()}};
  server.stats = &plane->stats_;
  server.lease = options.lease;
  plane->server_ = std::make_unique<HandoffServer>(std::move(server), plane.get());
  for (const std::string& endpoint : options.listen)
    BATON_RETURN_IF_ERROR(plane->server_->AddListener(endpoint));
  plane->server_->Start();
  return plane;
}

Plane::~Plane() { Stop(); }

void Plane::Stop() {
  if (server_ != nullptr) server_->Stop();
}

IdentityBase Plane::BaseOf(const Sha256& scope) const {
  return IdentityBase{self_.model, layout_.fingerprint(), scope};
}

absl::StatusOr<std::unique_ptr<SequenceState>> Plane::Begin(std::string_view tenant) {
  auto sequence = std::make_unique<SequenceState>(this, LiveRecord(BaseOf(ScopeOf(tenant))));
  BATON_RETURN_IF_ERROR(Reserve(0, FillMode::kZero, sequence.get()));
  if (sequence->slot.has_value()) BATON_RETURN_IF_ERROR(slots_->Activate(*sequence->slot));
  return sequence;
}

// A slot if there is none yet, and blocks up to `tokens`; RESERVED.
absl::Status Plane::Reserve(uint64_t tokens, FillMode fill, SequenceState* sequence) {
  ReserveOptions options;
  options.owner = OwnerId(next_owner_.fetch_add(1));
  options.fill = fill;
  if (slots_ != nullptr && !sequence->slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(sequence->slot, slots_->Reserve(options));
  }
  sequence->blocks.resize(blocks_.size());
  sequence->first.resize(blocks_.size());
  const auto wanted = static_cast<uint64_t>(BlocksFor(static_cast<int64_t>(tokens)));
  for (size_t g = 0; g < blocks_.size(); ++g)
    while (sequence->first[g] + sequence->blocks[g].size() < wanted) {
      BATON_ASSIGN_OR_RETURN(const BlockHandle block, blocks_[g]->Reserve(options));
      sequence->blocks[g].push_back(block);
    }
  return absl::OkStatus();
}

absl::Status Plane::Extend(SequenceState* sequence, uint64_t tokens) {
  if (tokens > kAskTokensMax)
    return absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens; at most ", kAskTokensMax, " can be handed over"));
  std::vector<size_t> before;
  for (const auto& group : sequence->blocks) before.push_back(group.size());
  const absl::Status status = Reserve(tokens, FillMode::kZero, sequence);
  for (size_t g = 0; g < sequence->blocks.size(); ++g) {
    std::vector<BlockHandle>& blocks = sequence->blocks[g];
    if (!status.ok()) {
      for (; blocks.size() > before[g]; blocks.pop_back()) (void)blocks_[g]->Free(blocks.back());
      continue;
    }
    for (size_t i = before[g]; i < blocks.size(); ++i)
      BATON_RETURN_IF_ERROR(blocks_[g]->Activate(blocks[i]));
  }
  return status;
}

absl::StatusOr<std::unique_ptr<LeaseState>> Plane::Pin(const SequenceState& sequence) {
  auto lease = std::make_unique<LeaseState>();
  lease->layout = &layout_;
  if (sequence.slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(lease->slot, slots_->Acquire(*sequence.slot, LeaseFor::kCompute));
  }
  for (size_t g = 0; g < blocks_.size(); ++g) {
    BATON_ASSIGN_OR_RETURN(BlockLeaseSet set,
                           blocks_[g]->AcquireAll(sequence.blocks[g], LeaseFor::kCompute));
    lease->blocks.push_back(std::move(set));
  }
  lease->first = sequence.first;
  return lease;
}

absl::Status Plane::Advance(SequenceState* sequence, std::span<const TokenId> tokens) {
  const uint64_t after = sequence->record.boundary() + tokens.size();
  for (size_t g = 0; g < blocks_.size(); ++g)
    if (sequence->first[g] + sequence->blocks[g].size() <
        static_cast<uint64_t>(BlocksFor(static_cast<int64_t>(after))))
      return absl::FailedPreconditionError(
          absl::StrCat("no KV blocks for ", after, " tokens; call Extend first"));
  sequence->record.Advance(tokens);
  LeaveBehind(sequence);
  return absl::OkStatus();
}

// Frees what no token from the boundary on can see. What a Lease still pins stays until it ends.
void Plane::LeaveBehind(SequenceState* sequence) {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<BlockHandle>& blocks = sequence->blocks[g];
    const uint64_t seen = layout_.FirstBlock(g, sequence->record.boundary());
    if (seen <= sequence->first[g]) continue;
    const auto end = blocks.begin() + static_cast<ptrdiff_t>(seen - sequence->first[g]);
    std::for_each(blocks.begin(), end, [&](const BlockHandle& b) { (void)blocks_[g]->Free(b); });
    blocks.erase(blocks.begin(), end);
    sequence->first[g] = seen;
  }
}

// LIVE -> SEALED for every unit, digests of the blocks, and the seal.
absl::Status Plane::SealUnits(Offered* offered) {
  const LiveRecord& record = offered->record;
  if (!record.valid())
    return Reject(Reason::kIdentityMismatch,
                  "a step failed half way: nobody knows what this sequence holds");
  SealRequest request;
  request.claim = record.Identity();
  request.live = &record;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<BlockHandle>& blocks = offered->blocks[g];
    const uint64_t first = offered->first[g];
    const size_t count = record.boundary() / kBlockTokens - first;
    for (; blocks.size() > count; blocks.pop_back()) (void)blocks_[g]->Free(blocks.back());
    std::vector<Digest128> digests;
    for (size_t i = 0; i < count; ++i) {
      BATON_RETURN_IF_ERROR(blocks_[g]->Seal(blocks[i]));
      BATON_ASSIGN_OR_RETURN(const BlockLease lease,
                             blocks_[g]->Acquire(blocks[i], LeaseFor::kDigest));
      BATON_ASSIGN_OR_RETURN(
          const Digest128 digest,
          DigestKvBlock(self_, device_, record.BlockIdentity(first + i).Key(), g,
                        ByteSpan(lease.bytes()).first(layout_.groups()[g].block_bytes)));
      digests.push_back(digest);
    }
    request.block_digests.push_back(std::move(digests));
  }
  StateLease lease;
  if (offered->slot.has_value()) {
    BATON_RETURN_IF_ERROR(slots_->Seal(*offered->slot));
    BATON_ASSIGN_OR_RETURN(lease, slots_->Acquire(*offered->slot, LeaseFor::kDigest));
    request.slot = ByteSpan(lease.bytes()).first(layout_.slot_bytes());
  }
  BATON_ASSIGN_OR_RETURN(offered->seal, SealBundle(self_, device_, request));
  offered->block_digests = std::move(request.block_digests);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Offered>> Plane::Seal(std::unique_ptr<SequenceState> sequence) {
  const uint64_t boundary = sequence->record.boundary();
  if (boundary == 0 || boundary % kBlockTokens != 0)
    return absl::FailedPreconditionError(absl::StrCat("a bundle can be offered at multiples of ",
                                                      kBlockTokens, " tokens only, not at ",
                                                      boundary));
  auto offered = std::make_shared<Offered>(this, sequence->record);
  offered->slot = std::exchange(sequence->slot, std::nullopt);
  offered->blocks = std::exchange(sequence->blocks, {});
  offered->first = sequence->first;
  BATON_RETURN_IF_ERROR(SealUnits(offered.get()));
  MutexLock lock(&mu_);
  shelf_[offered->record.Identity().Key()].push_back(offered);
  return offered;
}

void Plane::Withdraw(const Offered& offered) {
  MutexLock lock(&mu_);
  const auto it = shelf_.find(offered.record.Identity().Key());
  if (it == shelf_.end()) return;
  std::erase_if(it->second, [&](const std::weak_ptr<Offered>& weak) {
    const std::shared_ptr<Offered> one = weak.lock();
    return one == nullptr || one.get() == &offered;
  });
  if (it->second.empty()) shelf_.erase(it);
}

std::shared_ptr<Offered> Plane::Find(const ContentIdentity& identity) {
  MutexLock lock(&mu_);
  const auto it = shelf_.find(identity.Key());
  if (it == shelf_.end()) return nullptr;
  for (const std::weak_ptr<Offered>& weak : it->second)
    if (std::shared_ptr<Offered> one = weak.lock()) return one;
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ServedBundle>> Plane::Provide(const Ask& ask,
                                                             Instant deadline,
                                                             const CancelToken& cancel) {
  (void)deadline;
  (void)cancel;
  std::shared_ptr<Offered> offered = Find(ask.expected);
  const auto tenant = tenants_.find(ask.expected.scope);
  if (offered == nullptr && on_ask_ != nullptr && tenant != tenants_.end()) {
    on_ask_(tenant->second, ask.tokens);
    offered = Find(ask.expected);
  }
  if (offered == nullptr)
    return absl::NotFoundError(
        absl::StrCat("no bundle of these ", ask.tokens.size(), " tokens is offered here"));
  auto served = std::make_unique<Served>(offered);
  served->seal = offered->seal;
  served->block_digests = offered->block_digests;
  served->reused_tokens = offered->record.boundary();
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<BlockLease>& leases = served->blocks.emplace_back();
    for (const BlockHandle& block : offered->blocks[g]) {
      BATON_ASSIGN_OR_RETURN(BlockLease lease, blocks_[g]->Acquire(block, LeaseFor::kSend));
      leases.push_back(std::move(lease));
    }
  }
  if (offered->slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(served->slot, slots_->Acquire(*offered->slot, LeaseFor::kSend));
  }
  return served;
}

absl::Status Plane::Verify(const Offered& offered) {
  Verifier verifier;
  verifier.layout = &layout_;
  verifier.digester = &self_.digester;
  verifier.device = &device_;
  Expectation expected;
  expected.identity = offered.record.Identity();
  expected.chain = &offered.record.chain();
  BundleClaim claim;
  claim.state_id = offered.seal.state_id;
  claim.seal = offered.seal;
  claim.block_digests = offered.block_digests;
  StateLease slot;
  if (offered.slot.has_value()) {
    BATON_ASSIGN_OR_RETURN(slot, slots_->Acquire(*offered.slot, LeaseFor::kDigest));
  }
  std::vector<BlockLeaseSet> blocks;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    BATON_ASSIGN_OR_RETURN(BlockLeaseSet set,
                           blocks_[g]->AcquireAll(offered.blocks[g], LeaseFor::kDigest));
    blocks.push_back(std::move(set));
  }
  LandedBundle landed;
  for (const BundlePart& part : BundleParts(layout_, expected.identity.boundary)) {
    const ByteSpan bytes =
        part.is_state
            ? ByteSpan(slot.bytes()).subspan(layout_.parts()[part.part].offset, part.bytes)
            : ByteSpan(blocks[part.group].bytes(part.slot)).first(part.bytes);
    landed.parts.push_back({part, bytes, part.bytes, part.bytes, part.bytes});
  }
  return VerifyBundle(verifier, expected, claim, landed);
}

absl::StatusOr<std::unique_ptr<SequenceState>> Plane::Pull(const PullOptions& options,
                                                           std::span<const TokenId> tokens) {
  if (tokens.empty() || tokens.size() % kBlockTokens != 0 || tokens.size() > kAskTokensMax)
    return absl::InvalidArgumentError(
        absl::StrCat(tokens.size(), " tokens; a bundle has a multiple of ", kBlockTokens,
                     ", at least one and at most ", kAskTokensMax));
  const Sha256 scope = ScopeOf(options.tenant);
  PrefixChain chain(scope, tokens);
  auto sequence = std::make_unique<SequenceState>(this, LiveRecord(BaseOf(scope), chain));
  for (size_t g = 0; g < blocks_.size(); ++g)
    sequence->first.push_back(layout_.FirstBlock(g, tokens.size()));
  BATON_RETURN_IF_ERROR(Reserve(tokens.size(), FillMode::kGapsOnly, sequence.get()));

  PullRequest request;
  request.endpoint = options.endpoint;
  request.ask.attempt = Attempt(next_attempt_.fetch_add(1));
  request.ask.expected = BaseOf(scope).At(chain);
  request.ask.tokens.assign(tokens.begin(), tokens.end());
  request.deadline =
      clock_.Now() + std::min<std::chrono::milliseconds>(options.timeout, kTimeoutMax);
  request.slot = std::exchange(sequence->slot, std::nullopt);  // the client's until it returns
  request.blocks = std::exchange(sequence->blocks, {});
  CancelSource never;
  PullResult result = client_->Pull(request, never.get_token());
  if (!result.status.ok()) return result.status;
  sequence->slot = result.slot;
  sequence->blocks = std::move(result.blocks);
  if (sequence->slot.has_value()) BATON_RETURN_IF_ERROR(slots_->Activate(*sequence->slot));
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (const BlockHandle& block : sequence->blocks[g])
      BATON_RETURN_IF_ERROR(blocks_[g]->Activate(block));
  return sequence;
}

}  // namespace baton::plane::internal
