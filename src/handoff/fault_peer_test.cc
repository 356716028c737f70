// Faults of the peer, F11 to F30: what is offered is not what was asked, or no honest record at
// all. Conditions in testing/fault_fixture.h.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "handoff/testing/fault_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_P(FaultTest, F11StateTakenKTokensBeforeItsBoundary) {
  for (const size_t k : {size_t{1}, size_t{15}, size_t{16}}) {
    // The source's own record refuses to seal it.
    const auto content = [k](FakeBundle::Content* c) { c->state_tokens.resize(kTokens - k); };
    std::atomic<bool> armed{false};
    provider_->content = [&](FakeBundle::Content* c) {
      if (armed.exchange(false)) content(c);
    };
    ExpectLoud([&] { armed = true; }, Reason::kBoundaryMismatch);
    // Twin: a source that does not compare.
    provider_->content = [&](FakeBundle::Content* c) {
      content(c);
      c->honest_record = false;
    };
    ExpectSilent([] {}, {});
    provider_->content = nullptr;
  }
}

TEST_P(FaultTest, F11BundleOfAShorterPrefixServed) {
  // It has fewer parts too, so that its twin needs a receiver that looks at nothing.
  ExpectLoudAndTwin([this] { hostile_provider_->Arm(ServeShorter(16)); }, Reason::kBoundaryMismatch,
                    {Check::kIdentity, Check::kParts, Check::kLanded, Check::kStateDigest,
                     Check::kBlockDigest, Check::kFinite});
}

TEST_P(FaultTest, F12SameSizeOtherMeaning) {
  LayoutSpec order;
  order.parts = layout_.parts();
  order.groups = layout_.groups();
  order.numerics_tag = layout_.numerics_tag();
  LayoutSpec axes = order;
  axes.parts[1].axes = "H,N,P";
  axes.parts[1].shape = {2, 16, 10};
  order.parts[0].axes = "tap-newest-first,channel";
  for (const LayoutSpec& spec : {axes, order}) {
    const Layout other = *Layout::Build(spec);
    ASSERT_EQ(other.slot_bytes(), layout_.slot_bytes());
    NewNodes([&](FakeNodeOptions* o) { o->layout = &other; });
    NewServer(Checks());
    const PullRequest request = NewRequest(tokens_);
    EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kLayoutMismatch);
    ExpectAllFree(request);
    ExpectNothingLeaked();
    ExpectSilent([] {}, {Check::kPeer, Check::kIdentity, Check::kParts, Check::kStateDigest,
                         Check::kBlockDigest});
    NewNodes([](FakeNodeOptions*) {});
  }
}

TEST_P(FaultTest, F14OtherWeights) {
  NewNodes([](FakeNodeOptions* o) { o->model.bytes[7] ^= 1; });
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kModelMismatch);
  ExpectAllFree(request);
  ExpectNothingLeaked();
  // Without the greeting the seal still says so; without that too it is silent.
  NewServer(AllBut({Check::kPeer}));
  const PullRequest again = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(again).status), Reason::kModelMismatch);
  ExpectSilent([] {}, {Check::kPeer, Check::kIdentity, Check::kStateDigest, Check::kBlockDigest});
}

TEST_P(FaultTest, F14OtherTenantsState) {
  ExpectLoudAndTwin([this] { hostile_provider_->Arm(ServeOtherScope(ScopeOf("someone else"))); },
                    Reason::kScopeMismatch,
                    {Check::kIdentity, Check::kStateDigest, Check::kBlockDigest});
}

TEST_P(FaultTest, F14SealRewrittenToTheAskedIdentityFailsByItsDigests) {
  // Only the header is swapped: the digests are seeded with what the bytes are.
  ExpectLoudAndTwin(
      [this] {
        hostile_provider_->Arm(ServeOtherScope(ScopeOf("someone else")));
        hostile_->Arm(RewriteOffer(
            [this](Offer* o) { o->claim.seal.identity = receiver_->IdentityOf(tokens_); }));
      },
      Reason::kBlockDigestMismatch, {Check::kStateDigest, Check::kBlockDigest});
}

