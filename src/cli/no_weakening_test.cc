// serve and route have no flag, file or variable that weakens a check, and no way to a hostile
// connector: those exist in the demo's own worker and in tests only.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cli/command.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool IsTest(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.find("_test.cc") != std::string::npos || name.find("_fuzz.cc") != std::string::npos;
}

TEST(NoWeakening, NoFlagOfServeOrRouteTouchesVerification) {
  for (auto* add : {AddServe, AddRoute, AddUp}) {
    CLI::App app;
    const auto run = add(&app);  // holds what the options write to
    for (const CLI::Option* option : app.get_options()) {
      const std::string name = option->get_name(false, true);
      EXPECT_TRUE(option->get_envname().empty()) << name << " can be set by a variable";
      if (name == "--digest" || name == "--digest-key-file") continue;  // the next test's
      for (const char* word :
           {"verif", "digest", "unsafe", "insecure", "skip", "hostile", "fault", "trust"})
        EXPECT_EQ(name.find(word), std::string::npos) << name;
    }
  }
}

// --digest chooses between two digests; there is no way to ask for none.
TEST(NoWeakening, TheDigestIsOneOfTwo) {
  for (const char* value : {"none", "off", "", "xxh3", "XXH3-128"}) {
    CLI::App app;
    const auto run = AddServe(&app);
    EXPECT_THROW(app.parse({"model", value, "--digest"}), CLI::ValidationError) << value;
  }
}

TEST(NoWeakening, ServingCodeCannotReachWhatWeakens) {
  const fs::path src = fs::path(BATON_SOURCE_DIR) / "src";
  int files = 0;
  for (const char* module : {"engine", "server", "cli", "handoff", "cache", "connector"}) {
    for (const auto& entry : fs::recursive_directory_iterator(src / module)) {
      const fs::path& path = entry.path();
      if (!entry.is_regular_file() || IsTest(path)) continue;
      if (path.string().find("/hostile/") != std::string::npos) continue;
      if (path.string().find("/testing/") != std::string::npos) continue;  // fixtures
      ++files;
      const std::string text = Read(path);
      const std::string name = path.filename().string();
      if (name != "checks_for_testing.h") {
        EXPECT_EQ(text.find("#include \"handoff/checks_for_testing.h\""), std::string::npos)
            << path;
      }
      if (path.string().find("/cli/drill.cc") == std::string::npos) {
        EXPECT_EQ(text.find("#include \"drill/"), std::string::npos) << path;
      }
      if (name != "demo_worker.cc") {  // src/drill is the other one, and no module of this list
        EXPECT_EQ(text.find("#include \"connector/hostile"), std::string::npos) << path;
      }
      EXPECT_EQ(text.find("getenv"), std::string::npos) << path;
    }
  }
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace baton::cli
