// What a drill found, for people, programs and a page: a table, JSON, and an SVG of the divergence
// along the sequence. Thread rule: free functions.
#ifndef BATON_DRILL_REPORT_H_
#define BATON_DRILL_REPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "drill/drill.h"

namespace baton::drill {

struct Report {
  std::string model;  // as the user named it
  std::vector<std::string> connectors;
  std::string digest = "xxh3-128";  // how workers digested
  std::vector<TokenId> truth;       // the victim's right output
  std::vector<FaultReport> faults;

  bool Passed() const;
};

// Token ids as text; "" for a model without a tokenizer.
using TextOf = std::function<std::string(std::span<const TokenId>)>;

// One line per fault, then what a user would have received with the guards off.
std::string FormatTable(const Report& report, const TextOf& text);
// {"passed":..,"model":..,"digest":..,"faults":[{"id":"F01","connector":..,"detected":true,
// "reason":..,"tokens_equal":true,"reaches_compute_with_guard_off":true,...}]}; null: not tried.
OrderedJson ToJson(const Report& report, const TextOf& text);
// KL by position (log scale), one line per fault that has a divergence.
std::string PlotSvg(const Report& report);

}  // namespace baton::drill

#endif  // BATON_DRILL_REPORT_H_
