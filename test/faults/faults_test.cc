// Faults that other engines answer with fluent wrong text, injected between two real workers over
// real models. For each: (a) refused with its reason before a token is decoded, (b) the request
// still gets the tokens and logits of an undisturbed run, (c) a request running beside it changes
// by no bit, (d) nothing leaks. Each has a twin: the same injection with its checks switched off,
// which must reach compute. The hand-off's own tests (src/handoff) have the same catalogue on
// bytes.
#include <functional>
#include <thread>

#include "base/rng.h"
#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"
#include "connector/hostile/hostile_provider.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "handoff/checks_for_testing.h"
#include "handoff/parts.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using ::testing::AnyOf;
using ::testing::Contains;

// What a fault needs to know of the model under test.
struct Target {
  const Layout* layout;
  uint64_t boundary;                             // of the attacked hand-off
  std::shared_ptr<const CapturedPull> captured;  // of the hand-off before it
};

struct Fault {
  std::string id;
  std::vector<std::string> reasons;  // any of these is the fault's own
  std::vector<Check> twin_off;       // with these off it must reach compute; empty: no twin here
  std::function<Attack(const Target&)> attack;        // on the receiver's side
  std::function<SourceAttack(const Target&)> source;  // or on the source's
  bool needs_state = false;
  bool needs_kv = false;
};

PartKey FirstState(const Layout&) { return StatePartKey(0); }
PartKey Part(const Layout& l, std::string_view component) {
  for (size_t i = 0; i < l.parts().size(); ++i)
    if (l.parts()[i].component == component) return StatePartKey(i);
  return StatePartKey(0);
}
// The second layer's part of this component.
PartKey OtherLayer(const Layout& l, std::string_view component) {
  bool first = true;
  for (size_t i = 0; i < l.parts().size(); ++i) {
    if (l.parts()[i].component != component) continue;
    if (!first) return StatePartKey(i);
    first = false;
  }
  return StatePartKey(0);
}

std::vector<Fault> Catalogue() {
  const std::string digest = "digest_mismatch", block = "block_digest_mismatch";
  std::vector<Fault> faults;
  auto add = [&](Fault f) { faults.push_back(std::move(f)); };
  add({"F01_state_of_another_request",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return SubstitutePayload(t.captured, IsStatePart); },
       {},
       true,
       false});
  add({"F01_kv_of_another_request",
       {block},
       {Check::kBlockDigest},
       [](const Target& t) {
         return SubstitutePayload(t.captured, [](PartKey k) { return !IsStatePart(k); });
       },
       {},
       false,
       true});
  add({"F03_state_of_an_earlier_step",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return SubstitutePayload(t.captured, IsStatePart); },
       {},
       true,
       false});
  add({"F23_kv_at_n_state_at_m",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return SubstitutePayload(t.captured, IsStatePart); },
       {},
       true,
       true});
  add({"F06_two_layers_swapped",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) {
         return SwapParts(Part(*t.layout, "ssm"), OtherLayer(*t.layout, "ssm"));
       },
       {},
       true,
       false});
  add({"F06_two_conv_windows_swapped",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) {
         return SwapParts(Part(*t.layout, "conv"), OtherLayer(*t.layout, "conv"));
       },
       {},
       true,
       false});
  add({"F06_kv_blocks_swapped",
       {block},
       {Check::kBlockDigest},
       [](const Target&) { return SwapParts(BlockPartKey(0, 0), BlockPartKey(0, 1)); },
       {},
       false,
       true});
  add({"F07_conv_window_never_sent",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return ZeroPart(Part(*t.layout, "conv")); },
       {},
       true,
       false});
  add({"F07_part_missing_from_the_offer",
       {"missing_part"},
       {},
       [](const Target& t) { return DropOfferedPart(FirstState(*t.layout)); },
       {},
       true,
       false});
  add({"F08_success_moving_nothing",
       {"short_transfer"},
       {Check::kLanded, Check::kStateDigest, Check::kBlockDigest, Check::kFinite},
       [](const Target&) { return MoveNothing(false); },
       {},
       false,
       false});
  add({"F08_success_claiming_all_moved",
       {digest, block},
       {Check::kStateDigest, Check::kBlockDigest, Check::kFinite},
       [](const Target&) { return MoveNothing(true); },
       {},
       false,
       false});
  add({"F09_torn",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return TearPart(Part(*t.layout, "ssm")); },
       {},
       true,
       false});
  add({"F10_bit_in_state",
       {digest},
       {Check::kStateDigest},
       [](const Target& t) { return FlipBytes(Part(*t.layout, "ssm"), 5, 1, 0x40); },
       {},
       true,
       false});
  add({"F10_cache_line_in_conv",
       {digest},
       {Check::kStateDigest, Check::kFinite},
       [](const Target& t) { return FlipBytes(Part(*t.layout, "conv"), 0, 64, 0x11); },
       {},
       true,
       false});
  add({"F10_page_in_kv",
       {block},
       {Check::kBlockDigest, Check::kFinite},
       [](const Target&) { return FlipBytes(BlockPartKey(0, 0), 0, 4096, 0x05); },
       {},
       false,
       true});
  add({"F10_bit_in_the_offer",
       {"malformed"},
       {},
       [](const Target&) { return FlipOfferBit(777, false); },
       {},
       false,
       false});
  add({"F10_bit_in_the_seal",
       {"malformed"},
       {},
       [](const Target&) { return FlipSealBit(333); },
       {},
       false,
       false});
  add({"F11_bundle_one_block_short",
       {"boundary_mismatch"},
       {},
       {},
       [](const Target&) { return ServeShorter(16); },
       false,
       false});
  add({"F14_another_tenants_scope",
       {"scope_mismatch"},
       {},
       {},
       [](const Target&) { return ServeOtherScope(ScopeOf("someone else")); },
       false,
       false});
  add({"F28_a_digest_is_absent",
       {"digest_algorithm"},
       {},
       {},
       [](const Target&) { return OmitDigest(0); },
       true,
       false});
  add({"F28_other_algorithm",
       {"digest_algorithm"},
       {},
       {},
       [](const Target&) { return NameOtherAlgorithm(); },
       false,
       false});
  add({"F29_nan_in_state",
       {digest, "non_finite"},
       {},
       [](const Target& t) { return InjectNaN(Part(*t.layout, "ssm")); },
       {},
       true,
       false});
  add({"F30_hostile_count_inside_a_valid_checksum",
       {"malformed"},
       {},
       [](const Target&) {
         return PatchOffer(kOfferSealLengthAt, {0xFF, 0xFF, 0xFF, 0x7F});
       },
       {},
       false,
       false});
  return faults;
}

