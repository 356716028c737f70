// One bundle over several connectors: the same bytes whichever carries what, and every way in which
// one of them can die, come late, repeat itself or be somebody else's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"
#include "handoff/checks_for_testing.h"
#include "handoff/testing/handoff_fixture.h"
#include "handoff/transfer_plan.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const char* const kSchemes[] = {"inproc", "shm", "tcp"};

// Writers that fall silent when the test says so.
class Straggler final : public WritersLeft {
 public:
  bool Quiet() override { return quiet; }
  std::atomic<bool> quiet{false};
};

class MixedTest : public HandoffFixture {
 protected:
  MixedTest() : HandoffFixture("tcp") {
    more_schemes_ = {"shm", "inproc"};
    for (const char* scheme : kSchemes) {
      auto hostile = std::make_unique<HostileConnector>(connectors_.Take(scheme));
      hostile_[scheme] = hostile.get();
      connectors_.Add(std::move(hostile));
    }
  }

  PullRequest MixedRequest(const std::string& kv, const std::string& state) {
    PullRequest request = NewRequest(tokens_);
    request.endpoint = "kv=" + EndpointOf(kv) + ",state=" + EndpointOf(state);
    return request;
  }
  // Of a result, whose units need not be the request's.
  PullRequest Units(PullRequest request, const PullResult& result) const {
    request.blocks = result.blocks;
    request.slot = result.slot;
    return request;
  }
  void ExpectTruth(const PullRequest& request, const PullResult& result) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    const PullRequest units = Units(request, result);
    EXPECT_TRUE(receiver_->BytesOf(units) == ReferenceBundle(*receiver_, tokens_));
    for (const UnitState state : receiver_->StatesOf(units)) EXPECT_EQ(state, UnitState::kVerified);
  }
  void Release(const PullRequest& request, const PullResult& result) {
    receiver_->FreeUnits(Units(request, result));
  }
  ConnectorCounters::Counts CountsOf(const std::string& name) const {
    const auto all = stats_.connectors.Snapshot();
    const auto it = all.find(name);
    return it == all.end() ? ConnectorCounters::Counts() : it->second;
  }

  // The first half of its share lands, then the connector is gone. Not quiet: it keeps the
  // destinations and may write there later.
  Attack Die(bool quiet, std::shared_ptr<Straggler> writers = nullptr) {
    Attack attack;
    attack.name = "die";
    attack.pull = [this, quiet, writers](const PullCall& call) {
      PullCall half = call;
      half.extents = call.extents.first(call.extents.size() / 2);
      PullOutcome outcome = half.extents.empty() ? PullOutcome() : half.Honest();
      outcome.landed.resize(call.extents.size(), 0);
      outcome.status = Reject(Reason::kPeerUnavailable, "the wire was cut");
      outcome.quiet = quiet;
      outcome.writers_left = writers;
      // A quiet one has broken no promise about what it had finished.
      for (size_t i = quiet ? half.extents.size() : 0; i < call.extents.size(); ++i)
        late_.push_back(call.extents[i].destination);
      return outcome;
    };
    return attack;
  }
  void WriteLate() {
    for (const MutableByteSpan bytes : late_)
      std::fill(bytes.begin(), bytes.end(), std::byte{0x5a});
    late_.clear();
  }

  const std::vector<TokenId> tokens_ = SomeTokens(64, 42);
  std::map<std::string, HostileConnector*> hostile_;
  std::vector<MutableByteSpan> late_;
};