TEST_P(FaultTest, F19OfferOfAnOlderAttempt) {
  const auto arm = [this] {
    Capture(tokens_);
    hostile_->Arm(ReplayOffer(hostile_->captured()));
  };
  ExpectLoud(arm, Reason::kAttemptMismatch);
  // Without the check, what the older attempt was granted is gone: the source itself refuses. A
  // shm peer reads memory that holds the new attempt's bytes at other places.
  NewServer(AllBut({Check::kAttempt}));
  arm();
  const PullRequest request = NewRequest(tokens_);
  const Status status = Pull(request).status;
  if (std::string(GetParam()) != "shm") {
    EXPECT_EQ(ReasonOf(status), Reason::kUnknownPart) << status;
  }
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(FaultTest, F19PartsDeliveredAgainFromAnOlderAttempt) {
  // The older attempt's state was another: its source had not finished the prompt.
  ExpectLoudAndTwin(
      [this] {
        Capture({tokens_.begin(), tokens_.end() - kBlockTokens});
        hostile_->Arm(
            SubstitutePayload(hostile_->captured(), [this](PartKey key) { return key == Ssm(1); }));
      },
      Reason::kDigestMismatch, {Check::kStateDigest});
}

TEST_P(FaultTest, F19PartOfferedTwice) {
  ExpectLoud(
      [this] {
        hostile_->Arm(RewriteOffer([](Offer* o) { o->parts.push_back(o->parts.front()); }));
      },
      Reason::kUnknownPart);
}

TEST_P(FaultTest, UnknownPartOffered) {
  ExpectLoud(
      [this] {
        hostile_->Arm(RewriteOffer([](Offer* o) {
          o->parts.push_back(o->parts.front());
          o->parts.back().key = StatePartKey(99);
        }));
      },
      Reason::kUnknownPart);
}

TEST_P(FaultTest, PartOfAnotherSizeOffered) {
  ExpectLoud(
      [this] {
        hostile_->Arm(RewriteOffer([](Offer* o) { o->parts.front().address.bytes -= 4; }));
      },
      Reason::kShortTransfer);
}

TEST_P(FaultTest, SealOfAnotherBundleThanOffered) {
  const auto arm = [this] {
    hostile_->Arm(RewriteOffer([](Offer* o) { o->claim.seal.state_id.bytes[0] ^= 1; }));
  };
  ExpectLoud(arm, Reason::kStateIdMismatch);
  ExpectSilent(arm, {Check::kStateId}, /*wrong_bytes=*/false);
}

TEST_P(FaultTest, F21EpochChangesBetweenHelloAndOffer) {
  const auto arm = [this] {
    hostile_->Arm(RewriteOffer([](Offer* o) { o->claim.epoch.bytes[0] ^= 1; }));
  };
  ExpectLoud(arm, Reason::kEpochMismatch);
  ExpectSilent(arm, {Check::kEpoch}, /*wrong_bytes=*/false);
}

TEST_P(FaultTest, F21OfferOfTheIncarnationBeforeTheRestart) {
  NewServer(Checks());
  Capture(tokens_);
  const auto old = hostile_->captured();
  RestartSource();  // new epoch, new arena, counters from the start
  hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
  const auto replay = [&] {
    hostile_->Arm(ReplayOffer(old, [this](Offer* o) { o->claim.attempt = Attempt(attempts_); }));
  };
  NewServer(Checks());
  replay();
  const PullRequest request = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kEpochMismatch);
  ExpectAllFree(request);
  ExpectHonestRetry();
  ExpectNothingLeaked();
  // Twin: a shm peer reads the new arena by the old addresses; what lies there is another state,
  // or nothing yet. The other connectors' source refuses a bundle it never granted.
  RestartSource();
  hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
  NewServer(AllBut({Check::kEpoch, Check::kStateDigest, Check::kBlockDigest, Check::kFinite}));
  provider_->content = [](FakeBundle::Content* c) {
    c->state_tokens = SomeTokens(kTokens, 77);
    c->honest_record = false;
  };
  replay();
  const PullRequest twin = NewRequest(tokens_);
  const Status status = Pull(twin).status;
  if (std::string(GetParam()) == "shm") {
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(receiver_->BytesOf(twin) != Truth());
  } else {
    EXPECT_EQ(ReasonOf(status), Reason::kUnknownPart) << status;
  }
  receiver_->FreeUnits(twin);
  ExpectNothingLeaked();
}

