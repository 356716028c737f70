// Which endpoint of one source carries what. Text form, as in flags and requests:
//   "shm:@prefill"                              one connection for everything
//   "kv=shm:@prefill,state=tcp:127.0.0.1:9001"  KV blocks and state over connections of their own
// The conversation itself goes to the endpoint named first. Thread rule: plain value.
#ifndef BATON_HANDOFF_TRANSFER_PLAN_H_
#define BATON_HANDOFF_TRANSFER_PLAN_H_

#include <string>

#include "base/status.h"

namespace baton {

struct TransferPlan {
  std::string control;
  std::string kv;     // empty: over the control connection, as is `state` then
  std::string state;  // empty iff kv is
  bool mixed() const { return !kv.empty(); }
  friend bool operator==(const TransferPlan&, const TransferPlan&) = default;
};

// InvalidArgument naming what is wrong: a rule twice, missing or unknown. One endpoint in both
// rules is the single form. Endpoints themselves are judged by their connector.
StatusOr<TransferPlan> ParseTransferPlan(const std::string& text);

}  // namespace baton

#endif  // BATON_HANDOFF_TRANSFER_PLAN_H_
