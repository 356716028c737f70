#include "handoff/testing/fake_node.h"

#include <cstdio>

#include "base/rng.h"
#include "base/sha256.h"
#include "handoff/parts.h"
#include "handoff/seal_bundle.h"

namespace baton {
namespace {

// A fake node that cannot be set up is a broken test.
template <class T>
T Must(StatusOr<T> v) {
  if (!v.ok()) std::fprintf(stderr, "fake node: %s\n", v.status().ToString().c_str());
  BATON_CHECK(v.ok());
  return *std::move(v);
}

}  // namespace

Layout SmallLayout() {
  LayoutSpec spec;
  for (uint32_t layer : {0u, 1u, 3u}) {
    spec.parts.push_back({layer, "conv", ElementType::kF32, {3, 20}, "tap-oldest-first,channel"});
    spec.parts.push_back({layer, "ssm", ElementType::kF32, {2, 10, 16}, "H,P,N"});
  }
  KvGroup full;
  full.name = "full";
  full.layers = {2};
  full.kv_heads = 1;
  full.head_dim = 8;
  KvGroup window = full;
  window.name = "window";
  window.window = 24;
  window.layers = {4};
  spec.groups = {full, window};
  spec.numerics_tag = Sha256Of(std::as_bytes(std::span("numerics")));
  return Must(Layout::Build(std::move(spec)));
}

Layout BigLayout(size_t layers, uint64_t part_bytes) {
  LayoutSpec spec;
  for (size_t i = 0; i < layers; ++i)
    spec.parts.push_back({static_cast<uint32_t>(i),
                          "ssm",
                          ElementType::kF32,
                          {static_cast<int64_t>(part_bytes / 4)},
                          "N"});
  KvGroup full;
  full.name = "full";
  full.layers = {static_cast<uint32_t>(layers)};
  full.kv_heads = 8;
  full.head_dim = 64;
  spec.groups = {full};
  return Must(Layout::Build(std::move(spec)));
}

FakeNode::FakeNode(const FakeNodeOptions& options) {
  self_.node = RandomBytes<NodeId>();
  self_.epoch = RandomBytes<Epoch>();
  self_.model = options.model;
  self_.layout = options.layout;
  self_.digester = options.digester;
  self_.protocol = options.protocol;
  const Layout& lay = *options.layout;
  uint64_t bytes = uint64_t{options.slots} * (lay.slot_bytes() + 3 * 4096) + 4096;  // guards
  for (const KvGroup& group : lay.groups())
    bytes += uint64_t{options.blocks} * (group.block_bytes + 3 * 64) + 4096;
  ArenaOptions arena;
  arena.shareable = true;
  arena_ = Must(Arena::Create(bytes, arena));
  PoolOptions pool;
  pool.arena = arena_.get();
  pool.device = &device_;
  pool.node = self_.node;
  pool.epoch = self_.epoch;
  if (lay.has_state()) {
    pool.unit_bytes = lay.slot_bytes();
    pool.align = Layout::kSlotAlign;
    pool.units = options.slots;
    for (const StatePart& part : lay.parts()) pool.extents.push_back({part.offset, part.bytes});
    slots_ = Must(SlotPool::Create(pool));
    pools_.slots = slots_.get();
  }
  for (size_t g = 0; g < lay.groups().size(); ++g) {
    pool.unit_bytes = lay.groups()[g].block_bytes;
    pool.align = 64;
    pool.units = options.blocks;
    pool.pool_id = static_cast<uint32_t>(g + 1);
    pool.extents = {{0, lay.groups()[g].block_bytes}};
    pool.permute_seed += 77;
    blocks_.push_back(Must(BlockPool::Create(pool)));
    pools_.blocks.push_back(blocks_.back().get());
  }
}

Sha256 FakeNode::Scope() { return ScopeOf("tenant"); }

ContentIdentity FakeNode::IdentityOf(std::span<const TokenId> tokens) const {
  return Base().At(PrefixChain(Scope(), tokens));
}

PullRequest FakeNode::NewRequest(const std::string& endpoint,
                                 std::vector<TokenId> tokens,
                                 Attempt attempt,
                                 Instant deadline) {
  PullRequest request;
  request.endpoint = endpoint;
  request.ask.attempt = attempt;
  request.ask.expected = IdentityOf(tokens);
  request.ask.label = "test";
  request.deadline = deadline;
  const ReserveOptions reserve{OwnerId(owners_++), attempt, FillMode::kGapsOnly};
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<BlockHandle> handles;
    for (uint64_t b = 0; b < layout().BlockCount(g, tokens.size()); ++b)
      handles.push_back(Must(blocks_[g]->Reserve(reserve)));
    request.blocks.push_back(std::move(handles));
  }
  if (slots_ != nullptr) request.slot = Must(slots_->Reserve(reserve));
  request.ask.tokens = std::move(tokens);
  return request;
}

