#include "soak/findings.h"

#include <cstdio>

namespace baton::soak {

void Findings::Wrong(const std::string& what) {
  MutexLock lock(&mu_);
  if (++wrong_ <= 100) {
    std::printf("WRONG: %s\n", what.c_str());
    std::fflush(stdout);
  }
}

void Findings::Count(const std::string& name, uint64_t more) {
  MutexLock lock(&mu_);
  counts_[name] += more;
}

uint64_t Findings::Counted(const std::string& name) const {
  MutexLock lock(&mu_);
  const auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

uint64_t Findings::wrong() const {
  MutexLock lock(&mu_);
  return wrong_;
}

void Findings::Print() const {
  MutexLock lock(&mu_);
  for (const auto& [name, count] : counts_)
    std::printf("%-40s %llu\n", name.c_str(), static_cast<unsigned long long>(count));
  std::fflush(stdout);
}

}  // namespace baton::soak