TEST_P(FaultTest, F21SourceRestartsWhileItComputes) {
  NewServer(Checks());
  std::atomic<bool> first{true};
  provider_->before = [&](const Ask&, const CancelToken& cancel) {
    while (first && !cancel.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
    return absl::OkStatus();
  };
  const PullRequest request = NewRequest(tokens_);
  std::jthread restart([&] {
    while (provider_->asked == 0) std::this_thread::sleep_for(milliseconds(1));
    server_->Stop();
  });
  EXPECT_FALSE(Pull(request).status.ok());
  restart.join();
  ExpectAllFree(request);
  first = false;
  NewServer(Checks());
  ExpectHonestRetry();
  ExpectNothingLeaked();
}

TEST_P(FaultTest, F23KvAtOneBoundaryStateAtAnother) {
  const auto content = [](FakeBundle::Content* c) { c->state_tokens.resize(kTokens - 32); };
  std::atomic<bool> armed{false};
  provider_->content = [&](FakeBundle::Content* c) {
    if (armed.exchange(false)) content(c);
  };
  ExpectLoud([&] { armed = true; }, Reason::kBoundaryMismatch);
  provider_->content = [&](FakeBundle::Content* c) {
    content(c);
    c->honest_record = false;
  };
  ExpectSilent([] {}, {});
  provider_->content = nullptr;
  // Two honest seals stitched together: the state's digests are those of the other boundary.
  const auto stitch = [this] {
    Capture({tokens_.begin(), tokens_.end() - 32});
    const auto captured = hostile_->captured();
    Attack attack = SubstitutePayload(captured, IsStatePart);
    attack.receive = RewriteOffer([captured](Offer* o) {
                       o->claim.seal.state_digests =
                           DecodeOffer(captured->offer)->claim.seal.state_digests;
                     }).receive;
    hostile_->Arm(attack);
  };
  ExpectLoudAndTwin(stitch, Reason::kDigestMismatch, {Check::kStateDigest});
}

TEST_P(FaultTest, F28DigestAbsentOrOfAnotherAlgorithm) {
  ExpectLoud([this] { hostile_provider_->Arm(OmitDigest(2)); }, Reason::kDigestAlgorithm);
  ExpectLoud(
      [this] {
        hostile_->Arm(RewriteOffer([](Offer* o) { o->claim.block_digests[0][0] = Digest128(); }));
      },
      Reason::kDigestAlgorithm);
  const auto other = [this] {
    hostile_provider_->Arm(NameOtherAlgorithm());
    hostile_->Arm(FlipBytes(Ssm(0), 0, 1, 1));
  };
  ExpectLoudAndTwin(other, Reason::kDigestAlgorithm, {Check::kAlgorithm, Check::kStateDigest});
}

TEST_P(FaultTest, F28PeersWithDifferentDigestSettings) {
  const std::vector<uint8_t> key(32, 7);
  NewNodes([&](FakeNodeOptions* o) {
    o->digester = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key));
  });
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kDigestAlgorithm);
  ExpectAllFree(request);
  ExpectNothingLeaked();
  ExpectSilent([this] { hostile_->Arm(FlipBytes(Ssm(0), 0, 1, 1)); },
               {Check::kPeer, Check::kAlgorithm, Check::kStateDigest, Check::kBlockDigest});
}

TEST_P(FaultTest, F29NaNDeliveredByTheConnector) {
  const auto arm = [this] { hostile_->Arm(InjectNaN(Ssm(1))); };
  ExpectLoud(arm, Reason::kDigestMismatch);
  // Behind the digest stands the finite check of its own.
  NewServer(AllBut({Check::kStateDigest}));
  arm();
  const PullRequest request = NewRequest(tokens_);
  EXPECT_EQ(ReasonOf(Pull(request).status), Reason::kNonFinite);
  ExpectAllFree(request);
  ExpectSilent(arm, {Check::kStateDigest, Check::kFinite});
}

