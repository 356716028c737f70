// The catalogue of what can be wrong with a state that waits: in a checkpoint, a tier, or parked.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/sha256.h"
#include "connector/hostile/attacks.h"
#include "drill/fault.h"
#include "handoff/parts.h"

namespace baton::drill {
namespace {

using Tamper = std::function<Status(AtRest&)>;
constexpr Check kIdentity = Check::kIdentity, kParts = Check::kParts, kLanded = Check::kLanded,
                kState = Check::kStateDigest, kBlock = Check::kBlockDigest,
                kFinite = Check::kFinite;
const char kDigestCheck[] = "part digest, seeded with the content identity";
const char kNoBounds[] = "bounds of records are never switched off";
// Of an object's header: docs/format/state_object.md.
constexpr size_t kPartCountAt = 44;

PartKey PartOf(const Layout& layout, std::string_view component, int nth = 0) {
  for (size_t i = 0; i < layout.parts().size(); ++i)
    if (layout.parts()[i].component == component && nth-- == 0) return StatePartKey(i);
  return StatePartKey(0);
}

std::vector<PartKey> PartsOf(const AtRest& at) {
  std::vector<PartKey> keys;
  for (const BundlePart& p : BundleParts(at.rig.model().layout(), at.history.size()))
    keys.push_back(p.key);
  return keys;
}

// Lands what `payload` has of these parts.
void Lay(const AtRest& at, const Payload& payload, bool state, bool blocks) {
  for (const auto& [key, bytes] : payload->parts) {
    if (IsStatePart(key) ? !state : !blocks) continue;
    const MutableByteSpan to = at.bundle.Part(key);
    if (to.size() == bytes.size()) std::copy(bytes.begin(), bytes.end(), to.begin());
  }
}

std::vector<TokenId> Shifted(const AtRest& at, int64_t by) {
  std::vector<TokenId> tokens(at.history.begin(), at.history.end());
  if (by > 0) {
    const size_t n = tokens.size();  // on along the prompt, or anywhere
    tokens.push_back(n < at.in.victim.size() ? at.in.victim[n] : at.in.victim[0]);
  } else {
    tokens.resize(tokens.size() - static_cast<size_t>(-by));
  }
  return tokens;
}

// The true state of the same request some tokens off.
Tamper StateAt(int64_t by) {
  return [by](AtRest& at) -> Status {
    BATON_ASSIGN_OR_RETURN(const Payload p, ComputeBundle(at.rig.model(), Shifted(at, by)));
    Lay(at, p, true, false);
    return absl::OkStatus();
  };
}

Tamper OfOther(bool state) {
  return [state](AtRest& at) -> Status {
    const size_t n = std::min(at.in.other.size(), at.history.size());
    BATON_ASSIGN_OR_RETURN(const Payload p,
                           ComputeBundle(at.rig.model(), std::span(at.in.other).first(n)));
    Lay(at, p, state, !state);
    return absl::OkStatus();
  };
}

// Every part of the component: a window of one token again and again is the same both ways in the
// first layer.
Tamper RearrangeAll(std::string_view component, Rearrange how) {
  return [component, how](AtRest& at) -> Status {
    const Layout& layout = at.rig.model().layout();
    BATON_ASSIGN_OR_RETURN(Payload p, ComputeBundle(at.rig.model(), at.history));
    for (size_t i = 0; i < layout.parts().size(); ++i)
      if (layout.parts()[i].component == component) p = Rearranged(layout, p, i, how);
    Lay(at, p, true, false);
    return absl::OkStatus();
  };
}

// The first block of the first group that the bundle has: a window's are its last.
PartKey FirstBlockPart(const AtRest& at) {
  for (const PartKey key : PartsOf(at))
    if (!IsStatePart(key)) return key;
  return BlockPartKey(0, 0);
}

Tamper Flip(PartKey key, size_t offset, size_t bytes, uint8_t mask) {
  return [=](AtRest& at) {
    const MutableByteSpan part = at.bundle.Part(key);
    for (size_t i = offset; i < std::min(offset + bytes, part.size()); ++i)
      part[i] ^= std::byte{mask};
    return absl::OkStatus();
  };
}

// Zeros from `from` of each part on, in all parts or one.
Tamper Zeros(double from, std::optional<PartKey> only = std::nullopt) {
  return [from, only](AtRest& at) {
    for (const PartKey key : PartsOf(at)) {
      if (only.has_value() && key != *only) continue;
      const MutableByteSpan part = at.bundle.Part(key);
      const auto n = static_cast<size_t>(from * static_cast<double>(part.size()));
      std::memset(part.data() + n, 0, part.size() - n);
    }
    return absl::OkStatus();
  };
}

void Put32(std::vector<uint8_t>* bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) (*bytes)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

class Builder {
 public:
  Builder(const Layout& layout, Rest rest) : layout(layout), rest(rest) {}