void FakeNode::FreeUnits(const PullRequest& request) {
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (const BlockHandle& handle : request.blocks[g]) blocks_[g]->Free(handle).IgnoreError();
  if (request.slot.has_value()) slots_->Free(*request.slot).IgnoreError();
}

std::vector<UnitState> FakeNode::StatesOf(const PullRequest& request) const {
  std::vector<UnitState> states;
  for (size_t g = 0; g < blocks_.size(); ++g)
    for (const BlockHandle& handle : request.blocks[g])
      states.push_back(blocks_[g]->StateOf(handle).value_or(UnitState::kFree));
  if (request.slot.has_value())
    states.push_back(slots_->StateOf(*request.slot).value_or(UnitState::kFree));
  return states;
}

std::vector<std::vector<std::byte>> FakeNode::BytesOf(const PullRequest& request) const {
  std::vector<std::vector<std::byte>> out;
  StateLease slot;
  if (request.slot.has_value()) slot = Must(slots_->Acquire(*request.slot, LeaseFor::kDigest));
  for (const BundlePart& part : BundleParts(layout(), request.ask.expected.boundary)) {
    MutableByteSpan bytes;
    BlockLease block;
    if (part.is_state) {
      bytes = slot.bytes().subspan(layout().parts()[part.part].offset, part.bytes);
    } else {
      block = Must(
          blocks_[part.group]->Acquire(request.blocks[part.group][part.slot], LeaseFor::kDigest));
      bytes = block.bytes().first(part.bytes);
    }
    out.emplace_back(bytes.begin(), bytes.end());
  }
  return out;
}

uint64_t FakeNode::UnitsInUse() const {
  uint64_t n = slots_ == nullptr ? 0 : slots_->Stats().used;
  for (const auto& pool : blocks_) n += pool->Stats().used;
  return n;
}

uint64_t FakeNode::UnitsQuarantined() const {
  uint64_t n = slots_ == nullptr ? 0 : slots_->Stats().quarantined;
  for (const auto& pool : blocks_) n += pool->Stats().quarantined;
  return n;
}

Status FakeNode::CheckInvariants() const {
  for (const auto& pool : blocks_) BATON_RETURN_IF_ERROR(pool->CheckInvariants());
  return slots_ == nullptr ? absl::OkStatus() : slots_->CheckInvariants();
}

void FillFinite(MutableByteSpan bytes, const Sha256& seed) {
  uint64_t state;
  std::memcpy(&state, seed.bytes.data(), sizeof state);
  SplitMix64 rng(state);
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const float value = static_cast<float>(rng.Uniform() * 2 - 1);
    std::memcpy(bytes.data() + i, &value, 4);
  }
}

std::vector<std::byte> ReferenceBytes(const IdentityBase& base,
                                      std::span<const TokenId> tokens,
                                      const BundlePart& part) {
  const PrefixChain chain(base.scope, tokens);
  const bool own_end = !part.is_state && part.block < chain.full_blocks();
  ByteWriter w;
  w.Put((own_end ? base.AtBlockEnd(chain, part.block) : base.At(chain)).Key());
  w.Put(part.key);
  std::vector<std::byte> out(part.bytes);
  FillFinite(out, Sha256Of(AsBytes(w.data())));
  return out;
}

std::vector<std::vector<std::byte>> ReferenceBundle(const FakeNode& node,
                                                    std::span<const TokenId> tokens) {
  std::vector<std::vector<std::byte>> out;
  for (const BundlePart& part : BundleParts(node.layout(), tokens.size()))
    out.push_back(ReferenceBytes(node.Base(), tokens, part));
  return out;
}

