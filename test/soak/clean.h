// False alarms: hand-offs that nothing disturbs, over every connector and every kind of state. Not
// one of them may be refused. Thread rule: one thread.
#ifndef BATON_TEST_SOAK_CLEAN_H_
#define BATON_TEST_SOAK_CLEAN_H_

#include <cstdint>

#include "soak/findings.h"

namespace baton::soak {

// Makes at least `handoffs` hand-offs, the same number for each model, connectors and mixed plans
// round robin; prints a table. Wrong: a reject, a refusal, a failover, a second try, a wrong token,
// anything left over.
void RunClean(uint64_t handoffs, uint64_t seed, Findings* findings);

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_CLEAN_H_
