// What is wrong with a model directory, or not supported, said before anything is loaded: reads
// config.json and the headers of the weight files, never a weight. Thread rule: free functions.
#ifndef BATON_MODEL_CHECK_H_
#define BATON_MODEL_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

namespace baton::model {

struct CheckReport {
  std::string path;
  std::string model_type;             // "" if config.json could not be read
  std::vector<std::string> problems;  // each names the thing, what was expected and the remedy
  std::vector<std::string> notes;     // true, but no obstacle
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;

  bool servable() const { return problems.empty(); }
};

// Never fails: what cannot be read is a problem in the report.
CheckReport CheckModel(const std::string& dir);

std::string FormatCheck(const CheckReport& report);

}  // namespace baton::model

#endif  // BATON_MODEL_CHECK_H_