StatusOr<std::unique_ptr<FakeBundle>> FakeBundle::Make(FakeNode* node, const Content& content) {
  std::unique_ptr<FakeBundle> bundle(new FakeBundle(node));
  BATON_RETURN_IF_ERROR(bundle->Reserve(content.tokens.size()));
  BATON_RETURN_IF_ERROR(bundle->Write(content));
  BATON_RETURN_IF_ERROR(bundle->SealUnits());
  const LiveRecord blocks_of(content.base, PrefixChain(content.base.scope, content.tokens));
  const LiveRecord live(content.base,
                        PrefixChain(content.base.scope,
                                    content.honest_record ? content.state_tokens : content.tokens));
  SealRequest request;
  request.claim = blocks_of.Identity();
  request.live = &live;
  request.state_id = content.state_id;
  request.slot = bundle->slot.bytes();
  for (size_t g = 0; g < node->layout().groups().size(); ++g) {
    bundle->block_digests.emplace_back();
    for (size_t b = 0; b < bundle->blocks[g].size(); ++b) {
      const uint64_t block = node->layout().FirstBlock(g, content.tokens.size()) + b;
      BATON_ASSIGN_OR_RETURN(
          const Digest128 digest,
          DigestKvBlock(node->self(), node->device(), blocks_of.BlockIdentity(block).Key(), g,
                        bundle->blocks[g][b].bytes()));
      bundle->block_digests[g].push_back(digest);
    }
  }
  request.block_digests = bundle->block_digests;
  BATON_ASSIGN_OR_RETURN(bundle->seal, SealBundle(node->self(), node->device(), request));
  return bundle;
}

Status FakeBundle::Reserve(uint64_t boundary) {
  const BundlePools& pools = node_->pools();
  const ReserveOptions reserve{OwnerId(1), Attempt(0), FillMode::kZero};
  if (pools.slots != nullptr) {
    BATON_ASSIGN_OR_RETURN(slot_handle, pools.slots->Reserve(reserve));
    BATON_RETURN_IF_ERROR(pools.slots->Activate(*slot_handle));
  }
  block_handles.resize(pools.blocks.size());
  for (size_t g = 0; g < pools.blocks.size(); ++g) {
    for (uint64_t b = 0; b < node_->layout().BlockCount(g, boundary); ++b) {
      BATON_ASSIGN_OR_RETURN(const BlockHandle handle, pools.blocks[g]->Reserve(reserve));
      block_handles[g].push_back(handle);
      BATON_RETURN_IF_ERROR(pools.blocks[g]->Activate(handle));
    }
  }
  return absl::OkStatus();
}

Status FakeBundle::Write(const Content& content) {
  const BundlePools& pools = node_->pools();
  for (const BundlePart& part : BundleParts(node_->layout(), content.tokens.size())) {
    const std::vector<std::byte> bytes =
        ReferenceBytes(content.base, part.is_state ? content.state_tokens : content.tokens, part);
    if (part.is_state) {
      BATON_ASSIGN_OR_RETURN(const StateLease lease,
                             pools.slots->Acquire(*slot_handle, LeaseFor::kCompute));
      std::copy(bytes.begin(), bytes.end(),
                lease.bytes().begin() +
                    static_cast<ptrdiff_t>(node_->layout().parts()[part.part].offset));
    } else {
      BATON_ASSIGN_OR_RETURN(const BlockLease lease,
                             pools.blocks[part.group]->Acquire(block_handles[part.group][part.slot],
                                                               LeaseFor::kCompute));
      std::copy(bytes.begin(), bytes.end(), lease.bytes().begin());
    }
  }
  return absl::OkStatus();
}

