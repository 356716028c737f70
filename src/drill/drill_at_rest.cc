// Attacks on bundles at rest: in pool memory, in a tier, parked.
#include <algorithm>
#include <cstring>
#include <utility>

#include "drill/drill.h"
#include "drill/drill_internal.h"

namespace baton::drill {
namespace {

using engine::GenerateRequest;
using Tamper = std::function<Status(AtRest&)>;

const Tamper& TamperOf(const Fault& fault, bool twin) {
  return twin && fault.twin_tamper != nullptr ? fault.twin_tamper : fault.tamper;
}

// Every free unit is full of something that is nobody's, or of what `fault` wants: what is not
// loaded, or not cleared, cannot look right by chance.
void Litter(Rig& rig, const Fault& fault, const Payload& other) {
  const PoolSet pools = rig.decode().memory().pools();
  const auto fill = [](auto* pool, const auto& write) {
    using Pool = std::remove_pointer_t<decltype(pool)>;
    std::vector<typename Pool::Handle> taken;
    for (;;) {
      auto unit = pool->Reserve({});
      if (!unit.ok()) break;
      taken.push_back(*unit);
      if (!pool->Activate(*unit).ok()) continue;
      auto lease = pool->Acquire(*unit, LeaseFor::kCompute);
      if (lease.ok()) write(lease->bytes());
    }
    for (const auto& unit : taken) (void)pool->Free(unit);
  };
  const auto numbers = [](MutableByteSpan bytes) {
    const float value = 0.37F;
    for (size_t i = 0; i + sizeof value <= bytes.size(); i += sizeof value)
      std::memcpy(bytes.data() + i, &value, sizeof value);
  };
  if (pools.slots != nullptr)
    fill(pools.slots, [&](MutableByteSpan slot) {
      if (fault.litter == nullptr) return numbers(slot);
      fault.litter(other, rig.model().layout(), slot);
    });
  for (BlockPool* pool : pools.blocks) fill(pool, numbers);
}

// The checkpoint of exactly this history, open to be written over.
Status TamperInMemory(Rig& rig,
                      const Inputs& in,
                      std::span<const TokenId> history,
                      const Tamper& tamper) {
  Status status = absl::NotFoundError("the victim left no checkpoint to attack");
  rig.decode().engine().RunOnEngineThread([&](engine::Core& core) {
    const PrefixChain chain(ScopeOf(""), history);
    const auto checkpoint = core.FindCheckpoint(core.BaseOf("").At(chain));
    if (checkpoint == nullptr) return;
    const PoolSet pools = rig.decode().memory().pools();
    const auto find = [&](PartKey key) -> MutableByteSpan {
      for (const BundlePart& part : BundleParts(core.layout(), checkpoint->boundary())) {
        if (part.key != key) continue;
        if (part.is_state) {
          auto lease = pools.slots->Acquire(*checkpoint->slot(), LeaseFor::kDigest);
          if (!lease.ok()) return {};
          return lease->bytes().subspan(core.layout().parts()[part.part].offset, part.bytes);
        }
        auto lease = pools.blocks[part.group]->Acquire(checkpoint->blocks()[part.group][part.slot],
                                                       LeaseFor::kDigest);
        if (!lease.ok()) return {};
        return lease->bytes().first(part.bytes);
      }
      return {};
    };
    RestingCheckpoint resting(const_cast<Seal*>(&checkpoint->seal()), find);
    AtRest at{resting, rig, in, history};
    at.slot = checkpoint->slot();
    status = tamper(at);
  });
  return status;
}

Status TamperInTier(Rig& rig,
                    const Inputs& in,
                    std::span<const TokenId> history,
                    const Tamper& tamper) {
  const engine::Worker& worker = rig.decode();
  const IdentityBase base{worker.model().fingerprint(), worker.model().layout().fingerprint(),
                          ScopeOf("")};
  const ObjectName name{ObjectKind::kBundle, base.At(PrefixChain(base.scope, history)).Key()};
  BATON_ASSIGN_OR_RETURN(auto resting, RestingObject::Open(rig.objects(), name));
  AtRest at{*resting, rig, in, history};
  at.object = resting.get();
  at.name = name;
  BATON_RETURN_IF_ERROR(tamper(at));
  return at.save ? resting->Save(at.raw) : absl::OkStatus();
}

}  // namespace

// The victim has been served before; what that left is attacked; the victim comes again.
StatusOr<Drill::Attempted> Drill::AttackAtRest(const Fault& fault,
                                               bool twin,
                                               const GenerateRequest& victim) const {
  BATON_ASSIGN_OR_RETURN(auto rig, Rig::Create(model_, OptionsOf(fault, "", twin)));
  const auto boundary =
      static_cast<size_t>(HandoffBoundary(static_cast<int64_t>(victim.prompt.size())));
  const auto history = std::span(in_.victim).first(boundary);
  engine::Engine& engine = rig->decode().engine();
  if (!fault.fresh) {
    GenerateRequest first = victim;
    first.sampling = {};
    first.sampling.temperature = 0;
    first.sampling.max_tokens = 1;
    auto sink = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(rig->Start(std::move(first), sink).status());
    sink->Wait();
    engine.tiers().Flush();
    if (const Tamper& tamper = TamperOf(fault, twin); tamper != nullptr) {
      BATON_RETURN_IF_ERROR(fault.rest == Rest::kMemory ? TamperInMemory(*rig, in_, history, tamper)
                                                        : TamperInTier(*rig, in_, history, tamper));
    }
    engine.tiers().Flush();
    if (fault.rest != Rest::kMemory)
      engine.RunOnEngineThread([](engine::Core& core) { core.DropCheckpoints(); });
  }
  std::shared_ptr<Recorder> beside;
  if (!twin) {
    beside = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(rig->Start(Bystander(), beside).status());
    beside->WaitForTokens(1);
  }
  GenerateRequest again = victim;
  again.cache_salt = fault.victim_salt;
  auto sink = std::make_shared<Recorder>();
  engine.RunOnEngineThread([&](engine::Core&) { Litter(*rig, fault, payloads_.other); });
  BATON_RETURN_IF_ERROR(rig->Start(std::move(again), sink).status());

  Attempted out;
  out.victim = Outcome{sink->Wait(), sink->events()};
  const engine::Usage& usage = out.victim.result.usage;
  const auto& records = out.victim.result.handoffs;
  out.accepted = usage.rejects == 0 && (fault.fresh || usage.cached_tokens > 0 ||
                                        (!records.empty() && records.front().verified));
  if (beside != nullptr) {
    out.beside_equal = Outcome{beside->Wait(), beside->events()}.Same(*beside_);
    out.held = rig->Held();
    for (size_t i = 0; i < engine.tiers().count(); ++i)
      if (!engine.tiers().tier(i).CheckInvariants().ok()) ++out.held;
  }
  return out;
}

// The victim gives way to another sequence in the middle; what was parked is attacked; it resumes.
// Both start in one step with exactly the blocks they then need, so that the younger, the victim,
// must give way within a block of tokens.
StatusOr<Drill::Attempted> Drill::AttackParked(const Fault& fault,
                                               bool twin,
                                               const GenerateRequest& victim) const {
  const auto n = static_cast<int64_t>(victim.prompt.size());
  const int64_t blocks = BlocksFor(n + victim.sampling.max_tokens) + 2;
  GenerateRequest hog = Bystander();
  const auto hog_tokens = static_cast<size_t>((blocks - BlocksFor(n)) * kBlockTokens - 6);
  while (hog.prompt.size() < hog_tokens)
    hog.prompt.push_back(in_.bystander[hog.prompt.size() % in_.bystander.size()]);
  hog.prompt.resize(hog_tokens);
  hog.sampling.max_tokens =
      std::min<int64_t>(kBystanderTokens, blocks * kBlockTokens - static_cast<int64_t>(hog_tokens));

  std::vector<TokenId> story = victim.prompt;
  const std::vector<TokenId> right = truth_->tokens();
  story.insert(story.end(), right.begin(), right.end());
  Rig* attacked = nullptr;
  int tampered = 0;
  Status tampering;
  RigOptions options = OptionsOf(fault, "", twin);
  options.blocks = static_cast<uint32_t>(blocks);
  options.on_parked = [&](engine::ParkedBundle* bundle) {
    const auto history = std::span(story).first(std::min(story.size(), size_t{bundle->boundary()}));
    if (tampered > 0 || bundle->seal().identity.prefix != PrefixChain(ScopeOf(""), history).Hash())
      return;
    ++tampered;
    RestingParked resting(bundle);
    AtRest at{resting, *attacked, in_, history};
    tampering = TamperOf(fault, twin)(at);
  };
  BATON_ASSIGN_OR_RETURN(auto rig, Rig::Create(model_, options));
  attacked = rig.get();
  auto beside = std::make_shared<Recorder>();
  auto sink = std::make_shared<Recorder>();
  Status started;
  rig->decode().engine().RunOnEngineThread([&](engine::Core&) {
    Litter(*rig, fault, payloads_.other);
    started = rig->Start(hog, beside).status();
    if (started.ok()) started = rig->Start(victim, sink).status();
  });
  BATON_RETURN_IF_ERROR(started);
  Attempted out;
  out.victim = Outcome{sink->Wait(), sink->events()};
  const Outcome other{beside->Wait(), beside->events()};
  BATON_RETURN_IF_ERROR(tampering);
  if (tampered == 0) return absl::InternalError("the drill's victim was not preempted");
  const engine::EngineStats& stats = rig->decode().engine().stats();
  out.accepted = out.victim.result.usage.rejects == 0 && stats.resumed.load() > 0;
  if (!twin) {
    BATON_ASSIGN_OR_RETURN(const Outcome alone, Undisturbed(hog));
    out.beside_equal = other.Same(alone);
    out.held = rig->Held() + stats.parked_bytes.load();
  }
  return out;
}

}  // namespace baton::drill