  Fault& Add(std::string id, std::string variant, std::string title, Tamper tamper) {
    Fault f{std::move(id), std::move(variant), std::move(title), kDigestCheck};
    f.rest = rest;
    f.needs_kv = rest == Rest::kParked;  // what runs out are blocks
    f.tamper = std::move(tamper);
    faults.push_back(std::move(f));
    return faults.back();
  }
  Fault& State(std::string id, std::string variant, std::string title, Tamper tamper) {
    Fault& f = Add(std::move(id), std::move(variant), std::move(title), std::move(tamper));
    f.reasons = {"digest_mismatch"};
    f.guards = {kState};
    f.needs_state = true;
    return f;
  }
  Fault& Kv(std::string id, std::string variant, std::string title, Tamper tamper) {
    Fault& f = Add(std::move(id), std::move(variant), std::move(title), std::move(tamper));
    f.reasons = {"block_digest_mismatch"};
    f.guards = {kBlock};
    f.needs_kv = true;
    return f;
  }
  // All parts, whatever the model has.
  Fault& Whole(std::string id, std::string variant, std::string title, Tamper tamper) {
    Fault& f = Add(std::move(id), std::move(variant), std::move(title), std::move(tamper));
    f.reasons = {"digest_mismatch", "block_digest_mismatch"};
    f.guards = {kState, kBlock, kFinite};
    return f;
  }

