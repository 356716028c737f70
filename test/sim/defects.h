// Deliberate defects, to show that the simulator would notice: each is one line that somebody could
// have written or left out. The switches exist in this program only: defects.cc stands between the
// production objects (the linker's --wrap), or sets the switches that the tests of faults have.
// Nothing of it can be reached from serve or route.
// Thread rule: one OS thread.
#ifndef BATON_TEST_SIM_DEFECTS_H_
#define BATON_TEST_SIM_DEFECTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "handoff/checks.h"
#include "memory/pool_core.h"

namespace baton::sim {

enum class Defect : uint8_t {
  kStateDigest,  // checks off
  kBlockDigest,
  kAttempt,
  kEpoch,
  kLanded,
  kFreshMemory,
  kLeasePin,  // pool checks off
  kGeneration,
  kFill,
  kVerifyNothing,  // lines left out or changed, by wrap
  kQuietBelieved,
  kProofNotAsked,
  kRevokeForgotten,
  kReferenceForgotten,
  kUnpinForgotten,
  kFreeForgotten,
  kReleaseForgotten,
  kPartForgotten,
  kLastTokenForgotten,
};
inline constexpr size_t kDefects = 19;
std::string_view DefectName(Defect defect);
// What the line does, or fails to do.
std::string_view DefectText(Defect defect);

// The one that is switched on in this program.
void SetDefect(std::optional<Defect> defect);
Checks ChecksFor(std::optional<Defect> defect);
PoolChecksOff PoolChecksFor(std::optional<Defect> defect);

// Called before each verification of landed bytes: the stage between the pull and the commit.
void SetBeforeVerify(std::function<void()> hook);

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_DEFECTS_H_