TEST_P(FaultTest, F29NaNSealedByTheSource) {
  // A source without its own finite check: digests agree with the bytes.
  const auto poison = [this](FakeBundle* bundle) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const StatePart& part = layout_.parts()[3];
    std::memcpy(bundle->slot.bytes().data() + part.offset, &nan, sizeof nan);
    ForgeSeal(source_->self(), source_->device(), bundle->seal.identity, tokens_, bundle);
  };
  std::atomic<bool> armed{false};
  provider_->tamper = [&](FakeBundle* bundle) {
    if (armed.exchange(false)) poison(bundle);
  };
  ExpectLoudAndTwin([&] { armed = true; }, Reason::kNonFinite, {Check::kFinite});
}

TEST_P(FaultTest, F30HostileCountsInsideValidChecksums) {
  const std::vector<uint8_t> huge = {0xff, 0xff, 0xff, 0xff};
  const std::vector<uint8_t> large = {0xff, 0xff, 0xff, 0x7f};
  const auto seal_bytes = static_cast<uint64_t>(
      EncodeSeal(ReferenceSeal(receiver_->self(), receiver_->IdentityOf(tokens_))).size());
  const uint64_t groups_at = kOfferSealLengthAt + 4 + seal_bytes;
  for (const uint64_t at : {kOfferSealLengthAt, groups_at, groups_at + 4,
                            groups_at + 4 + 4 + 16 * layout_.BlockCount(0, kTokens)})
    for (const auto& value : {huge, large, std::vector<uint8_t>{1, 0, 0, 0}})
      ExpectLoud([&] { hostile_->Arm(PatchOffer(at, value)); }, Reason::kMalformed);
}

TEST_P(FaultTest, F30HostileAddresses) {
  if (std::string(GetParam()) != "shm") GTEST_SKIP() << "only shm reads by address";
  for (const ExtentAddress bad :
       {ExtentAddress{7, 0, 0}, ExtentAddress{0, ~uint64_t{0}, 0},
        ExtentAddress{0, ~uint64_t{0} - 64, 0}, ExtentAddress{0, uint64_t{1} << 40, 0}})
    ExpectLoud(
        [&] {
          hostile_->Arm(RewriteOffer([bad](Offer* o) {
            o->parts[0].address.region = bad.region;
            o->parts[0].address.offset = bad.offset;
          }));
        },
        Reason::kMalformed);
}

TEST_P(FaultTest, F30HostileAsksHarmNobody) {
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  Frame good = EncodeAsk(request.ask);
  // Boundary, token count, hint flag: values inside a frame whose checksum is right.
  const size_t boundary_at = 8 + 4 * 32;
  const size_t hint_at = boundary_at + 8 + 4 + 4 * kTokens;
  struct Patch {
    size_t at;
    std::vector<uint8_t> bytes;
  };
  for (const Patch& patch : std::vector<Patch>{{boundary_at, {0, 0, 0, 0}},
                                               {boundary_at, {65}},
                                               {boundary_at + 7, {0xff}},
                                               {boundary_at + 8, {0xff, 0xff, 0xff, 0xff}},
                                               {boundary_at + 8, {0x40, 0, 0x10}},
                                               {hint_at, {1}},
                                               {hint_at, {2}},
                                               {hint_at + 9, {0xff, 0xff, 0xff, 0xff}}}) {
    auto link = Greet();
    Frame frame = good;
    std::copy(patch.bytes.begin(), patch.bytes.end(),
              frame.payload.begin() + static_cast<ptrdiff_t>(patch.at));
    ASSERT_TRUE(link->Send(frame, clock_.Now() + seconds(10)).ok());
    auto answer = link->Receive(clock_.Now() + seconds(10));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(ReasonOf(DecodeError(*answer)), Reason::kMalformed);
  }
  EXPECT_EQ(provider_->asked, 0);
  EXPECT_TRUE(Pull(request).status.ok());
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
