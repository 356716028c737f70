// Switches checks off, to show that each can fail: the twin of a fault test, the drill. Never
// included by src/engine, src/server or src/cli (checks_for_testing_test.cc looks).
// Thread rule: plain functions.
#ifndef BATON_HANDOFF_CHECKS_FOR_TESTING_H_
#define BATON_HANDOFF_CHECKS_FOR_TESTING_H_

#include <initializer_list>

#include "handoff/checks.h"

namespace baton {

struct ChecksForTesting {
  // All but those.
  static constexpr Checks Without(std::initializer_list<Check> off) {
    Checks checks;
    for (const Check check : off) checks = Also(checks, check);
    return checks;
  }
  // `checks` with one more off.
  static constexpr Checks Also(Checks checks, Check off) {
    checks.off_ |= Checks::Bit(off);
    return checks;
  }
};

}  // namespace baton

#endif  // BATON_HANDOFF_CHECKS_FOR_TESTING_H_
