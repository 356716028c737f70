// Every type of model and every recorded set of test/golden, for tables of tests. golden_test
// compares them with the registry. For tests only. Thread rule: constants and free functions.
#ifndef BATON_MODEL_TEST_TYPES_H_
#define BATON_MODEL_TEST_TYPES_H_

#include <algorithm>
#include <string>
#include <vector>

namespace baton::model {

inline constexpr const char* kTestTypes[] = {
    "bamba",       "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba",           "lfm2",
    "lfm2_moe",    "llama",     "mamba",        "mamba2",           "minimax",         "nemotron_h",
    "olmo_hybrid", "qwen3_5",   "qwen3_5_moe",  "qwen3_next",       "recurrent_gemma", "zamba",
    "zamba2"};

// "short/bamba": all types of one set.
inline std::vector<std::string> GoldenSet(const std::string& set) {
  std::vector<std::string> names;
  for (const char* type : kTestTypes) names.push_back(set + "/" + type);
  return names;
}

// Both sets.
inline std::vector<std::string> GoldenSets() {
  std::vector<std::string> names = GoldenSet("short");
  for (std::string& name : GoldenSet("long")) names.push_back(std::move(name));
  return names;
}

// A parameter as part of a test's name.
inline std::string TestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '-' || c == '@'; }, '_');
  return name;
}

}  // namespace baton::model

#endif  // BATON_MODEL_TEST_TYPES_H_