struct Bench {
  std::shared_ptr<const model::Model> model;
  std::string connector;
  HostileConnector* hostile = nullptr;  // of the decode worker
  HostileProvider* provider = nullptr;  // of the prefill worker
  std::unique_ptr<Deployment> d;

  Bench(std::shared_ptr<const model::Model> m, std::string c, Checks checks)
      : model(std::move(m)), connector(std::move(c)) {
    static const MonotonicClock clock;
    DeploymentOptions options;
    options.connector = connector;
    options.tweak_decode = [&, checks](engine::WorkerOptions* o) {
      o->checks = checks;
      o->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock, o->hub));
      auto wrapped = std::make_unique<HostileConnector>(o->connectors->Take(connector));
      hostile = wrapped.get();
      o->connectors->Add(std::move(wrapped));
    };
    options.tweak_prefill = [&](engine::WorkerOptions* o) {
      o->wrap_provider = [&](BundleProvider* inner) {
        auto wrapped = std::make_unique<HostileProvider>(inner);
        provider = wrapped.get();
        return wrapped;
      };
    };
    d = std::make_unique<Deployment>(model, options);
  }
};

GenerateRequest Request(uint64_t seed, size_t n, int64_t vocab) {
  GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, vocab);
  r.sampling.max_tokens = 12;
  r.sampling.temperature = 0;
  return r;
}

struct Outcome {
  std::vector<TokenId> tokens;
  Sha256 hash;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Undisturbed(std::shared_ptr<const model::Model> model, const GenerateRequest& r) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  auto sink = d.Start(r);
  sink->Wait();
  return {sink->tokens(), sink->logits_hash()};
}

