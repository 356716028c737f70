// Hand-offs whose blocks travel while later tokens compute, and over several connectors, between
// real workers around the hash model: the same tokens as in one process, whatever is disturbed.
#include "base/rng.h"
#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"
#include "gtest/gtest.h"
#include "support/deployment.h"
#include "support/fake_model.h"

namespace baton::testing {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;

GenerateRequest Request(uint64_t seed, size_t n) {
  GenerateRequest r;
  r.prompt = RandomPrompt(seed, n, 97);
  r.sampling.max_tokens = 12;
  r.sampling.temperature = 0.8;
  r.sampling.seed = seed;
  return r;
}

class OverlapTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<TokenId> Expected(GenerateRequest r) {
    DeploymentOptions options;
    options.engine.prefix_caching = false;
    Deployment d(model_, options);
    auto sink = d.Start(std::move(r));
    EXPECT_EQ(sink->Wait().reason, FinishReason::kLength);
    return sink->tokens();
  }
  // The decode worker's connectors, each wrapped to lie on demand.
  void Wrap(DeploymentOptions* options) {
    options->tweak_decode = [this](engine::WorkerOptions* o) {
      o->connectors = std::make_unique<ConnectorSet>(ConnectorSet::Standard(&clock_, o->hub));
      for (const char* name : {"shm", "tcp"}) {
        auto hostile = std::make_unique<HostileConnector>(o->connectors->Take(name));
        hostile_[name] = hostile.get();
        o->connectors->Add(std::move(hostile));
      }
    };
  }
  const std::shared_ptr<const model::Model> model_ = std::make_shared<FakeModel>();
  MonotonicClock clock_;
  std::map<std::string, HostileConnector*> hostile_;
};

TEST_P(OverlapTest, BlocksOfALongPromptComeWhileItIsComputed) {
  for (const bool early : {true, false}) {
    DeploymentOptions options;
    options.connector = GetParam();
    options.tweak_prefill = [early](engine::WorkerOptions* o) { o->early_blocks = early; };
    Deployment d(model_, options);
    const auto& blocks = d.decode().handoff_stats().early_blocks;
    // How many come early depends on who is fast: until it is a good many.
    for (uint64_t round = 0; round == 0 || (early && round < 50 && blocks.load() <= 100); ++round) {
      std::vector<std::shared_ptr<Collector>> sinks;
      const auto request = [round](uint64_t i) { return Request(100 * round + i, 700 + 31 * i); };
      for (uint64_t i = 0; i < 6; ++i) sinks.push_back(d.Start(request(i)));
      for (uint64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(sinks[i]->Wait().usage.rejects, 0);
        EXPECT_EQ(sinks[i]->tokens(), Expected(request(i)));
      }
    }
    if (early) {
      EXPECT_GT(blocks.load(), 100u);
    } else {
      EXPECT_EQ(blocks.load(), 0u);
    }
    d.ExpectNothingLeaks();
  }
}

// Jobs that are preempted withdraw what they offered, begin again, and the peers pull again.
TEST_P(OverlapTest, PreemptedPrefillsWithdrawTheirBlocks) {
  DeploymentOptions options;
  options.connector = GetParam();
  options.slots = 32;
  options.blocks = 512;
  options.tweak_prefill = [](engine::WorkerOptions* o) { o->memory.blocks = 24; };
  Deployment d(model_, options);
  // Whether the jobs meet in memory depends on when they come: until some have.
  const engine::EngineStats& stats = d.prefill().engine().stats();
  for (uint64_t round = 0; round < 50 && stats.preemptions.load() == 0; ++round) {
    std::vector<std::shared_ptr<Collector>> sinks;
    const auto request = [round](uint64_t i) { return Request(100 * round + i, 250 + 9 * i); };
    for (uint64_t i = 0; i < 8; ++i) sinks.push_back(d.Start(request(i)));
    for (uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(sinks[i]->Wait().reason, FinishReason::kLength) << sinks[i]->Wait().error;
      EXPECT_EQ(sinks[i]->tokens(), Expected(request(i)));
    }
  }
  EXPECT_GT(stats.preemptions.load(), 0u);
  d.ExpectNothingLeaks();
}