TEST_F(MixedTest, EveryPairOfConnectorsLandsTheSameBytes) {
  Serve();
  for (const bool early : {false, true}) {
    provider_->early_batches = early ? 2 : 0;
    for (const std::string kv : kSchemes) {
      for (const std::string state : kSchemes) {
        const auto kv_before = CountsOf(kv).bytes, state_before = CountsOf(state).bytes;
        const PullRequest request = MixedRequest(kv, state);
        const PullResult result = Pull(request);
        ExpectTruth(request, result);
        EXPECT_EQ(result.blocks, request.blocks);
        Release(request, result);
        if (kv == state) continue;
        EXPECT_EQ(CountsOf(kv).bytes - kv_before, layout_.KvPayloadBytes(tokens_.size()));
        EXPECT_EQ(CountsOf(state).bytes - state_before, layout_.state_payload_bytes());
        EXPECT_EQ(result.report.connector, std::min(kv, state) + "+" + std::max(kv, state));
      }
    }
  }
  EXPECT_EQ(server_stats_.links_joined, 2u * 6 * 2);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, TheShareOfADeadConnectorMovesToFreshMemory) {
  Serve();
  for (const std::string dead : {"shm", "tcp"}) {
    const std::string alive = dead == "shm" ? "tcp" : "shm";
    for (const bool dead_has_kv : {true, false}) {
      const auto before = CountsOf(dead);
      // A link that is joined and one for the conversation: arm both of tcp's.
      hostile_[dead]->Arm(Die(true), 2);
      const PullRequest request =
          dead_has_kv ? MixedRequest(dead, alive) : MixedRequest(alive, dead);
      const PullResult result = Pull(request);
      hostile_[dead]->Disarm();
      ExpectTruth(request, result);
      EXPECT_EQ(CountsOf(dead).failovers - before.failovers, 1u);
      EXPECT_GT(CountsOf(dead).shares_moved, before.shares_moved);
      if (dead_has_kv) {
        EXPECT_NE(result.blocks, request.blocks);
        EXPECT_EQ(result.slot, request.slot);
      } else {
        EXPECT_EQ(result.blocks, request.blocks);
        EXPECT_NE(result.slot, request.slot);
      }
      EXPECT_EQ(receiver_->UnitsQuarantined(), 0u);
      WriteLate();  // into memory that is free: nobody is told, nobody is hurt
      ExpectTruth(request, result);
      Release(request, result);
    }
  }
  ExpectNothingLeaked();
}

TEST_F(MixedTest, WhatADeadConnectorMayStillWriteToIsQuarantinedUntilItIsQuiet) {
  Serve();
  auto writers = std::make_shared<Straggler>();
  provider_->early_batches = 2;  // what it brought before it died is suspect too
  hostile_["shm"]->Arm(Die(false, writers), 2);
  const PullRequest request = MixedRequest("shm", "tcp");
  const PullResult result = Pull(request);
  ExpectTruth(request, result);
  const uint64_t quarantined = receiver_->UnitsQuarantined();
  EXPECT_GT(quarantined, 0u);
  EXPECT_EQ(stats_.quarantined_units, quarantined);
  EXPECT_EQ(client_->quarantine().ranges().size(), quarantined);
  EXPECT_EQ(client_->quarantine().ranges()[0].connector, "shm");
  WriteLate();
  ExpectTruth(request, result);
  Release(request, result);
  EXPECT_EQ(client_->quarantine().Sweep(), 0u);
  EXPECT_EQ(receiver_->UnitsInUse(), quarantined);
  writers->quiet = true;
  EXPECT_EQ(client_->quarantine().Sweep(), quarantined);
  EXPECT_EQ(client_->quarantine().bytes(), 0u);
  ExpectNothingLeaked();
}

// The check that a moved share gets fresh memory can fail: without it the late write is in the
// bundle.
TEST_F(MixedTest, LateWriteTwin) {
  client_options_.checks = ChecksForTesting::Also(Checks(), Check::kFreshMemory);
  Serve();
  hostile_["shm"]->Arm(Die(false), 2);
  const PullRequest request = MixedRequest("shm", "tcp");
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  WriteLate();
  EXPECT_TRUE(receiver_->BytesOf(Units(request, result)) != ReferenceBundle(*receiver_, tokens_));
  Release(request, result);
  ExpectNothingLeaked();
}

// A job that is preempted takes back what it has offered. That is no reason to
// lose the links that have joined: what it offers later travels as planned, and
// nothing counts as a dead connector.
TEST_F(MixedTest, AWithdrawalKeepsTheLinksThatHaveJoined) {
  for (const std::string kv : kSchemes) {
    for (const std::string state : kSchemes) {
      if (kv == state) continue;
      std::atomic<int> released{0};
      const uint64_t early_before = stats_.early_blocks;
      provider_->early_batches = 2;
      provider_->between = [&](size_t batch, FakeBundle*, BlockStream* stream) {
        // Once its blocks have landed, the links have joined.
        while (stats_.early_blocks == early_before) std::this_thread::sleep_for(milliseconds(1));
        if (batch == 0) stream->Withdraw([&] { ++released; });
        while (released == 0) std::this_thread::sleep_for(milliseconds(1));
      };
      Serve();
      const auto kv_before = CountsOf(kv), state_before = CountsOf(state);
      const PullRequest request = MixedRequest(kv, state);
      const PullResult result = Pull(request);
      ExpectTruth(request, result);
      EXPECT_EQ(released, 1);
      EXPECT_EQ(result.blocks, request.blocks);
      EXPECT_EQ(CountsOf(kv).failovers, kv_before.failovers) << kv << " " << state;
      EXPECT_EQ(CountsOf(state).failovers, state_before.failovers) << kv << " " << state;
      EXPECT_EQ(CountsOf(state).bytes - state_before.bytes, layout_.state_payload_bytes());
      Release(request, result);
      ExpectNothingLeaked();
    }
  }
}

