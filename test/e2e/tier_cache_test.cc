// What comes back from a tier is what was computed: the same logits cold, from a checkpoint in
// memory, from the host tier, after preemption, and over a hand-off in either direction, at prompt
// lengths around the grid. Each run shows that it really went that way.
#include <filesystem>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/test_types.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::GenerateRequest;
using engine::GenerateResult;

GenerateRequest Request(std::vector<TokenId> prompt, int64_t max_tokens = 12) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.8;
  r.sampling.seed = 3;
  return r;
}

struct Served {
  Answer answer;
  GenerateResult result;
};

Served Serve(Deployment& d, GenerateRequest r) {
  auto sink = d.Start(std::move(r));
  Served s;
  s.result = sink->Wait();
  EXPECT_EQ(s.result.usage.rejects, 0);
  s.answer = AnswerOf(*sink);
  return s;
}

// Checkpoints leave memory; the tiers keep them.
void LeaveMemory(engine::Worker& w) {
  w.engine().tiers().Flush();
  w.engine().RunOnEngineThread([](engine::Core& core) { core.DropCheckpoints(); });
}

int64_t Depth(size_t prompt) { return HandoffBoundary(static_cast<int64_t>(prompt)); }

class TierCache : public ::testing::TestWithParam<std::string> {
 protected:
  static DeploymentOptions WithTiers(const std::string& connector = "") {
    DeploymentOptions options;
    options.connector = connector;
    const auto tiers = [](engine::WorkerOptions* o) { o->host_cache_bytes = uint64_t{64} << 20; };
    options.tweak_decode = tiers;
    options.tweak_prefill = tiers;
    return options;
  }
  std::shared_ptr<const model::Model> model_ = LoadModel(GetParam());
};

TEST_P(TierCache, DeviceAndHostHitsAroundTheGridAreColdBits) {
  Deployment d(model_, WithTiers());
  const engine::EngineStats& stats = d.decode().engine().stats();
  for (const size_t n : {31u, 32u, 33u, 34u, 63u, 64u, 65u, 66u, 200u}) {
    SCOPED_TRACE(n);
    const GenerateRequest r = Request(RandomPrompt(n, n, model_->vocab_size()));
    const Answer cold = ColdAnswer(model_, r);
    EXPECT_EQ(Serve(d, r).answer, cold);
    const Served device = Serve(d, r);  // a repeated identical prompt
    EXPECT_EQ(device.answer, cold);
    EXPECT_EQ(device.result.usage.cached_tokens, Depth(n));
    LeaveMemory(d.decode());
    const uint64_t restores = stats.restores.load();
    const Served host = Serve(d, r);
    EXPECT_EQ(host.answer, cold);
    EXPECT_EQ(stats.restores.load(), restores + 1);
    EXPECT_EQ(host.result.usage.cached_tokens, Depth(n));
    EXPECT_LE(host.result.usage.local_prefill_tokens, 16);
    ASSERT_EQ(host.result.handoffs.size(), 1u);
    EXPECT_EQ(host.result.handoffs[0].connector, "host");
    EXPECT_EQ(host.result.handoffs[0].boundary, Depth(n));
    EXPECT_GT(host.result.handoffs[0].state_bytes + host.result.handoffs[0].kv_bytes, 0);
  }
  EXPECT_EQ(stats.restore_rejects.load(), 0u);
  d.ExpectNothingLeaks();
}

TEST_P(TierCache, ASecondTurnResumesFromTheHost) {
  Deployment d(model_, WithTiers());
  const GenerateRequest first = Request(RandomPrompt(1, 90, model_->vocab_size()), 40);
  const Served one = Serve(d, first);
  GenerateRequest second = first;
  second.prompt.insert(second.prompt.end(), one.answer.tokens.begin(), one.answer.tokens.end());
  const auto more = RandomPrompt(2, 50, model_->vocab_size());
  second.prompt.insert(second.prompt.end(), more.begin(), more.end());
  const Answer cold = ColdAnswer(model_, second);
  LeaveMemory(d.decode());
  const Served two = Serve(d, second);
  EXPECT_EQ(two.answer, cold);
  EXPECT_GE(two.result.usage.cached_tokens, 112);  // 90 + 40, the last token not absorbed, floored
  EXPECT_EQ(d.decode().engine().stats().restores.load(), 1u);
  d.ExpectNothingLeaks();
}

TEST_P(TierCache, ATenantNeverFindsAnothersBundle) {
  Deployment d(model_, WithTiers());
  GenerateRequest r = Request(RandomPrompt(5, 70, model_->vocab_size()));
  r.cache_salt = "a";
  const Answer a = Serve(d, r).answer;
  LeaveMemory(d.decode());
  r.cache_salt = "b";
  const Served b = Serve(d, r);
  EXPECT_EQ(b.answer, a);
  EXPECT_EQ(b.result.usage.cached_tokens, 0);
  EXPECT_EQ(d.decode().engine().stats().restores.load(), 0u);
  d.ExpectNothingLeaks();
}

