#include "connector/hostile/hostile_provider.h"

#include <utility>

#include "handoff/parts.h"

namespace baton {

void HostileProvider::Arm(SourceAttack attack, int times) {
  MutexLock lock(&mu_);
  attack_ = std::make_shared<const SourceAttack>(std::move(attack));
  times_ = times;
}

StatusOr<std::unique_ptr<ServedBundle>> HostileProvider::Provide(const Ask& ask,
                                                                 Instant deadline,
                                                                 const CancelToken& cancel) {
  return ProvideStreaming(ask, deadline, cancel, nullptr);
}

StatusOr<std::unique_ptr<ServedBundle>> HostileProvider::ProvideStreaming(
    const Ask& ask,
    Instant deadline,
    const CancelToken& cancel,
    const std::shared_ptr<BlockStream>& stream) {
  std::shared_ptr<const SourceAttack> attack;
  {
    MutexLock lock(&mu_);
    if (times_ > 0) {
      --times_;
      attack = attack_;
    }
  }
  if (attack == nullptr) return inner_->ProvideStreaming(ask, deadline, cancel, stream);
  Ask changed = ask;
  if (attack->ask != nullptr) attack->ask(&changed);
  BATON_ASSIGN_OR_RETURN(auto bundle,
                         inner_->ProvideStreaming(changed, deadline, cancel,
                                                  attack->ask == nullptr ? stream : nullptr));
  if (attack->bundle != nullptr) attack->bundle(ask, bundle.get());
  return bundle;
}

void ForgeSeal(const LocalIdentity& self,
               const Device& device,
               const ContentIdentity& claim,
               std::span<const TokenId> tokens,
               ServedBundle* bundle) {
  const Layout& layout = *self.layout;
  const IdentityBase base{claim.model, claim.layout, claim.scope};
  const PrefixChain chain(claim.scope, tokens);
  std::vector<Digest128> all;
  for (const BundlePart& part : BundleParts(layout, claim.boundary)) {
    if (part.is_state) {
      const StatePart& state = layout.parts()[part.part];
      bundle->seal.state_digests[part.part] =
          device
              .Digest(self.digester, StateSeed(claim.Key(), state),
                      bundle->slot.bytes().subspan(state.offset, state.bytes))
              .digest;
    } else {
      const DigestSeed seed = BlockSeed(base.AtBlockEnd(chain, part.block).Key(), part.group,
                                        layout.groups()[part.group]);
      const ByteSpan bytes = bundle->blocks[part.group][part.slot].bytes();
      all.push_back(bundle->block_digests[part.group][part.slot] =
                        device.Digest(self.digester, seed, bytes.first(part.bytes)).digest);
    }
  }
  bundle->seal.identity = claim;
  bundle->seal.block_root = self.digester.BlockRoot(all);
  bundle->seal.block_count = static_cast<uint32_t>(all.size());
}

SourceAttack ServeShorter(uint64_t fewer) {
  SourceAttack attack;
  attack.ask = [fewer](Ask* ask) {
    if (fewer >= ask->tokens.size()) return;
    ask->tokens.resize(ask->tokens.size() - fewer);
    ask->expected.boundary = ask->tokens.size();
    ask->expected.prefix = PrefixChain::HashOf(ask->expected.scope, ask->tokens);
  };
  return attack;
}

SourceAttack ServeOtherScope(const Sha256& scope) {
  SourceAttack attack;
  attack.ask = [scope](Ask* ask) {
    ask->expected.scope = scope;
    ask->expected.prefix = PrefixChain::HashOf(scope, ask->tokens);
  };
  return attack;
}

SourceAttack OmitDigest(size_t part) {
  SourceAttack attack;
  attack.bundle = [part](const Ask&, ServedBundle* bundle) {
    bundle->seal.state_digests.at(part) = Digest128();
  };
  return attack;
}

SourceAttack NameOtherAlgorithm() {
  SourceAttack attack;
  attack.bundle = [](const Ask&, ServedBundle* bundle) {
    bundle->seal.algorithm = bundle->seal.algorithm == DigestAlgorithm::kXxh3_128
                                 ? DigestAlgorithm::kBlake2b
                                 : DigestAlgorithm::kXxh3_128;
  };
  return attack;
}

}  // namespace baton
