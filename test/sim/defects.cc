#include "sim/defects.h"

#include <utility>

#include "cache/checkpoint_store.h"
#include "connector/grant_table.h"
#include "engine/core.h"
#include "handoff/checks_for_testing.h"
#include "handoff/destination.h"
#include "handoff/parts.h"
#include "handoff/verify.h"

namespace baton::sim {
namespace {

std::optional<Defect> g_defect;
std::function<void()> g_before_verify;

struct Row {
  std::string_view name;
  std::string_view text;
};
constexpr Row kRows[kDefects] = {
    {"state-digest", "the digests of the state parts are not compared"},
    {"block-digest", "the digests of the KV blocks are not compared"},
    {"attempt", "the offer's attempt is not compared"},
    {"epoch", "the offer's epoch is not compared"},
    {"landed", "planned, posted and landed bytes are not compared"},
    {"fresh-memory", "a dead connector's share moves into the memory it was given"},
    {"lease-pin", "compaction does not look whether a unit is leased"},
    {"generation", "a handle's generation is not compared"},
    {"fill", "a reserved unit is not cleared"},
    {"verify-nothing", "a landed bundle is taken as it came"},
    {"quiet-believed", "an aborted pull frees units that a connector may still write"},
    {"proof-not-asked", "quarantined units are never asked for their proof of quiet"},
    {"revoke-forgotten", "the source lets go of a bundle and leaves it granted"},
    {"reference-forgotten", "a reference to a shared block is not dropped"},
    {"unpin-forgotten", "a lease ends and leaves the unit pinned"},
    {"free-forgotten", "a unit that was given back is not free"},
    {"release-forgotten", "a preempted or finished sequence keeps its memory"},
    {"part-forgotten", "the last state part is missing in everybody's table of parts"},
    {"last-token-forgotten", "a checkpoint may be used that leaves no token to compute"},
};

}  // namespace

static bool On(Defect defect) { return g_defect == defect; }
std::string_view DefectName(Defect d) { return kRows[static_cast<size_t>(d)].name; }
std::string_view DefectText(Defect d) { return kRows[static_cast<size_t>(d)].text; }
void SetDefect(std::optional<Defect> defect) { g_defect = defect; }
void SetBeforeVerify(std::function<void()> hook) { g_before_verify = std::move(hook); }

Checks ChecksFor(std::optional<Defect> defect) {
  if (defect == Defect::kStateDigest) return ChecksForTesting::Without({Check::kStateDigest});
  if (defect == Defect::kBlockDigest) return ChecksForTesting::Without({Check::kBlockDigest});
  if (defect == Defect::kAttempt) return ChecksForTesting::Without({Check::kAttempt});
  if (defect == Defect::kEpoch) return ChecksForTesting::Without({Check::kEpoch});
  if (defect == Defect::kLanded) return ChecksForTesting::Without({Check::kLanded});
  if (defect == Defect::kFreshMemory) return ChecksForTesting::Without({Check::kFreshMemory});
  return {};
}

PoolChecksOff PoolChecksFor(std::optional<Defect> defect) {
  PoolChecksOff off;
  off.lease_pin = defect == Defect::kLeasePin;
  off.generation = defect == Defect::kGeneration;
  off.fill = defect == Defect::kFill;
  return off;
}

}  // namespace baton::sim

