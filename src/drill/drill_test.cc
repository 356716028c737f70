// Every fault, over every connector, on the embedded model and a golden of each kind of state:
// found by its own check, answered with the right bits, nobody else changed, nothing left behind;
// and with the guards off it reaches compute.
#include "drill/drill.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/rng.h"
#include "connector/connectors.h"
#include "drill/report.h"
#include "gtest/gtest.h"

namespace baton::drill {
namespace {

std::vector<TokenId> Made(uint64_t seed, size_t n, int64_t vocab) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

std::unique_ptr<model::Model> Load(const std::string& dir) {
  auto model = model::Model::Load(std::string(BATON_SOURCE_DIR) + "/" + dir, {});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

Inputs InputsFor(const model::Model& model) {
  Inputs in;
  in.victim = Made(1, 75, model.vocab_size());
  in.other = Made(2, 80, model.vocab_size());
  in.bystander = Made(3, 30, model.vocab_size());
  in.max_tokens = 12;
  return in;
}

// False if it does not apply.
bool ExpectLoud(const Fault& fault, const FaultReport& report) {
  if (!report.not_applicable.empty()) return false;
  EXPECT_TRUE(report.detected) << report.reason << ": " << report.message;
  EXPECT_TRUE(report.tokens_equal);
  EXPECT_TRUE(report.bystander_equal);
  EXPECT_EQ(report.held, 0u);
  if (fault.no_twin.empty()) {
    EXPECT_TRUE(report.reaches_compute.value_or(false)) << "the injection did nothing";
  }
  return true;
}

using Param = std::tuple<std::string, std::string>;
class DrillTest : public ::testing::TestWithParam<Param> {};

TEST_P(DrillTest, EveryFaultIsLoudAndItsTwinReachesCompute) {
  const auto& [dir, connector] = GetParam();
  const auto model = Load(dir);
  ASSERT_NE(model, nullptr);
  auto drill = Drill::Create(model.get(), InputsFor(*model));
  ASSERT_TRUE(drill.ok()) << drill.status();
  int applicable = 0;
  for (const Fault& fault : (*drill)->faults()) {
    SCOPED_TRACE(fault.id + " " + fault.variant);
    const auto report = (*drill)->Run(fault, connector, /*divergence=*/false);
    ASSERT_TRUE(report.ok()) << report.status();
    applicable += ExpectLoud(fault, *report);
  }
  EXPECT_GE(applicable, model->layout().has_state() ? 37 : 20);
}

std::vector<std::string> ConnectorsToDrill() {
  std::vector<std::string> names = {"inproc", "shm", "tcp"};
  if (HaveUcx()) names.push_back("ucx");
  return names;
}
std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  const std::string dir = std::get<0>(info.param);
  std::string name = dir.substr(dir.rfind('/') + 1) + "_" + std::get<1>(info.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Plans,
                         DrillTest,
                         ::testing::Combine(::testing::Values("test/golden/short/jamba"),
                                            ::testing::Values("kv=shm,state=tcp",
                                                              "kv=tcp,state=inproc")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    Models,
    DrillTest,
    ::testing::Combine(::testing::Values("models/demo",
                                         "test/golden/short/llama",
                                         "test/golden/short/bamba",
                                         "test/golden/short/jamba",
                                         "test/golden/short/granitemoehybrid",
                                         // The other kinds of state, and one without KV.
                                         "test/golden/short/qwen3_next",
                                         "test/golden/short/minimax",
                                         "test/golden/short/recurrent_gemma",
                                         "test/golden/short/lfm2",
                                         "test/golden/short/mamba"),
                       ::testing::ValuesIn(ConnectorsToDrill())),
    NameOf);

// The keyed digest, in hand-offs and at rest.
TEST(Drill, EveryFaultIsLoudUnderAKeyedDigest) {
  const auto model = Load("test/golden/short/jamba");
  ASSERT_NE(model, nullptr);
  const std::vector<std::byte> key(32, std::byte{7});
  const auto digester = Digester::Create(DigestAlgorithm::kBlake2b, key);
  ASSERT_TRUE(digester.ok()) << digester.status();
  auto drill = Drill::Create(model.get(), InputsFor(*model), *digester);
  ASSERT_TRUE(drill.ok()) << drill.status();
  int applicable = 0;
  for (const auto* faults : {&(*drill)->faults(), &(*drill)->faults_at_rest()}) {
    for (const Fault& fault : *faults) {
      SCOPED_TRACE(std::string(RestName(fault.rest)) + " " + fault.id + " " + fault.variant);
      const auto report = (*drill)->Run(fault, "shm", /*divergence=*/false);
      ASSERT_TRUE(report.ok()) << report.status();
      applicable += ExpectLoud(fault, *report);
    }
  }
  EXPECT_GE(applicable, 37 + 3 * 20 + 18);
}

class DrillAtRest : public ::testing::TestWithParam<const char*> {};

TEST_P(DrillAtRest, EveryFaultIsLoudAndItsTwinReachesCompute) {
  const auto model = Load(GetParam());
  ASSERT_NE(model, nullptr);
  auto drill = Drill::Create(model.get(), InputsFor(*model));
  ASSERT_TRUE(drill.ok()) << drill.status();
  std::map<std::string, int> applicable;
  std::set<std::string> ids;
  for (const Fault& fault : (*drill)->faults_at_rest()) {
    SCOPED_TRACE(std::string(RestName(fault.rest)) + " " + fault.id + " " + fault.variant);
    const auto report = (*drill)->Run(fault, "", /*divergence=*/false);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->connector, RestName(fault.rest));
    if (!ExpectLoud(fault, *report)) continue;
    ++applicable[report->connector];
    ids.insert(fault.id);
  }
  const bool state = model->layout().has_state();
  // A sequence is parked for want of KV blocks; one that has none, or a window's, is not.
  const auto& groups = model->layout().groups();
  const bool kv = !groups.empty();
  const bool grows =
      std::any_of(groups.begin(), groups.end(), [](const KvGroup& g) { return g.window == 0; });
  for (const char* place : {"memory", "host", "disk"})
    EXPECT_GE(applicable[place], state ? 20 : 8) << place;
  EXPECT_GE(applicable["parking"], !grows ? 0 : state ? 18 : 8);
  if (state)
    for (const char* id : {"F01", "F10", "F11", "F12", "F13", "F14", "F16", "F17", "F18", "F26",
                           "F27", "F29", "F30"})
      EXPECT_TRUE(ids.contains(id)) << id;
  if (state && kv) EXPECT_TRUE(ids.contains("F23"));
  if (state && grows) EXPECT_TRUE(ids.contains("F25"));
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DrillAtRest,
                         ::testing::Values("models/demo",
                                           "test/golden/short/llama",
                                           "test/golden/short/jamba",
                                           "test/golden/short/qwen3_next",
                                           "test/golden/short/minimax",
                                           "test/golden/short/recurrent_gemma",
                                           "test/golden/short/lfm2",
                                           "test/golden/short/mamba"),
                         [](const auto& info) {
                           const std::string dir = info.param;
                           return dir.substr(dir.rfind('/') + 1);
                         });

TEST(Drill, TwoSequencesInOneSlotAreRefused) {
  const auto model = Load("models/demo");
  ASSERT_NE(model, nullptr);
  const auto report = TwoSequencesInOneSlot(*model, InputsFor(*model));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->detected);
  EXPECT_TRUE(report->reaches_compute.value_or(false));
}

TEST(Drill, DivergenceIsMeasuredAndShown) {
  const auto model = Load("models/demo");
  ASSERT_NE(model, nullptr);
  auto drill = Drill::Create(model.get(), InputsFor(*model));
  ASSERT_TRUE(drill.ok()) << drill.status();
  Report report;
  report.model = "demo";
  report.connectors = {"inproc"};
  report.truth = (*drill)->truth();
  for (const Fault& fault : (*drill)->faults()) {
    if (fault.id != "F01") continue;
    auto one = (*drill)->Run(fault, "inproc", /*divergence=*/true);
    ASSERT_TRUE(one.ok()) << one.status();
    report.faults.push_back(*std::move(one));
  }
  ASSERT_EQ(report.faults.size(), 2u);
  FaultReport absent;
  absent.id = "F06";
  absent.not_applicable = "this model has one recurrent layer";
  report.faults.push_back(absent);
  ASSERT_TRUE(report.faults[0].divergence.has_value());
  const Divergence& d = *report.faults[0].divergence;
  EXPECT_EQ(d.kl.size(), report.truth.size());
  EXPECT_GT(d.kl[0], 0);
  EXPECT_GT(d.first_token_distance, 0);
  EXPECT_LE(d.first_token_distance, 1);
  EXPECT_TRUE(report.Passed());
  const OrderedJson json = ToJson(report, nullptr);
  EXPECT_EQ(json["faults"][0]["id"], "F01");
  EXPECT_EQ(json["faults"][0]["reaches_compute_with_guard_off"], true);
  EXPECT_EQ(json["faults"][2]["applicable"], false);
  EXPECT_FALSE(json["faults"][2].contains("detected"));
  EXPECT_NE(PlotSvg(report).find("<polyline"), std::string::npos);
  EXPECT_NE(FormatTable(report, nullptr).find("not applicable"), std::string::npos);
}

TEST(Drill, ShortPromptsAreRefused) {
  const auto model = Load("models/demo");
  ASSERT_NE(model, nullptr);
  Inputs in = InputsFor(*model);
  in.victim.resize(40);
  EXPECT_EQ(Drill::Create(model.get(), in).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::drill