// Takes blocks and does not let them go before it is told to, as a peer that reads slowly.
class SlowReader final : public BlockStream {
 public:
  void Add(StateId, std::vector<EarlyBlock> blocks) override {
    MutexLock lock(&mu_);
    if (over_) return;
    std::move(blocks.begin(), blocks.end(), std::back_inserter(held_));
  }
  void Withdraw(std::function<void()> released) override {
    {
      MutexLock lock(&mu_);
      if (!over_) {
        released_.push_back(std::exchange(released, nullptr));
        return;
      }
    }
    released();
  }
  void LetGo() {
    std::vector<EarlyBlock> held;
    std::vector<std::function<void()>> released;
    {
      MutexLock lock(&mu_);
      over_ = true;
      held.swap(held_);
      released.swap(released_);
    }
    held.clear();
    for (auto& fn : released) fn();
  }

 private:
  Mutex mu_;
  bool over_ = false;
  std::vector<EarlyBlock> held_;
  std::vector<std::function<void()>> released_;
};

// A prefill that gives way gives nothing back before its reader has ended: that is no reason for
// all the others to give way too.
TEST(SlowReaders, OneShortagePreemptsOnePrefill) {
  DeploymentOptions options;
  options.connector = "inproc";
  options.slots = 32;
  options.blocks = 24;
  // A stop at every block: the prefills share each step and grow side by side.
  options.engine.checkpoint_policy.max_new_states = 12;
  options.engine.checkpoint_policy.before_end.clear();
  for (int64_t at = 16; at < 192; at += 16)
    options.engine.checkpoint_policy.before_end.push_back(at);
  Deployment d(std::make_shared<FakeModel>(), options);
  engine::Engine& engine = d.prefill().engine();
  const engine::EngineStats& stats = engine.stats();
  constexpr uint64_t kJobs = 4;
  std::vector<std::shared_ptr<SlowReader>> readers;
  std::atomic<uint64_t> delivered{0}, failed{0};
  // All are queued before the first runs.
  engine.RunOnEngineThread([&](engine::Core& core) {
    const std::thread::id here = std::this_thread::get_id();
    for (uint64_t i = 0; i < kJobs; ++i) {
      auto job = std::make_unique<engine::Sequence>();
      job->owner = OwnerId(1000 + i);
      job->tokens = RandomPrompt(i, 192, 97);
      job->target = 192;
      job->stream = readers.emplace_back(std::make_shared<SlowReader>());
      job->on_blocks_released = [&engine, &core, here] {
        if (std::this_thread::get_id() == here) return core.BlocksReleased();
        engine.RunOnEngineThread([](engine::Core& c) { c.BlocksReleased(); });
      };
      job->deliver = [&](const StatusOr<std::shared_ptr<const Checkpoint>>& bundle, int64_t) {
        failed.fetch_add(!bundle.ok());
        delivered.fetch_add(1);
      };
      core.AddJob(std::move(job), core.BaseOf(""));
    }
  });
  while (stats.preemptions.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Whatever happens meanwhile, e.g. other requests that come, makes nobody else give way.
  for (int turn = 0; turn < 20; ++turn) engine.RunOnEngineThread([](engine::Core&) {});
  EXPECT_EQ(stats.preemptions.load(), 1u);
  for (auto& reader : readers) reader->LetGo();
  while (delivered.load() < kJobs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(failed.load(), 0u);
  d.ExpectNothingLeaks();
}

TEST_P(OverlapTest, CancelledInMidStreamLeaksNothing) {
  DeploymentOptions options;
  options.connector = GetParam();
  Deployment d(model_, options);
  SplitMix64 rng(9);
  for (uint64_t i = 0; i < 40; ++i) {
    std::shared_ptr<engine::Generation> handle;
    auto sink = d.Start(Request(i, 600), &handle);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(8000)));
    handle->Cancel();
    sink->Wait();
  }
  d.ExpectNothingLeaks();
}

