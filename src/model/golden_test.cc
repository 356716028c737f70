// Every supported type against recorded outputs of the transformers library.
#include "model/golden.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "model/safetensors.h"

namespace baton::model {
namespace {

constexpr char kRoot[] = BATON_SOURCE_DIR "/test/golden/";

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReferenceKernelsAgree) {
  LoadOptions options;
  options.kernels = &kernel::ReferenceKernels();
  const auto report = RunGolden(kRoot + GetParam(), options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->Passed({})) << FormatGolden(*report, {});
  EXPECT_GT(report->states_compared, 0);
  std::printf("%s\n", FormatGolden(*report, {}).c_str());
}

TEST_P(GoldenTest, DispatchedKernelsAgreeOnTwoThreads) {
  ThreadPool pool(2);
  LoadOptions options;
  options.pool = &pool;
  const auto report = RunGolden(kRoot + GetParam(), options, &pool);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->Passed({})) << FormatGolden(*report, {});
}

INSTANTIATE_TEST_SUITE_P(Types,
                         GoldenTest,
                         testing::Values("short/bamba",
                                         "short/falcon_h1",
                                         "short/falcon_mamba",
                                         "short/mamba",
                                         "short/mamba2",
                                         "short/nemotron_h",
                                         "short/zamba",
                                         "short/zamba2",
                                         "long/falcon_h1",
                                         "long/falcon_mamba",
                                         "long/mamba",
                                         "long/mamba2",
                                         "long/nemotron_h",
                                         "long/zamba",
                                         "long/zamba2",
                                         "short/granitemoehybrid",
                                         "short/jamba",
                                         "short/lfm2",
                                         "short/lfm2_moe",
                                         "short/minimax",
                                         "short/llama",
                                         "long/bamba",
                                         "long/granitemoehybrid",
                                         "long/jamba",
                                         "long/lfm2",
                                         "long/lfm2_moe",
                                         "long/minimax",
                                         "long/llama"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name[name.find('/')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace baton::model
