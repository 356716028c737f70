// Undisturbed hand-offs over every connector, and everything that ends one early without a lie:
// cancels, timeouts, peers that differ, capacity, expired leases.
#include <gtest/gtest.h>

#include <thread>

#include "base/rng.h"
#include "handoff/client.h"
#include "handoff/server.h"
#include "handoff/testing/handoff_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class HandoffTest : public HandoffFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  HandoffTest() : HandoffFixture(GetParam()) {}
};

TEST_P(HandoffTest, LandsTheBundleBitForBit) {
  Serve();
  for (const size_t n : {16, 48, 320}) {
    const auto tokens = SomeTokens(n, n);
    const PullRequest request = NewRequest(tokens);
    const PullResult result = Pull(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(receiver_->BytesOf(request) == ReferenceBundle(*receiver_, tokens));
    for (const UnitState state : receiver_->StatesOf(request))
      EXPECT_EQ(state, UnitState::kVerified);
    const PullReport& r = result.report;
    const Layout& layout = receiver_->layout();
    EXPECT_EQ(r.boundary, n);
    EXPECT_EQ(r.parts, layout.TotalBlocks(n) + layout.StatePartCount());
    EXPECT_EQ(r.kv_bytes, layout.KvPayloadBytes(n));
    EXPECT_EQ(r.state_bytes, layout.state_payload_bytes());
    EXPECT_EQ(r.planned, r.kv_bytes + r.state_bytes);
    EXPECT_EQ(r.posted, r.planned);
    EXPECT_EQ(r.landed, r.planned);
    EXPECT_EQ(r.connector, GetParam());
    EXPECT_EQ(r.source_node, source_->self().node);
    EXPECT_EQ(r.source_epoch, source_->self().epoch);
    EXPECT_EQ(r.seal.identity, receiver_->IdentityOf(tokens));
    EXPECT_EQ(r.seal.state_id, r.state_id);
    receiver_->FreeUnits(request);
  }
  ExpectNothingLeaked();
  EXPECT_EQ(stats_.verified, 3u);
  EXPECT_EQ(server_stats_.released, 3u);
}

TEST_P(HandoffTest, ManyAtOnceDoNotMix) {
  Serve();
  std::vector<std::jthread> threads;
  std::vector<PullRequest> requests;
  std::vector<PullResult> results(4);
  for (int i = 0; i < 4; ++i) requests.push_back(NewRequest(SomeTokens(32 + 16 * i, 100 + i)));
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { results[i] = client_->Pull(requests[i], {}); });
  threads.clear();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(results[i].status.ok()) << results[i].status;
    EXPECT_TRUE(receiver_->BytesOf(requests[i]) ==
                ReferenceBundle(*receiver_, requests[i].ask.tokens));
    receiver_->FreeUnits(requests[i]);
  }
  ExpectNothingLeaked();
}

TEST_P(HandoffTest, ProvidersErrorReachesTheAskerWithItsReason) {
  provider_->before = [](const Ask&, const CancelToken&) {
    return Reject(Reason::kNoCapacity, "no slot free");
  };
  Serve();
  ExpectRejected(Reason::kNoCapacity);
  EXPECT_EQ(server_stats_.refusals[static_cast<size_t>(Reason::kNoCapacity)], 1u);
}

TEST_P(HandoffTest, NobodyListens) {
  Serve();
  server_->Stop();
  ExpectRejected(Reason::kPeerUnavailable);
}

TEST_P(HandoffTest, EndpointsMayBeAskedForWhileTheServerStops) {
  Serve();
  const std::vector<std::string> endpoints = server_->endpoints();
  std::atomic<bool> stopped{false};
  std::jthread asker([&] {
    while (!stopped) EXPECT_EQ(server_->endpoints(), endpoints);
  });
  server_->Stop();
  EXPECT_EQ(server_->endpoints(), endpoints);
  stopped = true;
}