// What the first try made the prefill worker compute is no cache hit of the second.
TEST_P(OverlapTest, ARetryDoesNotCountTheFirstTrysWorkAsCached) {
  const std::string connector = GetParam();
  if (connector == "inproc") GTEST_SKIP() << "not wrapped";
  DeploymentOptions options;
  options.connector = connector;
  Wrap(&options);
  Deployment d(model_, options);
  hostile_[connector]->Arm(InjectNaN(StatePartKey(0)));
  auto sink = d.Start(Request(5, 200));
  EXPECT_EQ(sink->Wait().usage.rejects, 1);
  ASSERT_EQ(sink->Wait().handoffs.size(), 2u);
  EXPECT_TRUE(sink->Wait().handoffs[1].verified);
  EXPECT_GT(d.prefill().engine().stats().jobs_from_cache.load(), 0u);  // it was there
  EXPECT_EQ(sink->Wait().usage.cached_tokens, 0);
  EXPECT_EQ(sink->tokens(), Expected(Request(5, 200)));
  // A request of its own does count it.
  d.decode().engine().RunOnEngineThread([](engine::Core& core) { core.DropCheckpoints(); });
  EXPECT_EQ(d.Start(Request(5, 200))->Wait().usage.cached_tokens, 192);
  d.ExpectNothingLeaks();
}

// A hint names an address of the asker's choice: followed to configured peers only.
TEST_P(OverlapTest, AHintToAStrangerIsIgnored) {
  for (const bool configured : {false, true}) {
    DeploymentOptions options;
    options.connector = GetParam();
    options.tweak_prefill = [configured](engine::WorkerOptions* o) {
      o->engine.hint_peers.clear();
      if (configured) o->engine.hint_peers = {"elsewhere:1", "shm:*", "tcp:127.*", "inproc:*"};
    };
    Deployment d(model_, options);
    GenerateRequest r = Request(3, 100);
    auto first = d.Start(r);
    first->Wait();
    const auto said = first->tokens();
    // The next turn: decode holds a checkpoint that prefill does not.
    r.prompt.insert(r.prompt.end(), said.begin(), said.end());
    const auto more = RandomPrompt(8, 100, 97);
    r.prompt.insert(r.prompt.end(), more.begin(), more.end());
    d.prefill().engine().RunOnEngineThread([](engine::Core& core) { core.DropCheckpoints(); });
    const uint64_t computed = d.prefill().engine().stats().computed_rows.load();
    auto second = d.Start(r);
    EXPECT_EQ(second->Wait().usage.rejects, 0);
    EXPECT_EQ(second->tokens(), Expected(r));
    const uint64_t rows = d.prefill().engine().stats().computed_rows.load() - computed;
    EXPECT_EQ(d.prefill().engine().stats().hints_ignored.load(), configured ? 0u : 1u);
    EXPECT_EQ(rows < 150, configured) << rows;
    d.ExpectNothingLeaks();
  }
}