// Runs an honest hand-off to capture, then the attacked one. F03 and F23 capture the same prompt at
// an earlier boundary.
std::shared_ptr<Collector> Attacked(Bench& b, const Fault& fault, const GenerateRequest& victim) {
  GenerateRequest first = Request(500, victim.prompt.size(), b.model->vocab_size());
  if (fault.id.rfind("F03", 0) == 0 || fault.id.rfind("F23", 0) == 0) {
    first = victim;
    first.prompt.resize(40);
    first.sampling.max_tokens = 1;
  }
  b.hostile->CaptureNext();
  EXPECT_EQ(b.d->Start(first)->Wait().usage.rejects, 0);
  const Target target{
      &b.model->layout(),
      static_cast<uint64_t>(HandoffBoundary(static_cast<int64_t>(victim.prompt.size()))),
      b.hostile->captured()};
  EXPECT_NE(target.captured, nullptr);
  if (fault.attack) b.hostile->Arm(fault.attack(target), 1);
  if (fault.source) b.provider->Arm(fault.source(target), 1);
  return b.d->Start(victim);
}

bool Applies(const Fault& f, const Layout& l) {
  return (!f.needs_state || l.has_state()) && (!f.needs_kv || !l.groups().empty());
}

using Param = std::tuple<std::string, std::string>;
class Faults : public ::testing::TestWithParam<Param> {};

TEST_P(Faults, AreLoudAndHarmNobody) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const GenerateRequest victim = Request(1, 75, model->vocab_size());
  GenerateRequest bystander = Request(2, 30, model->vocab_size());
  bystander.sampling.max_tokens = 60;
  const Outcome truth = Undisturbed(model, victim);
  const Outcome beside = Undisturbed(model, bystander);
  for (const Fault& fault : Catalogue()) {
    if (!Applies(fault, model->layout())) continue;
    SCOPED_TRACE(fault.id);
    Bench b(model, connector, Checks());
    auto other = b.d->Start(bystander);
    other->WaitForTokens(1);
    auto sink = Attacked(b, fault, victim);
    const engine::GenerateResult& result = sink->Wait();
    ASSERT_FALSE(result.handoffs.empty());
    EXPECT_FALSE(result.handoffs[0].verified);
    EXPECT_THAT(fault.reasons, Contains(result.handoffs[0].reason)) << result.handoffs[0].message;
    EXPECT_EQ(result.usage.rejects, 1);
    EXPECT_EQ(result.reason, FinishReason::kLength) << result.error;
    EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), truth);
    other->Wait();
    EXPECT_EQ((Outcome{other->tokens(), other->logits_hash()}), beside);
    b.d->ExpectNothingLeaks();
  }
}

TEST_P(Faults, ReachComputeWithTheirCheckOff) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const GenerateRequest victim = Request(1, 75, model->vocab_size());
  const Outcome truth = Undisturbed(model, victim);
  for (const Fault& fault : Catalogue()) {
    if (!Applies(fault, model->layout()) || fault.twin_off.empty()) continue;
    SCOPED_TRACE(fault.id);
    Checks checks;
    for (const Check c : fault.twin_off) checks = ChecksForTesting::Also(checks, c);
    Bench b(model, connector, checks);
    auto sink = Attacked(b, fault, victim);
    const engine::GenerateResult& result = sink->Wait();
    ASSERT_FALSE(result.handoffs.empty());
    EXPECT_TRUE(result.handoffs[0].verified) << result.handoffs[0].message;
    EXPECT_NE(sink->logits_hash(), truth.hash) << "the injection did nothing";
  }
}

TEST_P(Faults, FailOnRejectSaysWhy) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const GenerateRequest victim = Request(1, 75, model->vocab_size());
  static const MonotonicClock clock;
  HostileConnector* hostile = nullptr;
  DeploymentOptions options;
  options.connector = connector;
  options.engine.fail_on_reject = true;
  options.tweak_decode = [&](engine::WorkerOptions* o) {
    o->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock, o->hub));
    auto wrapped = std::make_unique<HostileConnector>(o->connectors->Take(connector));
    hostile = wrapped.get();
    o->connectors->Add(std::move(wrapped));
  };
  Deployment d(model, options);
  hostile->Arm(MoveNothing(true), 1000);
  auto sink = d.Start(victim);
  const auto& result = sink->Wait();
  EXPECT_EQ(result.reason, FinishReason::kError);
  EXPECT_TRUE(ReasonOf(result.error).has_value()) << result.error;
  EXPECT_TRUE(sink->tokens().empty());
  EXPECT_EQ(result.usage.rejects, 2);
  hostile->Disarm();
  EXPECT_EQ(d.Start(victim)->Wait().reason, FinishReason::kLength);
  d.ExpectNothingLeaks();
}

