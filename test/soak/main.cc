// baton-soak: hours of what production does to a worker, in minutes. See usage below and
// docs/soak.md.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "soak/clean.h"
#include "soak/findings.h"

namespace baton::soak {
namespace {

constexpr char kUsage[] =
    "usage: baton-soak --clean N [--seed S]   N hand-offs that nothing disturbs\n";

struct Flags {
  uint64_t clean = 0;
  uint64_t seed = 1;
};

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--clean") == 0 && more)
      flags->clean = std::strtoull(argv[++i], nullptr, 10);
    else if (std::strcmp(argv[i], "--seed") == 0 && more)
      flags->seed = std::strtoull(argv[++i], nullptr, 10);
    else
      return false;
  }
  return flags->clean > 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, &flags)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  SetLogLevel(LogLevel::kWarning);
  Findings findings;
  if (flags.clean > 0) RunClean(flags.clean, flags.seed, &findings);
  findings.Print();
  std::printf("%llu wrong\n", static_cast<unsigned long long>(findings.wrong()));
  return findings.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::soak

int main(int argc, char** argv) { return baton::soak::Main(argc, argv); }