  const Layout& layout;
  const Rest rest;
  std::vector<Fault> faults;
};

// What can be wrong with the bytes, wherever they lie.
void AddBytes(Builder* b) {
  const PartKey ssm = PartOf(b->layout, "ssm"), conv = PartOf(b->layout, "conv");
  b->State("F01", "state", "another request's state under the right metadata", OfOther(true));
  b->Kv("F01", "kv", "another request's KV blocks under the right metadata", OfOther(false));
  b->State("F10", "bit in state", "one bit of a recurrent state", Flip(ssm, 7, 1, 0x40));
  Fault& line =
      b->State("F10", "line in conv", "one cache line of a conv window", Flip(conv, 0, 64, 0x11));
  line.guards = {kState, kFinite};
  line.needs_component = "conv";
  b->Kv("F10", "page in kv", "one page of a KV block", [](AtRest& at) {
     return Flip(FirstBlockPart(at), 0, 4096, 0x05)(at);
   }).guards = {kBlock, kFinite};
  b->State("F11", "1 token early", "state taken one token before its boundary", StateAt(-1));
  b->State("F11", "1 token late", "state taken one token after its boundary", StateAt(1));
  b->State("F11", "15 tokens early", "state taken block - 1 tokens early", StateAt(-15));
  Fault& axes = b->State("F12", "axes", "recurrent state as [H,P,N] where [H,N,P] is meant",
                         RearrangeAll("ssm", Rearrange::kTransposeLast));
  axes.needs_component = "ssm";
  axes.needs_axes = 2;
  b->State("F12", "conv order", "conv window newest first where oldest first is meant",
           RearrangeAll("conv", Rearrange::kReverseFirst))
      .needs_component = "conv";
  b->Whole("F17", "", "published when half of every part had landed", Zeros(0.5));
  b->State("F23", "", "KV at one boundary, state at another", StateAt(-16)).needs_kv = true;
  b->Whole("F27", "zeros", "hit accounted, nothing loaded", Zeros(0));
  Fault& nan = b->State("F29", "", "a NaN in a state at rest", [ssm](AtRest& at) {
    const uint32_t quiet = 0x7FC00000;
    std::memcpy(at.bundle.Part(ssm).data(), &quiet, sizeof quiet);
    return absl::OkStatus();
  });
  nan.reasons = {"digest_mismatch", "non_finite"};
  nan.guards = {kState, kFinite};
  b->Whole("F30", "half a restore", "all is well but the last byte: a restore is a transaction",
           [](AtRest& at) {
             at.bundle.Part(PartsOf(at).back()).back() ^= std::byte{0x41};
             return absl::OkStatus();
           });
}

// A seal under another name with the same bytes.
void AddSeals(Builder* b) {
  const auto other_scope = [](AtRest& at) {
    at.bundle.seal()->identity.scope = ScopeOf("someone else");
    if (at.object != nullptr) at.object->header.identity.scope = ScopeOf("someone else");
    return absl::OkStatus();
  };
  Fault& scope = b->Add("F14", "tenant", "another tenant's bundle of the same tokens", other_scope);
  scope.check = "scope in the sealed identity";
  scope.reasons = {"scope_mismatch"};
  Fault& weights = b->Add("F14", "weights", "a bundle of other weights", [](AtRest& at) {
    at.bundle.seal()->identity.model.bytes[0] ^= 1;
    if (at.object != nullptr) at.object->header.identity.model.bytes[0] ^= 1;
    return absl::OkStatus();
  });
  weights.check = "model in the sealed identity";
  weights.reasons = {"model_mismatch"};
  for (size_t i = b->faults.size() - 2; i < b->faults.size(); ++i) {
    b->faults[i].guards = {kIdentity};
    b->faults[i].same_bits = true;
  }
  // Those of the second half are where the first is meant.
  const auto heads = [](AtRest& at) {
    const Layout& layout = at.rig.model().layout();
    for (size_t i = 0; i < layout.parts().size(); ++i)
      SwapHalves(layout, i, at.bundle.Part(StatePartKey(i)));
    return absl::OkStatus();
  };
  const auto named = [heads](AtRest& at) -> Status {
    BATON_RETURN_IF_ERROR(heads(at));
    const Layout& layout = at.rig.model().layout();
    LayoutSpec spec{layout.parts(), layout.groups(), layout.numerics_tag(),
                    layout.extra() + " shard 1 of 2"};
    BATON_ASSIGN_OR_RETURN(const Layout other, Layout::Build(std::move(spec)));
    at.bundle.seal()->identity.layout = other.fingerprint();
    if (at.object != nullptr) at.object->header.identity.layout = other.fingerprint();
    return absl::OkStatus();
  };
  Fault& shard = b->State("F13", "", "another shard's heads, of the same size", named);
  shard.check = "layout in the sealed identity: its text names the shard";
  shard.reasons = {"layout_mismatch"};
  shard.twin_tamper = heads;  // and nobody would have written down whose they are
}

// F16, F26: pool memory.
void AddMemory(Builder* b) {
  for (const bool nan : {false, true}) {
    Fault& f = b->Add("F16", nan ? "NaN" : "state",
                      nan ? "a new sequence gets a slot that a NaN was left in"
                          : "a new sequence gets a slot with another's state",
                      nullptr);
    f.check = "slots are filled, not multiplied by zero, before they go live";
    f.expect = Expect::kPrevented;
    f.needs_state = true;
    f.fresh = true;
    f.pool_guards.fill = true;
    f.litter = [nan](const Payload& other, const Layout& layout, MutableByteSpan slot) {
      if (nan) return static_cast<void>(std::memset(slot.data(), 0xFF, slot.size()));
      for (size_t i = 0; i < layout.parts().size(); ++i) {
        const auto& bytes = other->parts.at(StatePartKey(i));
        std::copy(bytes.begin(), bytes.end(),
                  slot.begin() + static_cast<ptrdiff_t>(layout.parts()[i].offset));
      }
    };
  }
  b->State("F26", "shared", "a checkpoint handed out itself: its first user has gone on in it",
           StateAt(1))
      .check = "digest of a checkpoint before it is copied";
  Fault& moved = b->Add("F26", "moved", "a checkpoint's slot moved away to another request",
                        [](AtRest& at) -> Status {
                          SlotPool* slots = at.rig.decode().memory().pools().slots;
                          return slots->Free(*at.slot);
                        });
  moved.check = "generation of the handle";
  moved.reasons = {"stale_handle"};
  moved.needs_state = true;
  moved.no_twin = "the pool's generation check off is forced in its own test (F04)";
  Fault& salt = b->Add("F14", "salt", "the same prompt of another tenant", nullptr);
  salt.check = "the index is rooted in the tenant's scope";
  salt.expect = Expect::kPrevented;
  salt.victim_salt = "someone else";
  salt.no_twin = "no key without the scope exists";
}

// F18, F27, F30: objects of a tier.
void AddObjects(Builder* b) {
  const auto cut = [b](const char* id, const char* variant, const char* title, double keep) {
    Fault& f = b->Add(id, variant, title, [keep](AtRest& at) {
      at.raw = [&object = *at.object, keep](std::vector<uint8_t>* bytes) {
        const uint64_t head = object.header.PayloadOffset();
        bytes->resize(head +
                      static_cast<size_t>(keep * static_cast<double>(object.header.payload_bytes)));
      };
      return absl::OkStatus();
    });
    f.check = "size of the object, planned == landed bytes";
    f.reasons = {"short_transfer"};
    f.guards = {kLanded, kState, kBlock, kFinite};
  };
  cut("F18", "truncated", "an object that ends in the middle", 0.5);
  cut("F27", "header only", "a hit whose object has a header and no bytes", 0);
  // Another request's object under this name: swapped, renamed, or a wrong index.
  const auto instead = [b](const char* variant, const char* title, const char* reason,
                           auto prompt) {
    Fault& f = b->Add("F18", variant, title, [prompt](AtRest& at) -> Status {
      const std::vector<TokenId> tokens = prompt(at);
      engine::GenerateRequest r;
      r.prompt = tokens;
      r.sampling.temperature = 0;
      r.sampling.max_tokens = 1;
      auto sink = std::make_shared<Recorder>();
      BATON_RETURN_IF_ERROR(at.rig.Start(std::move(r), sink).status());
      sink->Wait();
      at.rig.decode().engine().tiers().Flush();
      const engine::Worker& worker = at.rig.decode();
      const IdentityBase base{worker.model().fingerprint(), worker.model().layout().fingerprint(),
                              ScopeOf("")};
      const auto boundary =
          static_cast<size_t>(HandoffBoundary(static_cast<int64_t>(tokens.size())));
      const auto history = std::span(tokens).first(boundary);
      const ObjectName other{ObjectKind::kBundle, base.At(PrefixChain(base.scope, history)).Key()};
      BATON_ASSIGN_OR_RETURN(const auto bytes, at.rig.objects().Read(other));
      at.save = false;
      return at.rig.objects().Write(at.name, bytes);
    });
    f.check = "sealed identity == the identity derived from the request's own tokens";
    f.reasons = {reason};
    // A blob without a header: its bytes come under this name.
    f.guards = {kState, kBlock, kFinite};
    f.twin_tamper = [prompt](AtRest& at) -> Status {
      const std::vector<TokenId> tokens = prompt(at);
      const auto boundary =
          static_cast<size_t>(HandoffBoundary(static_cast<int64_t>(tokens.size())));
      BATON_ASSIGN_OR_RETURN(const Payload p,
                             ComputeBundle(at.rig.model(), std::span(tokens).first(boundary)));
      BATON_RETURN_IF_ERROR(Zeros(0)(at));  // a shorter one has fewer blocks
      Lay(at, p, true, true);
      return absl::OkStatus();
    };
  };
  instead("swapped", "another request's object under this name", "identity_mismatch",
          [](const AtRest& at) {
            return std::vector<TokenId>(
                at.in.other.begin(),
                at.in.other.begin() + static_cast<ptrdiff_t>(at.history.size()) + 1);
          });
  instead("wrong index", "an earlier object of the same history under this name",
          "boundary_mismatch", [](const AtRest& at) {
            return std::vector<TokenId>(at.history.begin(), at.history.end() - 15);
          });
  const auto record = [b](const char* id, const char* variant, const char* title, const char* check,
                          const char* reason, Tamper tamper) {
    Fault& f = b->Add(id, variant, title, std::move(tamper));
    f.check = check;
    f.reasons = {reason};
    f.no_twin = kNoBounds;
  };
  const auto raw = [](std::function<void(const RestingObject&, std::vector<uint8_t>*)> change) {
    return [change](AtRest& at) {
      at.raw = [&object = *at.object, change](std::vector<uint8_t>* bytes) {
        change(object, bytes);
      };
      return absl::OkStatus();
    };
  };
  record("F18", "rotten header", "one bit of the header", "checksum of the header", "malformed",
         raw([](const RestingObject&, std::vector<uint8_t>* bytes) { (*bytes)[200] ^= 4; }));
  const auto sign = [](const RestingObject& object, std::vector<uint8_t>* bytes) {
    const uint64_t end = object.header.HeaderBytes() - Sha256::kSize;
    const Sha256 sum = Sha256Of(std::as_bytes(std::span(*bytes)).first(end));
    std::copy(sum.bytes.begin(), sum.bytes.end(), bytes->begin() + static_cast<ptrdiff_t>(end));
  };
  record("F30", "count", "hostile count inside a valid checksum", "bounds of every count",
         "malformed", raw([sign](const RestingObject& object, std::vector<uint8_t>* bytes) {
           Put32(bytes, kPartCountAt, 0x7FFFFFFF);
           sign(object, bytes);
         }));
  record("F30", "offset", "hostile offset inside a valid checksum", "bounds of every part",
         "malformed", [](AtRest& at) {
           at.object->header.parts.back().offset = uint64_t{1} << 43;
           return absl::OkStatus();
         });
  Fault& gone = b->Add("F27", "pruned", "a hit whose object is gone below", [](AtRest& at) {
    at.save = false;
    return at.rig.objects().Remove(at.name);
  });
  gone.check = "what the index names must be there";
  gone.reasons = {"missing_part"};
  gone.no_twin = "there is nothing to read";
}

// F25: a component is lost while the sequence is parked.
void AddParked(Builder* b) {
  const PartKey ssm = PartOf(b->layout, "ssm"), conv = PartOf(b->layout, "conv");
  b->State("F25", "conv zeros", "a preempted sequence resumes with an empty conv window",
           Zeros(0, conv))
      .needs_component = "conv";
  const auto lost = [b](const char* variant, const char* title, PartKey key) -> Fault& {
    Fault& f = b->State("F25", variant, title, [key](AtRest& at) { return at.bundle.Drop(key); });
    f.check = "every expected part is there";
    f.reasons = {"missing_part"};
    f.guards = {kParts, kLanded, kState, kFinite};
    return f;
  };
  lost("conv lost", "a preempted sequence resumes without a conv window", conv).needs_component =
      "conv";
  lost("state lost", "a preempted sequence resumes without a recurrent state", ssm)
      .needs_component = "ssm";
  Fault& kv =
      lost("kv lost", "a preempted sequence resumes without a KV block", BlockPartKey(0, 0));
  kv.tamper = [](AtRest& at) { return at.bundle.Drop(FirstBlockPart(at)); };
  kv.needs_state = false;
  kv.guards = {kParts, kLanded, kBlock, kFinite};
}

}  // namespace

std::vector<Fault> CatalogueAtRest(const Layout& layout, Rest rest) {
  Builder b(layout, rest);
  AddBytes(&b);
  AddSeals(&b);
  if (rest == Rest::kMemory) AddMemory(&b);
  if (rest == Rest::kHost || rest == Rest::kDisk) AddObjects(&b);
  if (rest == Rest::kParked) AddParked(&b);
  std::stable_sort(b.faults.begin(), b.faults.end(),
                   [](const Fault& x, const Fault& y) { return x.id < y.id; });
  return std::move(b.faults);
}

}  // namespace baton::drill