TEST_F(MixedTest, AConnectorThatCannotBeJoinedIsReplacedFromTheStart) {
  Serve();
  PullRequest request = NewRequest(tokens_);
  request.endpoint = "state=" + EndpointOf("tcp") + ",kv=shm:@baton-nobody-listens-here";
  const PullResult result = Pull(request);
  ExpectTruth(request, result);
  EXPECT_EQ(CountsOf("shm").failovers, 1u);
  EXPECT_EQ(result.report.connector, "tcp");
  Release(request, result);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, WhenEveryOtherLinkDiesTheConversationsOwnCarriesAll) {
  Serve();
  Attack die = Die(true);
  // inproc converses; shm and inproc's second link carry, and both die.
  int deaths = 0;
  const auto inner = die.pull;
  die.pull = [&deaths, inner](const PullCall& call) {
    return ++deaths <= 2 ? inner(call) : call.Honest();
  };
  hostile_["inproc"]->Arm(die, 2);
  hostile_["shm"]->Arm(die, 1);
  const PullRequest request = MixedRequest("inproc", "shm");
  const PullResult result = Pull(request);
  ExpectTruth(request, result);
  EXPECT_EQ(deaths, 3);
  Release(request, result);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, WhenAllDieTheHandOffFailsAndNothingLeaks) {
  Serve();
  for (auto& [name, hostile] : hostile_) hostile->Arm(Die(true), 8);
  const PullRequest request = MixedRequest("shm", "tcp");
  const Status status = Pull(request).status;
  EXPECT_EQ(ReasonOf(status), Reason::kPeerUnavailable) << status;
  ExpectAllFree(request);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, WithoutFreshMemoryTheHandOffFailsAndNothingLeaks) {
  Serve();
  std::vector<PullRequest> hogs;
  hostile_["shm"]->Arm(Die(true));
  const PullRequest request = MixedRequest("tcp", "shm");
  while (receiver_->pools().slots->Stats().free > 0) hogs.push_back(NewRequest(SomeTokens(16, 1)));
  const Status status = Pull(request).status;
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
  ExpectAllFree(request);
  for (const PullRequest& hog : hogs) receiver_->FreeUnits(hog);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, F19ReorderedAndRepeatedDeliveryIsHarmless) {
  Serve();
  Attack attack;
  attack.pull = [](const PullCall& call) {
    // Everything once in reverse order, then once more in order.
    std::vector<ReadExtent> reversed(call.extents.rbegin(), call.extents.rend());
    PullCall backwards = call;
    backwards.extents = reversed;
    PullOutcome first = backwards.Honest();
    if (!first.status.ok()) return first;
    return call.Honest();
  };
  hostile_["shm"]->Arm(attack, 2);
  hostile_["tcp"]->Arm(attack, 2);
  const PullRequest request = MixedRequest("shm", "tcp");
  const PullResult result = Pull(request);
  ExpectTruth(request, result);
  Release(request, result);
  ExpectNothingLeaked();
}

// A lie is refused, never replaced: only what is gone is.
TEST_F(MixedTest, ALyingConnectorIsLoudAndNotFailedOver) {
  Serve();
  hostile_["shm"]->Arm(FlipBytes(BlockPartKey(0, 1), 3, 1, 1), 2);
  const PullRequest request = MixedRequest("shm", "tcp");
  const Status status = Pull(request).status;
  EXPECT_EQ(ReasonOf(status), Reason::kBlockDigestMismatch) << status;
  EXPECT_EQ(CountsOf("shm").failovers, 0u);
  ExpectAllFree(request);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, F21EndpointsOfTwoIncarnationsAreRefused) {
  Serve();
  const std::string old_shm = EndpointOf("shm");
  const std::unique_ptr<FakeNode> first_node = std::move(source_);
  const std::unique_ptr<FakeProvider> first_provider = std::move(provider_);
  const std::unique_ptr<HandoffServer> first = std::move(server_);
  RestartSource();
  Serve();
  PullRequest request = NewRequest(tokens_);
  request.endpoint = "state=" + EndpointOf("tcp") + ",kv=" + old_shm;
  const Status status = Pull(request).status;
  EXPECT_EQ(ReasonOf(status), Reason::kEpochMismatch) << status;
  ExpectAllFree(request);
  first->Stop();
  ExpectNothingLeaked();
}

