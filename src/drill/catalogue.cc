// The catalogue. Payload faults land the true memory of another history under the asked metadata,
// which is what a misrouted, misnumbered or stale transfer is.
#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "connector/hostile/attacks.h"
#include "drill/fault.h"
#include "handoff/parts.h"

namespace baton::drill {
namespace {

using Arm = std::function<Status(Trial&)>;
constexpr Check kIdentity = Check::kIdentity, kParts = Check::kParts, kLanded = Check::kLanded,
                kState = Check::kStateDigest, kBlock = Check::kBlockDigest,
                kFinite = Check::kFinite;
const char kDigestCheck[] = "part digest, seeded with the content identity";
const char kBoundsNeverOff[] = "bounds of records are never switched off";

bool IsBlockPart(PartKey key) { return !IsStatePart(key); }

// The `nth` part of a component; the first state part if there are fewer.
PartKey PartOf(const Layout& layout, std::string_view component, int nth = 0) {
  for (size_t i = 0; i < layout.parts().size(); ++i)
    if (layout.parts()[i].component == component && nth-- == 0) return StatePartKey(i);
  return StatePartKey(0);
}

// The first block of the first group that the bundle has: a window's are its last.
PartKey FirstBlockPart(const CapturedPull& bundle) {
  PartKey first{UINT64_MAX};
  for (const auto& [key, bytes] : bundle.parts)
    if (IsBlockPart(key) && key.value < first.value) first = key;
  return first;
}

Arm Connector1(Attack attack) {
  return [attack = std::move(attack)](Trial& t) {
    t.rig.connector().Arm(attack, 1);
    return absl::OkStatus();
  };
}
Arm Substitute(Payload Payloads::*which, PartFilter filter) {
  return [which, filter](Trial& t) {
    t.rig.connector().Arm(SubstitutePayload(t.payloads.*which, filter), 1);
    return absl::OkStatus();
  };
}
Arm Source1(SourceAttack attack) {
  return [attack = std::move(attack)](Trial& t) {
    t.rig.provider().Arm(attack, 1);
    return absl::OkStatus();
  };
}

class Builder {
 public:
  explicit Builder(const Layout& layout) : layout_(layout) {}

  void Add(Fault f) { faults_.push_back(std::move(f)); }
  // A state payload in place of the right one.
  void State(std::string id, std::string variant, std::string title, Arm arm) {
    Fault f{std::move(id), std::move(variant), std::move(title), kDigestCheck};
    f.reasons = {"digest_mismatch"};
    f.guards = {kState};
    f.needs_state = true;
    f.arm = std::move(arm);
    Add(std::move(f));
  }
  void Kv(std::string id, std::string variant, std::string title, Arm arm) {
    Fault f{std::move(id), std::move(variant), std::move(title), kDigestCheck};
    f.reasons = {"block_digest_mismatch"};
    f.guards = {kBlock};
    f.needs_kv = true;
    f.arm = std::move(arm);
    Add(std::move(f));
  }
  // A lie in a record, refused before any byte is asked for.
  void Record(std::string id,
              std::string variant,
              std::string title,
              std::string check,
              std::vector<std::string> reasons,
              Arm arm) {
    Fault f{std::move(id), std::move(variant), std::move(title), std::move(check)};
    f.reasons = std::move(reasons);
    f.no_twin = kBoundsNeverOff;
    f.arm = std::move(arm);
    Add(std::move(f));
  }
  Fault& last() { return faults_.back(); }
  const Layout& layout() const { return layout_; }
  std::vector<Fault> Take() { return std::move(faults_); }

