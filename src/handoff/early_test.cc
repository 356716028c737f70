// Blocks that are offered, pulled and digested while the rest of their bundle is still computed:
// the same bytes as without, and every way in which an early block could be the wrong one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "handoff/seal_bundle.h"
#include "handoff/testing/fault_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kBatches = 3;

class EarlyTest : public FaultTest {
 protected:
  void SetUp() override { Prepare(); }
  // The provider waits until each batch has been pulled.
  void Prepare() {
    provider_->early_batches = kBatches;
    provider_->before = [this](const Ask&, const CancelToken& cancel) {
      MutexLock lock(&mu_);
      base_ = stats_.early_blocks;
      asked_ = cancel;
      return absl::OkStatus();
    };
    provider_->between = [this](size_t batch, FakeBundle* bundle, BlockStream*) {
      AwaitBatch(batch, *bundle);
    };
  }
  size_t BlocksBefore(size_t batches) const {
    size_t blocks = 0;
    for (size_t g = 0; g < layout_.groups().size(); ++g)
      blocks += layout_.BlockCount(g, kTokens) * batches / kBatches;
    return blocks;
  }
  // Until the receiver has digested this batch, or nobody wants it any more.
  void AwaitBatch(size_t batch, const FakeBundle& bundle) {
    uint64_t want;
    CancelToken asked;
    {  // the conversation before may still wait while the next one is asked
      MutexLock lock(&mu_);
      want = base_;
      asked = asked_;
    }
    for (const auto& group : bundle.block_handles) want += group.size() * (batch + 1) / kBatches;
    for (int i = 0; i < 5000 && stats_.early_blocks < want && !asked.stop_requested(); ++i)
      std::this_thread::sleep_for(milliseconds(1));
  }
  CancelToken Asked() {
    MutexLock lock(&mu_);
    return asked_;
  }
  Mutex mu_;
  uint64_t base_ BATON_GUARDED_BY(mu_) = 0;  // early blocks before the present ask
  CancelToken asked_ BATON_GUARDED_BY(mu_);
};