// F04: the source's lease runs out before the bytes are read, and the memory has a new owner.
TEST_P(Faults, F04LateReadOfReusedMemory) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  static const MonotonicClock clock;
  HostileConnector* hostile = nullptr;
  DeploymentOptions options;
  options.connector = connector;
  options.tweak_prefill = [](engine::WorkerOptions* o) {
    o->lease = std::chrono::milliseconds(60);
  };
  options.tweak_decode = [&](engine::WorkerOptions* o) {
    o->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock, o->hub));
    auto wrapped = std::make_unique<HostileConnector>(o->connectors->Take(connector));
    hostile = wrapped.get();
    o->connectors->Add(std::move(wrapped));
  };
  Deployment d(model, options);
  const GenerateRequest victim = Request(1, 75, model->vocab_size());
  const Outcome truth = Undisturbed(model, victim);
  hostile->Arm(
      BeforePull(
          [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            d.prefill().engine().RunOnEngineThread([](engine::Core& c) { c.DropCheckpoints(); });
            for (uint64_t i = 0; i < 4; ++i) {  // new owners for what was freed
              auto other = std::make_shared<Collector>();
              (void)d.prefill().engine().Start(Request(60 + i, 75, model->vocab_size()), other);
              other->Wait();
            }
          },
          true),
      1);
  auto sink = d.Start(victim);
  const auto& result = sink->Wait();
  ASSERT_FALSE(result.handoffs.empty());
  EXPECT_FALSE(result.handoffs[0].verified);
  EXPECT_THAT(result.handoffs[0].reason, AnyOf("lease_expired", "peer_unavailable",
                                               "digest_mismatch", "block_digest_mismatch"));
  EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), truth);
  d.ExpectNothingLeaks();
}

// F21: the source restarts between two hand-offs; its addresses and counters start over.
TEST_P(Faults, F21RestartedSourceIsANewEpoch) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  DeploymentOptions options;
  options.connector = connector;
  Deployment d(model, options);
  const GenerateRequest r = Request(1, 75, model->vocab_size());
  const Outcome truth = Undisturbed(model, r);
  EXPECT_EQ(d.Start(Request(9, 75, model->vocab_size()))->Wait().usage.rejects, 0);
  d.RestartPrefill();
  auto sink = d.Start(r);
  EXPECT_EQ(sink->Wait().usage.rejects, 0);
  EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), truth);
  d.ExpectNothingLeaks();
}

// F14: a peer with other weights or another layout is refused at hello, both values printed.
class FaultsAcrossHubs : public Faults {};
TEST_P(FaultsAcrossHubs, F14OtherWeightsAreRefusedAtHello) {
  const auto& [dir, connector] = GetParam();
  auto model = LoadModel(dir);
  const std::string long_dir = "long/" + dir.substr(dir.find('/') + 1);
  auto other = LoadModel(long_dir);
  DeploymentOptions options;
  options.connector = connector;
  Deployment mine(model, options), theirs(other, options);
  GenerateRequest r = Request(1, 75, std::min(model->vocab_size(), other->vocab_size()));
  r.prefill_endpoint = theirs.prefill().EndpointOf(connector);
  auto sink = mine.Start(r);
  const auto& result = sink->Wait();
  ASSERT_FALSE(result.handoffs.empty());
  EXPECT_THAT(result.handoffs[0].reason, AnyOf("model_mismatch", "layout_mismatch"));
  const Outcome truth = Undisturbed(model, r);
  EXPECT_EQ((Outcome{sink->tokens(), sink->logits_hash()}), truth);
}

const auto kGoldens =
    ::testing::Values("short/llama", "short/granitemoehybrid", "short/bamba", "short/jamba");
const auto kModels = ::testing::Values(
    "short/llama", "short/granitemoehybrid", "short/bamba", "short/jamba", "demo");
std::vector<std::string> Strings(const std::vector<const char*>& names) {
  return {names.begin(), names.end()};
}
std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  const std::string dir = std::get<0>(info.param);
  return dir.substr(dir.find('/') + 1) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Models,
                         Faults,
                         ::testing::Combine(kModels, ::testing::ValuesIn(Strings(Connectors()))),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Models,
                         FaultsAcrossHubs,
                         ::testing::Combine(kGoldens, ::testing::ValuesIn(Strings(ConnectorsAcrossHubs()))),
                         NameOf);

}  // namespace
}  // namespace baton::testing