// The linker sends every call of NAME from another object to __wrap_NAME; a member function's first
// argument is its object. If a name changes, its wrap is never called, and the test that wants the
// defect to be caught fails.
extern "C" {

using baton::sim::Defect;
using baton::sim::On;
using PoolCore = baton::memory_internal::PoolCore;
using UnitRef = baton::memory_internal::UnitRef;
using Pins = std::span<const baton::memory_internal::Pin>;

#define BATON_WRAP(result, name, ...) \
  result __real_##name(__VA_ARGS__);  \
  result __wrap_##name(__VA_ARGS__);  \
  result __wrap_##name(__VA_ARGS__)

BATON_WRAP(
    baton::Status,
    _ZN5baton12VerifyBundleERKNS_8VerifierERKNS_11ExpectationERKNS_11BundleClaimERKNS_12LandedBundleE,
    const baton::Verifier& verifier,
    const baton::Expectation& expected,
    const baton::BundleClaim& claim,
    const baton::LandedBundle& landed) {
  if (baton::sim::g_before_verify != nullptr) baton::sim::g_before_verify();
  if (On(Defect::kVerifyNothing)) return absl::OkStatus();
  return __real__ZN5baton12VerifyBundleERKNS_8VerifierERKNS_11ExpectationERKNS_11BundleClaimERKNS_12LandedBundleE(
      verifier, expected, claim, landed);
}

BATON_WRAP(
    void,
    _ZN5baton11Destination7SuspectERKNS_10BundlePartERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt10shared_ptrINS_11WritersLeftEE,
    baton::Destination* self,
    const baton::BundlePart& part,
    const std::string& connector,
    std::shared_ptr<baton::WritersLeft> writers) {
  if (!On(Defect::kQuietBelieved))
    __real__ZN5baton11Destination7SuspectERKNS_10BundlePartERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt10shared_ptrINS_11WritersLeftEE(
        self, part, connector, std::move(writers));
}

BATON_WRAP(size_t, _ZN5baton10Quarantine5SweepEv, baton::Quarantine* self) {
  return On(Defect::kProofNotAsked) ? 0 : __real__ZN5baton10Quarantine5SweepEv(self);
}

BATON_WRAP(void, _ZN5baton10GrantTable9RevokeAllEv, baton::GrantTable* self) {
  if (!On(Defect::kRevokeForgotten)) __real__ZN5baton10GrantTable9RevokeAllEv(self);
}

BATON_WRAP(baton::Status,
           _ZN5baton15memory_internal8PoolCore13DropReferenceENS0_7UnitRefE,
           PoolCore* self,
           UnitRef ref) {
  if (On(Defect::kReferenceForgotten)) return absl::OkStatus();
  return __real__ZN5baton15memory_internal8PoolCore13DropReferenceENS0_7UnitRefE(self, ref);
}

BATON_WRAP(void,
           _ZN5baton15memory_internal8PoolCore8UnpinAllESt4spanIKNS0_3PinELm18446744073709551615EE,
           PoolCore* self,
           Pins pins) {
  if (!On(Defect::kUnpinForgotten))
    __real__ZN5baton15memory_internal8PoolCore8UnpinAllESt4spanIKNS0_3PinELm18446744073709551615EE(
        self, pins);
}

BATON_WRAP(baton::Status,
           _ZN5baton15memory_internal8PoolCore4FreeENS0_7UnitRefE,
           PoolCore* self,
           UnitRef ref) {
  if (On(Defect::kFreeForgotten)) return absl::OkStatus();
  return __real__ZN5baton15memory_internal8PoolCore4FreeENS0_7UnitRefE(self, ref);
}

BATON_WRAP(void,
           _ZN5baton6engine4Core13ReleaseMemoryEPNS0_8SequenceE,
           baton::engine::Core* self,
           baton::engine::Sequence* sequence) {
  if (!On(Defect::kReleaseForgotten))
    __real__ZN5baton6engine4Core13ReleaseMemoryEPNS0_8SequenceE(self, sequence);
}

BATON_WRAP(std::vector<baton::BundlePart>,
           _ZN5baton11BundlePartsERKNS_6LayoutEm,
           const baton::Layout& layout,
           uint64_t boundary) {
  auto parts = __real__ZN5baton11BundlePartsERKNS_6LayoutEm(layout, boundary);
  if (On(Defect::kPartForgotten)) parts.pop_back();
  return parts;
}

BATON_WRAP(
    std::shared_ptr<const baton::Checkpoint>,
    _ZN5baton15CheckpointStore11FindDeepestERKNS_12IdentityBaseESt4spanIKNS_11StrongBytesINS_9Sha256TagELm32EEELm18446744073709551615EEm,
    baton::CheckpointStore* self,
    const baton::IdentityBase& base,
    std::span<const baton::Sha256> hashes,
    uint64_t max_boundary) {
  if (On(Defect::kLastTokenForgotten)) max_boundary += baton::kBlockTokens;
  return __real__ZN5baton15CheckpointStore11FindDeepestERKNS_12IdentityBaseESt4spanIKNS_11StrongBytesINS_9Sha256TagELm32EEELm18446744073709551615EEm(
      self, base, hashes, max_boundary);
}

}  // extern "C"