TEST_P(EarlyTest, LandsTheSameBytesAndVerifiesOnlyAtTheEnd) {
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  std::atomic<int> verified_early{0}, landing{0};
  provider_->between = [&](size_t batch, FakeBundle* bundle, BlockStream*) {
    AwaitBatch(batch, *bundle);
    for (const UnitState state : receiver_->StatesOf(request)) {
      verified_early += state == UnitState::kVerified || state == UnitState::kLive;
      landing += state == UnitState::kLanding;
    }
  };
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
  EXPECT_EQ(verified_early, 0);
  EXPECT_GT(landing, 0);
  EXPECT_EQ(result.report.early_blocks, BlocksBefore(kBatches));
  EXPECT_EQ(result.report.kv_bytes, layout_.KvPayloadBytes(kTokens));
  EXPECT_EQ(result.report.landed, result.report.planned);
  EXPECT_EQ(result.blocks, request.blocks);
  EXPECT_EQ(server_stats_.block_offers, kBatches);
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(EarlyTest, APeerThatDoesNotTakeThemGetsAllAtTheEnd) {
  client_options_.early_blocks = false;
  provider_->between = nullptr;
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
  EXPECT_EQ(result.report.early_blocks, 0u);
  EXPECT_EQ(server_stats_.block_offers, 0u);
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(EarlyTest, OrderAndRepetitionDoNotMatter) {
  provider_->tamper_early = [](std::vector<EarlyBlock>* blocks) {
    std::reverse(blocks->begin(), blocks->end());
  };
  hostile_provider_->Arm({});
  Attack twice;  // the same BLOCKS with every block listed twice
  twice.receive = [](Frame* frame) {
    if (frame->type != FrameType::kBlocks) return;
    auto offer = DecodeBlocks(*frame);
    ASSERT_TRUE(offer.ok());
    const auto blocks = offer->blocks;
    offer->blocks.insert(offer->blocks.begin(), blocks.rbegin(), blocks.rend());
    *frame = EncodeBlocks(*offer);
  };
  NewServer(Checks());
  hostile_->Arm(twice);
  const PullRequest request = NewRequest(tokens_);
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
  EXPECT_EQ(result.report.early_blocks, BlocksBefore(kBatches));
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

// The source ran out of memory and began again: what came under the promised name counts for
// nothing.
TEST_P(EarlyTest, BlocksOfABundleThatWasNeverSealedArePulledAgain) {
  provider_->between = [this](size_t batch, FakeBundle* bundle, BlockStream*) {
    AwaitBatch(batch, *bundle);
    if (batch + 1 == kBatches) bundle->seal.state_id = RandomBytes<StateId>();
  };
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(stats_.early_blocks, BlocksBefore(kBatches));
  EXPECT_EQ(result.report.early_blocks, 0u);
  EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(EarlyTest, WithdrawnBlocksAreLetGoAtOnceAndPulledAgain) {
  std::atomic<bool> released{false};
  std::atomic<uint64_t> leases{99};
  provider_->between = [&](size_t batch, FakeBundle* bundle, BlockStream* stream) {
    AwaitBatch(batch, *bundle);
    if (batch != 1) return;
    stream->Withdraw([&] { released = true; });
    while (!released) std::this_thread::sleep_for(milliseconds(1));
    leases = source_->pools().blocks[0]->Stats().leases - bundle->blocks[0].size();
    bundle->seal.state_id = RandomBytes<StateId>();
  };
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  const PullResult result = Pull(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(leases, 0u);
  EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
}

TEST_P(EarlyTest, F10DamageInAnEarlyBlockIsNoticedBeforeTheBundleIsSealed) {
  const auto arm = [this] { hostile_->Arm(FlipBytes(BlockPartKey(0, 0), 5, 1, 4)); };
  ExpectLoudAndTwin(arm, Reason::kBlockDigestMismatch, {Check::kBlockDigest});
}

// Digest of BLOCKS and bytes agree, and neither is what the bundle has: the seal decides.
TEST_P(EarlyTest, F01AnEarlyBlockOfAnotherSequenceWithItsOwnDigest) {
  std::atomic<bool> lie{false};
  std::unique_ptr<FakeBundle> other;
  provider_->tamper_early = [&](std::vector<EarlyBlock>* blocks) {
    for (EarlyBlock& b : *blocks) {
      if (b.group != 0 || b.block != 0 || !lie) continue;
      FakeBundle::Content content;
      content.base = source_->Base();
      content.tokens = content.state_tokens = SomeTokens(kTokens, 777);
      other = *FakeBundle::Make(source_.get(), content);
      b.lease = *source_->pools().blocks[0]->Acquire(other->block_handles[0][0], LeaseFor::kSend);
      const LiveRecord record(source_->Base(), PrefixChain(FakeNode::Scope(), tokens_));
      b.digest = *DigestKvBlock(source_->self(), source_->device(), record.BlockIdentity(0).Key(),
                                0, b.lease.bytes());
    }
  };
  for (const bool twin : {false, true}) {
    NewServer(twin ? AllBut({Check::kBlockDigest}) : Checks());
    lie = true;
    const PullRequest request = NewRequest(tokens_);
    const PullResult result = Pull(request);
    lie = false;
    if (!twin) {
      EXPECT_EQ(ReasonOf(result.status), Reason::kBlockDigestMismatch) << result.status;
      EXPECT_TRUE(result.report.offered);  // it took the seal to see it
      ExpectAllFree(request);
    } else {
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(receiver_->BytesOf(request) != Truth());
      receiver_->FreeUnits(request);
    }
    server_->Stop();
    other.reset();
    ExpectNothingLeaked();
  }
}

TEST_P(EarlyTest, F30BlocksThatTheBundleDoesNotHave) {
  const std::vector<std::pair<std::function<void(BlockOffer*)>, Reason>> cases = {
      {[](BlockOffer* o) { o->blocks[0].key = BlockPartKey(0, 1000); }, Reason::kUnknownPart},
      {[](BlockOffer* o) { o->blocks[0].key = BlockPartKey(60, 0); }, Reason::kUnknownPart},
      {[](BlockOffer* o) { o->blocks[0].key = StatePartKey(0); }, Reason::kUnknownPart},
      {[](BlockOffer* o) { o->blocks[0].address.bytes += 16; }, Reason::kShortTransfer},
      {[](BlockOffer* o) { o->blocks[0].digest = {}; }, Reason::kDigestAlgorithm},
      {[](BlockOffer* o) { ++o->attempt.value; }, Reason::kAttemptMismatch},
      {[](BlockOffer* o) { o->epoch.bytes[0] ^= 1; }, Reason::kEpochMismatch},
      {[](BlockOffer* o) { o->state_id = {}; }, Reason::kMalformed},
      {[](BlockOffer* o) { o->blocks.clear(); }, Reason::kMalformed},
  };
  // At least one BLOCKS per ask, or nothing is attacked.
  std::atomic<uint64_t> offers_before{0};
  provider_->before = [&](const Ask&, const CancelToken&) {
    offers_before = server_stats_.block_offers.load();
    return absl::OkStatus();
  };
  provider_->between = [&](size_t, FakeBundle*, BlockStream*) {
    for (int i = 0; i < 5000 && server_stats_.block_offers == offers_before; ++i)
      std::this_thread::sleep_for(milliseconds(1));
  };
  for (const auto& [change, reason] : cases) {
    Attack attack;
    attack.receive = [change = change](Frame* frame) {
      if (frame->type != FrameType::kBlocks) return;
      auto offer = DecodeBlocks(*frame);
      if (!offer.ok()) return;
      change(&*offer);
      *frame = EncodeBlocks(*offer);
    };
    ExpectLoud([&] { hostile_->Arm(attack); }, reason);
  }
}

TEST_P(EarlyTest, F22CancelWhileEarlyBlocksArePulled) {
  for (const bool before : {true, false}) {
    NewServer(Checks());
    const auto cancel = [this] { cancel_.request_stop(); };
    hostile_->Arm(before ? BeforePull(cancel) : AfterPull(cancel));
    const PullRequest request = NewRequest(tokens_);
    const Status status = Pull(request).status;
    EXPECT_EQ(ReasonOf(status), Reason::kCancelled) << status;
    ExpectAllFree(request);
    ExpectNothingLeaked();
    cancel_ = CancelSource();
    hostile_->Disarm();
    ExpectHonestRetry();
    ExpectNothingLeaked();
  }
}

TEST_P(EarlyTest, F22CancelBetweenTwoBatches) {
  provider_->between = [this](size_t batch, FakeBundle* bundle, BlockStream*) {
    AwaitBatch(batch, *bundle);
    if (batch == 1) cancel_.request_stop();
  };
  NewServer(Checks());
  const PullRequest request = NewRequest(tokens_);
  const Status status = Pull(request).status;
  EXPECT_EQ(ReasonOf(status), Reason::kCancelled) << status;
  ExpectAllFree(request);
  ExpectNothingLeaked();
}

TEST_P(EarlyTest, F21SourceStopsBetweenTwoBatches) {
  std::promise<void> halfway;
  provider_->between = [&](size_t batch, FakeBundle* bundle, BlockStream*) {
    AwaitBatch(batch, *bundle);
    if (batch != 1) return;
    halfway.set_value();
    const CancelToken asked = Asked();
    while (!asked.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
  };
  NewServer(Checks());
  std::jthread stopper([&] {
    halfway.get_future().wait();
    server_->Stop();
  });
  const PullRequest request = NewRequest(tokens_);
  EXPECT_FALSE(Pull(request).status.ok());
  ExpectAllFree(request);
  stopper.join();
  ExpectNothingLeaked();
  RestartSource();
  hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
  NewServer(Checks());
  ExpectHonestRetry();
  ExpectNothingLeaked();
}

// A peer that takes the blocks and neither pulls nor goes on: its lease runs out on the source's
// own clock, the computation is cancelled, and the memory is free.
TEST_P(EarlyTest, ALeaseOnEarlyBlocksRunsOut) {
  server_options_.lease = milliseconds(30);
  std::atomic<bool> cancelled{false};
  provider_->between = [&](size_t, FakeBundle*, BlockStream*) {
    const CancelToken asked = Asked();
    for (int i = 0; i < 5000 && !asked.stop_requested(); ++i)
      std::this_thread::sleep_for(milliseconds(1));
    cancelled = asked.stop_requested();
  };
  NewServer(Checks());
  auto link = Greet();
  PullRequest request = NewRequest(tokens_);
  request.ask.deadline_ms = 10000;
  const Instant soon = clock_.Now() + seconds(10);
  ASSERT_TRUE(link->Send(EncodeAsk(request.ask), soon).ok());
  auto blocks = link->Receive(soon);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  ASSERT_EQ(blocks->type, FrameType::kBlocks);
  auto end = link->Receive(soon);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ReasonOf(DecodeError(*end)), Reason::kLeaseExpired);
  link.reset();
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(server_stats_.leases_expired, 1u);
}

// Speaking out of turn between two BLOCKS counts as leaving.
TEST_P(EarlyTest, APeerThatSpeaksOutOfTurnIsDropped) {
  std::atomic<bool> cancelled{false};
  provider_->early_batches = 0;
  provider_->before = [&](const Ask&, const CancelToken& cancel) {
    while (!cancel.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
    cancelled = true;
    return Reject(Reason::kCancelled, "cancelled");
  };
  NewServer(Checks());
  auto link = Greet();
  PullRequest request = NewRequest(tokens_);
  request.ask.deadline_ms = 10000;
  const Instant soon = clock_.Now() + seconds(10);
  ASSERT_TRUE(link->Send(EncodeAsk(request.ask), soon).ok());
  ASSERT_TRUE(link->Send(NextFrame(), soon).ok());
  EXPECT_TRUE(!link->Receive(soon).ok() || cancelled);
  link.reset();
  receiver_->FreeUnits(request);
  ExpectNothingLeaked();
  EXPECT_TRUE(cancelled);
}

INSTANTIATE_TEST_SUITE_P(All, EarlyTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