TEST_P(HandoffTest, ServerStopWhileTheProviderComputes) {
  StopDuring([this] { server_->Stop(); });
}

TEST_P(HandoffTest, F22CancelWhileTheProviderComputesReachesTheProvider) {
  StopDuring([this] { cancel_.request_stop(); }, Reason::kCancelled);
}

TEST_P(HandoffTest, F22TimeoutWhileTheProviderComputes) {
  deadline_ = milliseconds(60);
  StopDuring([] {});
}

TEST_P(HandoffTest, F22CancelBeforeConnect) {
  Serve();
  cancel_.request_stop();
  ExpectRejected(Reason::kCancelled);
  EXPECT_EQ(provider_->asked, 0);
}

TEST_P(HandoffTest, F22DeadlineAlreadyPassed) {
  Serve();
  deadline_ = -seconds(1);
  const PullRequest request = NewRequest(SomeTokens(32, 1));
  EXPECT_FALSE(Pull(request).status.ok());
  ExpectAllFree(request);
  ExpectNothingLeaked();
}

TEST_P(HandoffTest, MoreConversationsThanAllowedAreRefused) {
  server_options_.conversations_max = 1;
  std::atomic<bool> go{false};
  provider_->before = [&](const Ask&, const CancelToken&) {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return absl::OkStatus();
  };
  Serve();
  const PullRequest first = NewRequest(SomeTokens(32, 1));
  PullResult result;
  std::jthread pull([&] { result = client_->Pull(first, {}); });
  while (provider_->asked == 0) std::this_thread::sleep_for(milliseconds(1));
  const PullRequest second = NewRequest(SomeTokens(32, 2));
  const Status refused = client_->Pull(second, {}).status;
  EXPECT_FALSE(refused.ok());
  go = true;
  pull.join();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(server_stats_.conversations_refused, 1u);
  receiver_->FreeUnits(first);
  ExpectNothingLeaked();
}

TEST_P(HandoffTest, PeersThatDifferAreRefusedWithBothValues) {
  struct Case {
    Reason reason;
    std::function<void(FakeNodeOptions*)> change;
  };
  LayoutSpec spec;
  spec.parts = {SmallLayout().parts()};
  spec.groups = SmallLayout().groups();
  spec.parts[1].axes = "H,N,P";
  const Layout swapped = *Layout::Build(spec);
  const std::vector<uint8_t> key(32, 7);
  const Digester keyed = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key));
  const Case cases[] = {
      {Reason::kProtocolVersion, [](FakeNodeOptions* o) { o->protocol = 99; }},
      {Reason::kDigestAlgorithm, [&](FakeNodeOptions* o) { o->digester = keyed; }},
      {Reason::kLayoutMismatch, [&](FakeNodeOptions* o) { o->layout = &swapped; }},
      {Reason::kModelMismatch, [](FakeNodeOptions* o) { o->model.bytes[0] ^= 1; }},
  };
  for (const Case& c : cases) {
    SetUpNodes([&](FakeNodeOptions* o) { c.change(o); });
    Serve();
    const PullRequest request = NewRequest(SomeTokens(32, 1));
    const Status status = Pull(request).status;
    EXPECT_EQ(ReasonOf(status), c.reason) << status;
    if (c.reason == Reason::kLayoutMismatch) {
      EXPECT_NE(status.message().find("H,N,P"), absl::string_view::npos) << status;
      EXPECT_NE(status.message().find("H,P,N"), absl::string_view::npos) << status;
    }
    ExpectAllFree(request);
    ExpectNothingLeaked();
    EXPECT_EQ(provider_->asked, 0);
  }
}

