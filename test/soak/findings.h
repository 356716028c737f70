// What a soak has found and counted. Whatever is wrong is printed at once and fails the run.
// Thread rule: thread-safe.
#ifndef BATON_TEST_SOAK_FINDINGS_H_
#define BATON_TEST_SOAK_FINDINGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"

namespace baton::soak {

class Findings {
 public:
  // Prints `what`; the run has failed. Only the first hundred are printed.
  void Wrong(const std::string& what) BATON_EXCLUDES(mu_);
  void Count(const std::string& name, uint64_t more = 1) BATON_EXCLUDES(mu_);
  uint64_t Counted(const std::string& name) const BATON_EXCLUDES(mu_);
  uint64_t wrong() const BATON_EXCLUDES(mu_);
  // One counter a line.
  void Print() const BATON_EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  uint64_t wrong_ BATON_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> counts_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::soak

#endif  // BATON_TEST_SOAK_FINDINGS_H_