 private:
  const Layout& layout_;
  std::vector<Fault> faults_;
};

// F01, F03, F06, F07, F08, F09: payloads.
void AddPayloads(Builder* b) {
  const Layout& l = b->layout();
  b->State("F01", "state", "another request's state under the right metadata",
           Substitute(&Payloads::other, IsStatePart));
  b->Kv("F01", "kv", "another request's KV blocks under the right metadata",
        Substitute(&Payloads::other, IsBlockPart));
  b->State("F03", "", "state of an earlier step of the same request",
           Substitute(&Payloads::block_before, IsStatePart));
  b->State("F06", "recurrent", "recurrent states of two layers swapped",
           Connector1(SwapParts(PartOf(l, "ssm"), PartOf(l, "ssm", 1))));
  b->last().needs_component = "ssm";
  b->last().needs_parts = 2;
  b->State("F06", "conv", "conv windows of two layers swapped",
           Connector1(SwapParts(PartOf(l, "conv"), PartOf(l, "conv", 1))));
  b->last().needs_component = "conv";
  b->last().needs_parts = 2;
  b->Kv("F06", "kv", "two KV blocks of the sequence swapped", [](Trial& t) {
    const PartKey first = FirstBlockPart(*t.payloads.truth);
    t.rig.connector().Arm(SwapParts(first, PartKey{first.value + 1}), 1);
    return absl::OkStatus();
  });
  b->last().needs_blocks = 2;
  b->State("F07", "zeros", "one component never sent: zeros at the destination",
           Connector1(ZeroPart(PartOf(l, "conv"))));
  b->State("F07", "not offered", "one component missing from the offer",
           Connector1(DropOfferedPart(PartOf(l, "conv"))));
  b->last().check = "every expected part is offered";
  b->last().reasons = {"missing_part"};
  b->last().guards = {kParts, kLanded, kState};

  Fault nothing{"F08", "honest count", "success reported, zero bytes moved",
                "planned == posted == landed bytes"};
  nothing.reasons = {"short_transfer"};
  nothing.guards = {kLanded, kState, kBlock, kFinite};
  nothing.arm = Connector1(MoveNothing(false));
  b->Add(nothing);
  nothing.variant = "false count";
  nothing.title = "success and all bytes reported, zero bytes moved";
  nothing.check = kDigestCheck;
  nothing.reasons = {"digest_mismatch", "block_digest_mismatch"};
  nothing.guards = {kState, kBlock, kFinite};
  nothing.arm = Connector1(MoveNothing(true));
  b->Add(nothing);
  b->State("F09", "", "completion reported while half of a part is in flight",
           Connector1(TearPart(PartOf(l, "ssm"))));
}

// F10: bit flips.
void AddFlips(Builder* b) {
  const Layout& l = b->layout();
  b->State("F10", "bit in state", "one bit of a recurrent state",
           Connector1(FlipBytes(PartOf(l, "ssm"), 7, 1, 0x40)));
  b->State("F10", "line in conv", "one cache line of a conv window",
           Connector1(FlipBytes(PartOf(l, "conv"), 0, 64, 0x11)));
  b->last().guards = {kState, kFinite};
  b->last().needs_component = "conv";
  b->Kv("F10", "page in kv", "one page of a KV block", [](Trial& t) {
    t.rig.connector().Arm(FlipBytes(FirstBlockPart(*t.payloads.truth), 0, 4096, 0x05), 1);
    return absl::OkStatus();
  });
  b->last().guards = {kBlock, kFinite};
  b->Record("F10", "bit in offer", "one bit of the offer", "checksum of the offer", {"malformed"},
            Connector1(FlipOfferBit(777, false)));
  b->Record("F10", "bit in seal", "one bit of the seal, under a valid checksum of the offer",
            "checksum of the seal", {"malformed"}, Connector1(FlipSealBit(333)));
}

// F11, F12, F13, F14: the right bytes for another key, or other bytes of the same size.
void AddMeanings(Builder* b) {
  const Layout& l = b->layout();
  b->State("F11", "1 token early", "state taken one token before its boundary",
           Substitute(&Payloads::token_before, IsStatePart));
  b->State("F11", "1 token late", "state taken one token after its boundary",
           Substitute(&Payloads::token_after, IsStatePart));
  b->State("F11", "15 tokens early", "state taken block - 1 tokens before its boundary",
           Substitute(&Payloads::block_less_one, IsStatePart));
  Fault shorter{"F11", "shorter bundle", "a bundle one block short, honestly sealed",
                "sealed identity == the identity derived from the request's own tokens"};
  shorter.reasons = {"boundary_mismatch"};
  shorter.guards = {kIdentity, kParts, kLanded, kState, kBlock, kFinite};
  shorter.arm = Source1(ServeShorter(16));
  b->Add(std::move(shorter));

  const auto rearrange = [&l](std::string_view component, Rearrange how) -> Arm {
    const PartKey key = PartOf(l, component);
    return [key, how, &l](Trial& t) {
      const Payload other = Rearranged(l, t.payloads.truth, key.value, how);
      t.rig.connector().Arm(SubstitutePayload(other, [key](PartKey k) { return k == key; }), 1);
      return absl::OkStatus();
    };
  };
  b->State("F12", "axes", "recurrent state as [H,P,N] where [H,N,P] is meant",
           rearrange("ssm", Rearrange::kTransposeLast));
  b->last().needs_component = "ssm";
  b->last().needs_axes = 2;
  b->State("F12", "conv order", "conv window newest first where oldest first is meant",
           rearrange("conv", Rearrange::kReverseFirst));
  b->last().needs_component = "conv";
  // Its heads are those of the second half where the first is meant; its layout says so.
  Fault shard{"F13", "", "another shard's heads, of the same size",
              "fingerprint of the layout, whose text names the shard"};
  shard.reasons = {"layout_mismatch"};
  shard.guards = {Check::kPeer, kState};
  shard.needs_state = true;
  shard.arm = [&l](Trial& t) -> Status {
    LayoutSpec spec{l.parts(), l.groups(), l.numerics_tag(), l.extra() + " shard 1 of 2"};
    BATON_ASSIGN_OR_RETURN(const Layout other, Layout::Build(std::move(spec)));
    auto heads = std::make_shared<CapturedPull>(*t.payloads.truth);
    for (size_t i = 0; i < l.parts().size(); ++i)
      SwapHalves(l, i, MutableByteSpan(heads->parts.at(StatePartKey(i))));
    Attack attack = SubstitutePayload(std::move(heads), IsStatePart);
    attack.receive = [layout = other.fingerprint()](Frame* frame) {
      if (frame->type != FrameType::kHello) return;
      StatusOr<Hello> hello = DecodeHello(*frame);
      if (!hello.ok()) return;
      hello->layout = layout;
      *frame = EncodeHello(*hello);
    };
    t.rig.connector().Arm(std::move(attack), 1);
    return absl::OkStatus();
  };
  b->Add(std::move(shard));

  Fault scope{"F14", "tenant", "another tenant's bundle of the same tokens",
              "scope in the sealed identity"};
  scope.reasons = {"scope_mismatch"};
  scope.guards = {kIdentity, kState, kBlock};
  scope.same_bits = true;
  scope.arm = Source1(ServeOtherScope(ScopeOf("someone else")));
  b->Add(std::move(scope));
  Fault weights{"F14", "weights", "a peer that has other weights", "fingerprints at the greeting"};
  weights.reasons = {"model_mismatch"};
  weights.guards = {Check::kPeer};
  weights.same_bits = true;
  weights.arm = [](Trial& t) {
    Attack attack;
    attack.name = "other_weights";
    attack.receive = [](Frame* frame) {
      if (frame->type != FrameType::kHello) return;
      StatusOr<Hello> hello = DecodeHello(*frame);
      if (!hello.ok()) return;
      hello->model.bytes[0] ^= 1;
      *frame = EncodeHello(*hello);
    };
    t.rig.connector().Arm(std::move(attack), 1);
    return absl::OkStatus();
  };
  b->Add(std::move(weights));
}

// F19, F21, F23: deliveries of another time.
void AddTimes(Builder* b) {
  Fault replay{"F19", "older attempt", "offer of an older attempt, delivered again",
               "attempt chosen by the receiver, echoed in the offer"};
  replay.reasons = {"attempt_mismatch"};
  replay.no_twin = "the source itself refuses parts it has released";
  replay.arm = [](Trial& t) {
    auto seen = std::make_shared<CapturedPull>();
    Attack listen;
    listen.name = "keep_offer";
    listen.receive = [seen](Frame* frame) {
      if (frame->type == FrameType::kOffer) seen->offer = *frame;
    };
    t.rig.connector().Arm(std::move(listen), 1);
    engine::GenerateRequest first;
    first.prompt = t.in.other;
    first.sampling.temperature = 0;
    first.sampling.max_tokens = 1;
    auto sink = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(t.rig.Start(std::move(first), sink).status());
    sink->Wait();
    if (seen->offer.payload.empty())
      return absl::InternalError("the hand-off to replay was not made");
    t.rig.connector().Arm(ReplayOffer(std::move(seen)), 1);
    return absl::OkStatus();
  };
  b->Add(std::move(replay));
  b->State("F19", "older part", "one part from an older attempt, after all others",
           [key = PartOf(b->layout(), "ssm")](Trial& t) {
             t.rig.connector().Arm(
                 SubstitutePayload(t.payloads.block_before, [key](PartKey k) { return k == key; }),
                 1);
             return absl::OkStatus();
           });

  Fault epoch{"F21", "epoch", "the offer comes from the worker's incarnation before a restart",
              "epoch of the producer"};
  epoch.reasons = {"epoch_mismatch"};
  epoch.guards = {Check::kEpoch};
  epoch.same_bits = true;
  epoch.arm = Connector1(RewriteOffer([](Offer* o) { o->claim.epoch.bytes[0] ^= 1; }));
  b->Add(std::move(epoch));
  Fault restart{"F21", "restart", "the worker restarts between two hand-offs",
                "a fresh greeting per connection"};
  restart.expect = Expect::kPrevented;
  restart.no_twin = "no address of a peer outlives its connection";
  restart.arm = [](Trial& t) {
    engine::GenerateRequest first;
    first.prompt = t.in.other;
    first.sampling.max_tokens = 1;
    auto sink = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(t.rig.Start(std::move(first), sink).status());
    sink->Wait();
    return t.rig.RestartPrefill();
  };
  b->Add(std::move(restart));
  b->State("F23", "", "KV at one boundary, state at another",
           Substitute(&Payloads::block_before, IsStatePart));
  b->last().needs_kv = true;
}

// F28, F29, F30: lies about the proof itself.
void AddProofs(Builder* b) {
  const Layout& l = b->layout();
  Fault absent{"F28", "absent", "a state part comes without a digest",
               "an absent digest is an error"};
  absent.reasons = {"digest_algorithm"};
  absent.no_twin = "the record itself is refused; see the other variant";
  absent.needs_state = true;
  absent.arm = Source1(OmitDigest(0));
  b->Add(std::move(absent));
  Fault other{"F28", "other algorithm", "digests of another algorithm than agreed",
              "algorithm named in the seal"};
  other.reasons = {"digest_algorithm"};
  other.guards = {Check::kAlgorithm, kState};
  other.needs_state = true;
  other.arm = [](Trial& t) {
    t.rig.provider().Arm(NameOtherAlgorithm(), 1);
    t.rig.connector().Arm(SubstitutePayload(t.payloads.other, IsStatePart), 1);
    return absl::OkStatus();
  };
  b->Add(std::move(other));
  b->State("F29", "", "a NaN in a delivered state", Connector1(InjectNaN(PartOf(l, "ssm"))));
  b->last().reasons = {"digest_mismatch", "non_finite"};
  b->last().guards = {kState, kFinite};
  b->Record("F30", "", "hostile length inside a valid checksum", "bounds of every count and length",
            {"malformed"}, Connector1(PatchOffer(kOfferSealLengthAt, {0xFF, 0xFF, 0xFF, 0x7F})));
}

}  // namespace

void AddLocalFaults(const Layout& layout, std::vector<Fault>* faults);  // local_faults.cc

std::vector<Fault> Catalogue(const Layout& layout) {
  Builder b(layout);
  AddPayloads(&b);
  AddFlips(&b);
  AddMeanings(&b);
  AddTimes(&b);
  AddProofs(&b);
  std::vector<Fault> faults = b.Take();
  AddLocalFaults(layout, &faults);
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& x, const Fault& y) { return x.id < y.id; });
  return faults;
}

}  // namespace baton::drill