TEST_P(HandoffTest, SourceLeaseRunsOutWhenNobodyReleases) {
  server_options_.lease = milliseconds(30);
  Serve();
  // A peer that asks and then neither pulls nor releases.
  auto connector = connectors_.For(endpoint());
  auto link = (*connector)->Connect(endpoint(), clock_.Now() + seconds(10), {});
  ASSERT_TRUE(link.ok()) << link.status();
  const Instant soon = clock_.Now() + seconds(10);
  ASSERT_TRUE((*link)->Send(EncodeHello(HelloOf(receiver_->self())), soon).ok());
  ASSERT_TRUE((*link)->Receive(soon).ok());
  PullRequest request = NewRequest(SomeTokens(32, 1));
  request.ask.deadline_ms = 10000;
  ASSERT_TRUE((*link)->Send(EncodeAsk(request.ask), soon).ok());
  ASSERT_TRUE((*link)->Receive(soon).ok());
  auto end = (*link)->Receive(soon);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ReasonOf(DecodeError(*end)), Reason::kLeaseExpired);
  link->reset();
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
  EXPECT_EQ(server_stats_.leases_expired, 1u);
  EXPECT_EQ(provider_->ended[static_cast<int>(ServeEnd::kLeaseExpired)], 1);
}

TEST_P(HandoffTest, GarbageAfterConnectIsCountedAndClosed) {
  Serve();
  auto connector = connectors_.For(endpoint());
  for (const Frame& frame : {Frame{FrameType::kRelease, {}}, Frame{FrameType::kHello, {1, 2}},
                             Frame{static_cast<FrameType>(999), std::vector<uint8_t>(100, 9)}}) {
    auto link = (*connector)->Connect(endpoint(), clock_.Now() + seconds(10), {});
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE((*link)->Send(frame, clock_.Now() + seconds(10)).ok());
    auto answer = (*link)->Receive(clock_.Now() + seconds(10));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->type, FrameType::kError);
  }
  EXPECT_EQ(server_stats_.protocol_errors, 3u);
  const PullRequest request = NewRequest(SomeTokens(32, 1));
  EXPECT_TRUE(Pull(request).status.ok());
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(HandoffTest, AskWhoseTokensDoNotHashToItsPrefixIsRefused) {
  Serve();
  auto link = Greet();
  PullRequest request = NewRequest(SomeTokens(32, 1));
  request.ask.tokens[3] ^= 1;
  ASSERT_TRUE(link->Send(EncodeAsk(request.ask), clock_.Now() + seconds(10)).ok());
  auto answer = link->Receive(clock_.Now() + seconds(10));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(ReasonOf(DecodeError(*answer)), Reason::kIdentityMismatch);
  EXPECT_EQ(provider_->asked, 0);
  link.reset();
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(HandoffTest, BadRequestsAreRefusedBeforeConnecting) {
  Serve();
  const auto expect_invalid = [&](const std::function<void(PullRequest*)>& change) {
    PullRequest request = NewRequest(SomeTokens(32, 1));
    change(&request);
    EXPECT_EQ(Pull(request).status.code(), absl::StatusCode::kInvalidArgument);
    ExpectAllFree(request);
  };
  expect_invalid([](PullRequest* r) { r->ask.tokens.pop_back(); });
  expect_invalid([](PullRequest* r) { r->ask.tokens[0] ^= 1; });
  expect_invalid([](PullRequest* r) { r->ask.expected.model.bytes[0] ^= 1; });
  expect_invalid([](PullRequest* r) { r->endpoint = "nonsense"; });
  EXPECT_EQ(provider_->asked, 0);
}

TEST_P(HandoffTest, HintTravels) {
  PrefixHint seen;
  provider_->before = [&](const Ask& ask, const CancelToken&) {
    seen = *ask.hint;
    return absl::OkStatus();
  };
  Serve();
  PullRequest request = NewRequest(SomeTokens(64, 1));
  request.ask.hint = PrefixHint{48, "tcp:127.0.0.1:9"};
  ASSERT_TRUE(Pull(request).status.ok());
  EXPECT_EQ(seen, *request.ask.hint);
  receiver_->FreeUnits(request);
}

INSTANTIATE_TEST_SUITE_P(All, HandoffTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
