#include "handoff/transfer_plan.h"

#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace baton {

StatusOr<TransferPlan> ParseTransferPlan(const std::string& text) {
  TransferPlan plan;
  if (!absl::StartsWith(text, "kv=") && !absl::StartsWith(text, "state=")) {
    plan.control = text;
    return plan;
  }
  const auto bad = [&text](const char* what) {
    return absl::InvalidArgumentError("transfer plan '" + text + "': " + what +
                                      "; write kv=ENDPOINT,state=ENDPOINT or one ENDPOINT");
  };
  const std::vector<std::string> rules = absl::StrSplit(text, ',');
  for (const std::string& rule : rules) {
    const size_t equals = rule.find('=');
    const std::string name = rule.substr(0, equals);
    std::string* const where = name == "kv" ? &plan.kv : name == "state" ? &plan.state : nullptr;
    if (where == nullptr) return bad("the rules are kv and state");
    if (!where->empty()) return bad("a rule is there twice");
    if (equals == std::string::npos || equals + 1 == rule.size())
      return bad("a rule names nothing");
    *where = rule.substr(equals + 1);
    if (plan.control.empty()) plan.control = *where;
  }
  if (plan.kv.empty() || plan.state.empty()) return bad("one of the two rules is missing");
  if (plan.kv == plan.state) plan.kv = plan.state = "";
  return plan;
}

}  // namespace baton
