// Nothing that serves can switch a check off: the header that can is included by tests alone, and
// Checks offers no other way.
#include "handoff/checks_for_testing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>

namespace baton {
namespace {

namespace fs = std::filesystem;

bool IsTest(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.find("_test.") != std::string::npos ||
         name.find("for_testing") != std::string::npos ||
         path.string().find("/testing/") != std::string::npos ||
         path.string().find("/drill/") != std::string::npos;  // nothing that serves links it
}

TEST(ChecksForTesting, OnlyTestsIncludeIt) {
  const fs::path source = fs::path(BATON_SOURCE_DIR) / "src";
  int looked_at = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const fs::path& path = entry.path();
    const bool is_code = path.extension() == ".h" || path.extension() == ".cc";
    if (!entry.is_regular_file() || !is_code || IsTest(path)) continue;
    ++looked_at;
    std::ifstream in(path);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (const char* forbidden : {"checks_for_testing", "ChecksForTesting::"})
      EXPECT_EQ(text.find(forbidden) == std::string::npos || path.filename() == "checks.h", true)
          << path << " names " << forbidden;
  }
  EXPECT_GT(looked_at, 30);  // the walk really saw the tree
}

TEST(ChecksForTesting, ChecksAreAllOnAndHaveNoOtherConstructor) {
  const Checks checks;
  for (int i = 0; i <= static_cast<int>(Check::kPeer); ++i)
    EXPECT_TRUE(checks.On(static_cast<Check>(i)));
  static_assert(!std::is_constructible_v<Checks, unsigned>);
  static_assert(!std::is_constructible_v<Checks, Check>);
  static_assert(!std::is_aggregate_v<Checks>);
  constexpr Checks without = ChecksForTesting::Without({Check::kEpoch});
  static_assert(!without.On(Check::kEpoch) && without.On(Check::kAttempt));
}

}  // namespace
}  // namespace baton
