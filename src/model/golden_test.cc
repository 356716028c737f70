// Every supported type against recorded outputs of the transformers library.
#include "model/golden.h"

#include <filesystem>
#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "model/architecture.h"
#include "model/test_types.h"

namespace baton::model {
namespace {

constexpr char kRoot[] = BATON_SOURCE_DIR "/test/golden/";

// Keys and values in the long records of qwen3_5, qwen3_5_moe and qwen3_next are themselves 1.4e-4
// to 2.7e-4 from the same model computed in double (a token's norm magnifies what f32 makes of a
// small output); exact.safetensors has those values, and this engine must be as near to them.
constexpr GoldenTolerance kTolerance;

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReferenceKernelsAgree) {
  LoadOptions options;
  options.kernels = &kernel::ReferenceKernels();
  const auto report = RunGolden(kRoot + GetParam(), options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->Passed(kTolerance)) << FormatGolden(*report, kTolerance);
  if (report->model_type != "recurrent_gemma") {  // the library exposes no states of it
    EXPECT_GT(report->states_compared, 0);
  }
  std::printf("%s\n", FormatGolden(*report, kTolerance).c_str());
}

TEST_P(GoldenTest, DispatchedKernelsAgreeOnTwoThreads) {
  ThreadPool pool(2);
  LoadOptions options;
  options.pool = &pool;
  const auto report = RunGolden(kRoot + GetParam(), options, &pool);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->Passed(kTolerance)) << FormatGolden(*report, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenTest, testing::ValuesIn(GoldenSets()), [](const auto& info) {
  return TestName(info.param);
});

// A type of the registry without a record, or left out of the tables of tests, does not stay so.
// Another spelling of a type is read as that type is and shares its record.
TEST(GoldenTypes, AreThoseOfTheRegistryAndOfTheFolders) {
  const std::set<std::string> types(std::begin(kTestTypes), std::end(kTestTypes));
  std::set<decltype(Architecture::parse)> tested, registered;
  for (const Architecture& a : Architectures()) {
    registered.insert(a.parse);
    if (types.contains(a.model_type)) tested.insert(a.parse);
  }
  EXPECT_EQ(tested.size(), types.size()) << "a type of the tables is not registered";
  EXPECT_EQ(registered, tested) << "a registered type is in no table";
  for (const char* set : {"short", "long"}) {
    std::set<std::string> folders;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(kRoot) + set))
      folders.insert(entry.path().filename());
    EXPECT_EQ(folders, types) << set;
  }
}

}  // namespace
}  // namespace baton::model