// A directory of its own that goes with the test.
struct Directory {
  Directory() { std::filesystem::create_directories(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  const std::string path =
      (std::filesystem::temp_directory_path() / ("baton-tier-" + RandomBytes<NodeId>().Hex()))
          .string();
};

TEST_P(TierCache, DiskHitsAlsoAfterARestartAreColdBits) {
  const Directory directory;
  const auto with_disk = [&](uint64_t host_bytes) {
    DeploymentOptions options;
    options.tweak_decode = [&directory, host_bytes](engine::WorkerOptions* o) {
      o->host_cache_bytes = host_bytes;
      o->disk.emplace();
      o->disk->directory = directory.path;
      o->disk_cache_bytes = uint64_t{256} << 20;
    };
    return options;
  };
  const auto expect_from = [&](const char* tier, const Served& served, size_t n) {
    EXPECT_EQ(served.result.usage.cached_tokens, Depth(n));
    ASSERT_EQ(served.result.handoffs.size(), 1u);
    EXPECT_EQ(served.result.handoffs[0].connector, tier);
    EXPECT_TRUE(served.result.handoffs[0].verified);
  };
  std::vector<GenerateRequest> requests;
  std::vector<Answer> cold;
  for (const size_t n : {31u, 32u, 33u, 34u, 300u}) {
    requests.push_back(Request(RandomPrompt(n, n, model_->vocab_size())));
    cold.push_back(ColdAnswer(model_, requests.back()));
  }
  {
    Deployment d(model_, with_disk(0));
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Serve(d, requests[i]).answer, cold[i]);
    LeaveMemory(d.decode());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Served served = Serve(d, requests[i]);
      EXPECT_EQ(served.answer, cold[i]);
      expect_from("disk", served, requests[i].prompt.size());
    }
    EXPECT_EQ(d.decode().engine().stats().restores.load(), requests.size());
    d.ExpectNothingLeaks();
  }
  Deployment d(model_, with_disk(uint64_t{64} << 20));
  for (const char* tier : {"disk", "host"}) {  // what came up once is nearer the next time
    for (size_t i = 0; i < requests.size(); ++i) {
      const Served served = Serve(d, requests[i]);
      EXPECT_EQ(served.answer, cold[i]);
      expect_from(tier, served, requests[i].prompt.size());
    }
    LeaveMemory(d.decode());
  }
  EXPECT_EQ(d.decode().engine().stats().restore_rejects.load(), 0u);
  d.ExpectNothingLeaks();
}

// Fewer bits at rest are close, said to be lossy, and not used by a worker that promises the same.
TEST_P(TierCache, FewerBitsAtRestAreNeverMixedWithTheSame) {
  if (!model_->layout().has_state()) GTEST_SKIP() << "no state to shrink";
  const Directory directory;
  const auto with = [&](RestEncoding encoding) {
    DeploymentOptions options;
    options.tweak_decode = [&directory, encoding](engine::WorkerOptions* o) {
      o->disk.emplace();
      o->disk->directory = directory.path;
      o->checkpoint_dtype = encoding;
    };
    return options;
  };
  const GenerateRequest r = Request(RandomPrompt(4, 200, model_->vocab_size()));
  {
    Deployment d(model_, with(RestEncoding::kInt8));
    Serve(d, r);
    LeaveMemory(d.decode());
    const Served back = Serve(d, r);
    EXPECT_EQ(back.result.usage.cached_tokens, Depth(200));
    EXPECT_EQ(d.decode().engine().stats().restores.load(), 1u);
    EXPECT_GT(d.decode().engine().tiers().tier(0).Stats().encoding_error_max, 0);
    d.ExpectNothingLeaks();
  }
  Deployment d(model_, with(RestEncoding::kSame));
  const Served fresh = Serve(d, r);
  EXPECT_EQ(fresh.answer, ColdAnswer(model_, r));
  EXPECT_EQ(fresh.result.usage.cached_tokens, 0);
  EXPECT_EQ(d.decode().engine().stats().restores.load(), 0u);
  d.ExpectNothingLeaks();
}

// A second process on the directory is told so; nothing is served wrong meanwhile.
TEST_P(TierCache, TheDirectoryBelongsToOneWorker) {
  const Directory directory;
  DeploymentOptions options;
  options.tweak_decode = [&](engine::WorkerOptions* o) {
    o->disk.emplace();
    o->disk->directory = directory.path;
  };
  Deployment d(model_, options);
  engine::WorkerOptions second;
  options.tweak_decode(&second);
  second.memory.slots = 4;
  second.memory.blocks = 16;
  const auto refused = engine::Worker::Create(model_.get(), std::move(second));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr(directory.path));
}