Status FakeBundle::SealUnits() {
  const BundlePools& pools = node_->pools();
  if (slot_handle.has_value()) {
    BATON_RETURN_IF_ERROR(pools.slots->Seal(*slot_handle));
    BATON_ASSIGN_OR_RETURN(slot, pools.slots->Acquire(*slot_handle, LeaseFor::kSend));
  }
  blocks.resize(block_handles.size());
  for (size_t g = 0; g < block_handles.size(); ++g) {
    for (const BlockHandle& handle : block_handles[g]) {
      BATON_RETURN_IF_ERROR(pools.blocks[g]->Seal(handle));
      BATON_ASSIGN_OR_RETURN(BlockLease lease, pools.blocks[g]->Acquire(handle, LeaseFor::kSend));
      blocks[g].push_back(std::move(lease));
    }
  }
  return absl::OkStatus();
}

void FakeBundle::Free() {
  blocks.clear();
  slot.Release();
  const BundlePools& pools = node_->pools();
  for (size_t g = 0; g < block_handles.size(); ++g)
    for (const BlockHandle& handle : block_handles[g]) pools.blocks[g]->Free(handle).IgnoreError();
  block_handles.clear();
  if (slot_handle.has_value()) pools.slots->Free(*slot_handle).IgnoreError();
  slot_handle.reset();
}

FakeBundle::~FakeBundle() { Free(); }

void FakeBundle::OnEnd(ServeEnd end) {
  if (on_end != nullptr) on_end(end);
}

StatusOr<std::unique_ptr<ServedBundle>> FakeProvider::Provide(const Ask& ask,
                                                              Instant deadline,
                                                              const CancelToken& cancel) {
  return ProvideStreaming(ask, deadline, cancel, nullptr);
}

Status FakeProvider::Stream(FakeBundle* bundle, BlockStream* stream) {
  const Layout& layout = node_->layout();
  const uint64_t boundary = bundle->seal.identity.boundary;
  for (size_t batch = 0; batch < early_batches; ++batch) {
    std::vector<EarlyBlock> blocks;
    for (size_t g = 0; g < bundle->block_handles.size(); ++g) {
      const size_t n = bundle->block_handles[g].size();
      for (size_t b = batch * n / early_batches; b < (batch + 1) * n / early_batches; ++b) {
        BATON_ASSIGN_OR_RETURN(BlockLease lease, node_->pools().blocks[g]->Acquire(
                                                     bundle->block_handles[g][b], LeaseFor::kSend));
        blocks.push_back(
            {g, layout.FirstBlock(g, boundary) + b, bundle->block_digests[g][b], std::move(lease)});
      }
    }
    if (tamper_early != nullptr) tamper_early(&blocks);
    stream->Add(bundle->seal.state_id, std::move(blocks));
    if (between != nullptr) between(batch, bundle, stream);
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<ServedBundle>> FakeProvider::ProvideStreaming(
    const Ask& ask,
    Instant,
    const CancelToken& cancel,
    const std::shared_ptr<BlockStream>& stream) {
  ++asked;
  if (before != nullptr) BATON_RETURN_IF_ERROR(before(ask, cancel));
  FakeBundle::Content content;
  content.base = {node_->self().model, node_->layout().fingerprint(), ask.expected.scope};
  content.tokens = ask.tokens;
  content.state_tokens = ask.tokens;
  if (this->content != nullptr) this->content(&content);
  BATON_ASSIGN_OR_RETURN(auto bundle, FakeBundle::Make(node_, content));
  bundle->on_end = [this](ServeEnd end) { ++ended[static_cast<int>(end)]; };
  if (tamper != nullptr) tamper(bundle.get());
  if (stream != nullptr) BATON_RETURN_IF_ERROR(Stream(bundle.get(), stream.get()));
  return std::unique_ptr<ServedBundle>(std::move(bundle));
}

Seal ReferenceSeal(const LocalIdentity& self, const ContentIdentity& identity) {
  Seal seal;
  seal.identity = identity;
  seal.state_id = RandomBytes<StateId>();
  seal.producer = self.node;
  seal.epoch = self.epoch;
  seal.algorithm = self.digester.algorithm();
  for (size_t p = 0; p < self.layout->StatePartCount(); ++p)
    seal.state_digests.push_back(RandomBytes<Digest128>());
  seal.block_root = RandomBytes<Digest128>();
  seal.block_count = static_cast<uint32_t>(self.layout->TotalBlocks(identity.boundary));
  return seal;
}

std::vector<TokenId> SomeTokens(size_t count, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.Below(1000));
  return tokens;
}

}  // namespace baton
