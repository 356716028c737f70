#include "cli/arguments.h"

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string WriteConfig(const std::string& text) {
  const std::string path = testing::TempDir() + "/baton_arguments_test.yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(Arguments, FlagsOfOtherEnginesAreAnsweredWithOurs) {
  std::vector<std::string> a = {"serve", "m", "--context-length=4096"};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("--max-model-len"));
  a = {"serve", "--model-path", "m"};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("plain argument"));
  a = {"serve", "m", "--max-model-len=4096"};
  EXPECT_THAT(ExpandArguments(&a), IsEmpty());
}

TEST(Arguments, ConfigFileBecomesFlagsAndTheCommandLineWins) {
  const std::string path =
      WriteConfig("max-num-seqs: 8\nport: 9000\nenable-prefix-caching: false\napi-key: [a, b]\n");
  std::vector<std::string> a = {"serve", "m", "--config", path, "--port", "1"};
  ASSERT_THAT(ExpandArguments(&a), IsEmpty());
  EXPECT_THAT(a, ElementsAre("serve", "m", "--max-num-seqs=8", "--no-enable-prefix-caching",
                             "--api-key=a", "--api-key=b", "--port", "1"));
}

TEST(Arguments, BrokenConfigNamesTheFile) {
  std::vector<std::string> a = {"serve", "--config", "/nonexistent.yaml"};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("/nonexistent.yaml"));
  a = {"serve", "--config"};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("needs a file"));
  a = {"serve", "--config=" + WriteConfig("[1, 2]")};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("long flag names"));
  a = {"serve", "--config=" + WriteConfig("a: {b: c}")};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("'a'"));
  a = {"serve", "--config=" + WriteConfig("mem-fraction-static: 0.8")};
  EXPECT_THAT(ExpandArguments(&a), HasSubstr("--state-slots"));
}

}  // namespace
}  // namespace baton::cli