// Hand-off and hit in either direction: prefill restores for its peer; decode restores what it had.
TEST_P(TierCache, HandOffsAndTiersTogether) {
  for (const std::string connector : {"inproc", "shm", "tcp"}) {
    SCOPED_TRACE(connector);
    Deployment d(model_, WithTiers(connector));
    const GenerateRequest r = Request(RandomPrompt(8, 133, model_->vocab_size()));
    const Answer cold = ColdAnswer(model_, r);
    EXPECT_EQ(Serve(d, r).answer, cold);
    EXPECT_EQ(d.decode().handoff_stats().verified.load(), 1u);
    // Decode has lost everything, prefill its memory: the bundle comes up there and over.
    LeaveMemory(d.prefill());
    LeaveMemory(d.decode());
    // Decode's own tier is as deep: no hand-off at all.
    EXPECT_EQ(Serve(d, r).answer, cold);
    EXPECT_EQ(d.decode().handoff_stats().verified.load(), 1u);
    EXPECT_EQ(d.decode().engine().stats().restores.load(), 1u);
    // Another request with more behind the same prompt: decode restores and offers what it has,
    // prefill takes it (or its own) and computes the rest.
    LeaveMemory(d.decode());
    GenerateRequest longer = r;
    const auto more = RandomPrompt(9, 60, model_->vocab_size());
    longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
    const Answer cold_longer = ColdAnswer(model_, longer);
    const Served over = Serve(d, longer);
    EXPECT_EQ(over.answer, cold_longer);
    EXPECT_EQ(d.decode().handoff_stats().verified.load(), 2u);
    EXPECT_EQ(d.decode().engine().stats().restores.load(), 2u);
    EXPECT_GE(over.result.usage.cached_tokens, 128);
    EXPECT_EQ(d.prefill().engine().stats().recomputed_tokens.load(), 0u);
    // And prefill alone, from its tier, for a decode worker without any.
    LeaveMemory(d.prefill());
    LeaveMemory(d.decode());
    for (const TierEntry& e : d.decode().engine().tiers().tier(0).Entries())
      d.decode().engine().tiers().tier_for_testing(0).Remove(e.identity);
    const uint64_t before = d.prefill().engine().stats().restores.load();
    EXPECT_EQ(Serve(d, longer).answer, cold_longer);
    EXPECT_EQ(d.prefill().engine().stats().restores.load(), before + 1);
    EXPECT_EQ(d.decode().handoff_stats().verified.load(), 3u);
    d.ExpectNothingLeaks();
  }
}

// All of it at once, with KV blocks for less than half of the sequences.
TEST_P(TierCache, PreemptedRestoredAndEvictedTogether) {
  DeploymentOptions options = WithTiers();
  options.slots = 9;
  const std::vector<KvGroup>& groups = model_->layout().groups();
  const bool has_kv = !groups.empty(), windowed = has_kv && groups[0].window > 0;
  // A window's blocks do not grow with the history: fewer, and short steps, make them scarce.
  options.blocks = windowed ? 8 : 26;
  if (windowed) options.engine.token_budget = 32;
  Deployment d(model_, options);
  std::vector<GenerateRequest> requests;
  std::vector<Answer> cold;
  for (size_t i = 0; i < 5; ++i) {
    requests.push_back(Request(RandomPrompt(40 + i, 60 + 17 * i, model_->vocab_size()), 150));
    cold.push_back(ColdAnswer(model_, requests.back()));
  }
  const engine::EngineStats& stats = d.decode().engine().stats();
  // One bundle is found again in memory, and is at rest before memory gets short: what comes first
  // finds it there. Whether more are found is up to the threads.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Serve(d, requests[0]).answer, cold[0]);
  EXPECT_GT(stats.prefix_hits.load(), 0u);
  LeaveMemory(d.decode());
  for (int round = 0; round < 2; ++round) {
    const auto sinks = d.StartTogether(requests);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->Wait().usage.rejects, 0);
      EXPECT_EQ(AnswerOf(*sinks[i]), cold[i]) << i;
    }
    LeaveMemory(d.decode());
  }
  // Without KV nothing grows while a sequence runs, so nobody has to give way.
  EXPECT_EQ(stats.preemptions.load() > 0, has_kv);
  // Those of a window may all give way before their first token, with nothing to park yet.
  if (!windowed) {
    EXPECT_EQ(stats.resumed.load() > 0, has_kv);
  }
  EXPECT_GT(stats.restores.load(), 0u);
  EXPECT_EQ(stats.restore_rejects.load() + stats.park_rejects.load(), 0u);
  d.ExpectNothingLeaks();
}

INSTANTIATE_TEST_SUITE_P(Models,
                         TierCache,
                         ::testing::ValuesIn(EveryType({"short/qwen3_5@bf16"})),
                         [](const auto& info) {
                           return model::TestName(info.param.substr(info.param.find('/') + 1));
                         });

}  // namespace
}  // namespace baton::testing