// Memory that a dead connector may still write to comes back when that has fallen silent. A request
// that fits only then waits for it; it is not told that it is too long.
TEST_P(OverlapTest, ARequestWaitsForMemoryInQuarantine) {
  const std::string connector = GetParam();
  if (connector == "inproc") GTEST_SKIP() << "not wrapped";
  struct Writers final : WritersLeft {
    bool Quiet() override { return quiet; }
    std::atomic<bool> quiet{false};
  };
  const auto writers = std::make_shared<Writers>();
  DeploymentOptions options;
  options.connector = connector;
  options.engine.handoff_retries = 0;
  Wrap(&options);
  const auto wrap = options.tweak_decode;
  options.tweak_decode = [&](engine::WorkerOptions* o) {
    wrap(o);
    o->memory.blocks = 14;  // of which the request needs fourteen
  };
  Deployment d(model_, options);
  Attack attack;
  attack.pull = [&](const PullCall& call) {
    PullOutcome outcome;
    outcome.landed.assign(call.extents.size(), 0);
    outcome.status = Reject(Reason::kPeerUnavailable, "cut");
    outcome.quiet = false;
    outcome.writers_left = writers;
    return outcome;
  };
  hostile_[connector]->Arm(attack);
  auto sink = d.Start(Request(5, 212));
  engine::Engine& engine = d.decode().engine();
  while (d.decode().client().quarantine().bytes() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Several turns of the engine in which it finds no room.
  for (int turn = 0; turn < 20; ++turn) {
    engine.RunOnEngineThread([](engine::Core&) {});
    EXPECT_FALSE(sink->finished());
  }
  writers->quiet = true;
  EXPECT_EQ(sink->Wait().reason, FinishReason::kLength) << sink->Wait().error;
  EXPECT_EQ(sink->tokens(), Expected(Request(5, 212)));
  d.ExpectNothingLeaks();
}

INSTANTIATE_TEST_SUITE_P(Connectors,
                         OverlapTest,
                         ::testing::Values("inproc", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

class MixedPlans : public OverlapTest {};

TEST_F(MixedPlans, GiveTheTokensOfOneProcessAlsoWhenAConnectorDies) {
  DeploymentOptions options;
  options.connector = "tcp";
  options.tweak_prefill = [](engine::WorkerOptions* o) {
    o->listen.push_back("shm:@baton-test-" + RandomBytes<NodeId>().Hex());
  };
  Wrap(&options);
  Deployment d(model_, options);
  const std::string shm = d.prefill().EndpointOf("shm"), tcp = d.prefill().EndpointOf("tcp");
  uint64_t seed = 0;
  for (const std::string& plan : {"kv=" + shm + ",state=" + tcp, "kv=" + tcp + ",state=" + shm}) {
    for (const char* dead : {"", "shm", "tcp"}) {
      GenerateRequest r = Request(++seed, 500);
      r.prefill_endpoint = plan;
      if (*dead != '\0') {
        Attack attack;
        attack.pull = [](const PullCall& call) {
          PullOutcome outcome;
          outcome.landed.assign(call.extents.size(), 0);
          outcome.status = Reject(Reason::kPeerUnavailable, "cut");
          return outcome;
        };
        hostile_[dead]->Arm(attack, 2);
      }
      auto sink = d.Start(r);
      EXPECT_EQ(sink->Wait().usage.rejects, 0) << plan << " " << dead;
      r.prefill_endpoint.clear();
      EXPECT_EQ(sink->tokens(), Expected(r));
      if (*dead != '\0') hostile_[dead]->Disarm();
    }
  }
  const auto counts = d.decode().handoff_stats().connectors.Snapshot();
  EXPECT_EQ(counts.at("shm").failovers, 2u);
  EXPECT_EQ(counts.at("tcp").failovers, 2u);
  EXPECT_GT(counts.at("tcp").shares_moved, 0u);
  d.ExpectNothingLeaks();
}

TEST_F(MixedPlans, APreemptedPrefillIsNoDeadConnector) {
  DeploymentOptions options;
  options.connector = "tcp";
  options.slots = 32;
  options.blocks = 512;
  options.tweak_prefill = [](engine::WorkerOptions* o) {
    o->memory.blocks = 24;
    o->listen.push_back("shm:@baton-test-" + RandomBytes<NodeId>().Hex());
  };
  Deployment d(model_, options);
  const std::string shm = d.prefill().EndpointOf("shm"), tcp = d.prefill().EndpointOf("tcp");
  std::vector<std::shared_ptr<Collector>> sinks;
  for (uint64_t i = 0; i < 8; ++i) {
    GenerateRequest r = Request(i, 250 + 9 * i);
    r.prefill_endpoint = i % 2 == 0 ? "kv=" + shm + ",state=" + tcp : "kv=" + tcp + ",state=" + shm;
    sinks.push_back(d.Start(r));
  }
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sinks[i]->Wait().usage.rejects, 0);
    EXPECT_EQ(sinks[i]->tokens(), Expected(Request(i, 250 + 9 * i)));
  }
  for (const auto& [name, counts] : d.decode().handoff_stats().connectors.Snapshot())
    EXPECT_EQ(counts.failovers, 0u) << name;
  d.ExpectNothingLeaks();
}

}  // namespace
}  // namespace baton::testing