TEST_F(MixedTest, F22CancelAtEveryStage) {
  Serve();
  for (const bool early : {false, true}) {
    for (const char* where : {"shm before", "shm after", "tcp before", "tcp after", "computing"}) {
      provider_->early_batches = early ? 3 : 0;
      const std::string at = where;
      const auto cancel = [this] { cancel_.request_stop(); };
      const bool before = at.ends_with("before");
      if (at == "computing")
        provider_->before = [&](const Ask&, const CancelToken& token) {
          cancel();
          while (!token.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
          return Reject(Reason::kCancelled, "cancelled");
        };
      else
        hostile_[at.substr(0, 3)]->Arm(before ? BeforePull(cancel) : AfterPull(cancel), 2);
      const PullRequest request = MixedRequest("shm", "tcp");
      const Status status = Pull(request).status;
      EXPECT_EQ(ReasonOf(status), Reason::kCancelled) << where << ": " << status;
      ExpectAllFree(request);
      ExpectNothingLeaked();
      for (auto& [name, hostile] : hostile_) hostile->Disarm();
      provider_->before = nullptr;
      cancel_ = CancelSource();
    }
  }
}

TEST_F(MixedTest, NobodyJoinsAHandOffWithoutItsKey) {
  server_options_.hello_timeout = milliseconds(50);
  Serve();
  const Instant soon = clock_.Now() + seconds(10);
  for (const bool zero : {false, true}) {
    auto link = Greet();
    JoinKey key = RandomBytes<JoinKey>();
    if (zero) key = {};
    ASSERT_TRUE(link->Send(EncodeJoin(key), soon).ok());
    auto answer = link->Receive(soon);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(ReasonOf(DecodeError(*answer)), zero ? Reason::kMalformed : Reason::kLeaseExpired);
  }
  ExpectNothingLeaked();
}

TEST_F(MixedTest, AtTheQuarantineCapHandOffsAreRefusedUntilSomeIsQuiet) {
  client_options_.quarantine_bytes_max = 1;
  Serve();
  auto writers = std::make_shared<Straggler>();
  hostile_["shm"]->Arm(Die(false, writers), 2);
  const PullRequest request = MixedRequest("shm", "tcp");
  const PullResult result = Pull(request);
  ExpectTruth(request, result);
  Release(request, result);
  const int asked = provider_->asked;
  const PullRequest refused = MixedRequest("shm", "tcp");
  const Status status = Pull(refused).status;
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
  EXPECT_EQ(provider_->asked, asked);  // it was not even begun
  ExpectAllFree(refused);
  writers->quiet = true;
  const PullRequest again = MixedRequest("shm", "tcp");
  const PullResult good = Pull(again);
  ExpectTruth(again, good);
  Release(again, good);
  ExpectNothingLeaked();
}

TEST_F(MixedTest, PlansThatMakeNoSenseAreRefusedByName) {
  Serve();
  for (const char* plan :
       {"kv=", "kv=a:b", "kv=a:b,kv=a:b", "kv=a:b,state", "kv=a:b,wheels=c:d", "state=a:b,kv="}) {
    EXPECT_FALSE(ParseTransferPlan(plan).ok()) << plan;
    PullRequest request = NewRequest(tokens_);
    request.endpoint = plan;
    EXPECT_EQ(Pull(request).status.code(), absl::StatusCode::kInvalidArgument) << plan;
    ExpectAllFree(request);
  }
  EXPECT_FALSE(ParseTransferPlan("kv=shm:@x,state=shm:@x")->mixed());
  EXPECT_EQ(ParseTransferPlan("state=tcp:h:1,kv=shm:@x")->control, "tcp:h:1");
  EXPECT_EQ(ParseTransferPlan("tcp:h:1")->control, "tcp:h:1");
  ExpectNothingLeaked();
}

}  // namespace
}  // namespace baton
