// A hand-off that is given up at any stage, from either side, by anybody: it ends with a typed
// error or with the right bytes, every count is back to zero, a bystander's bytes are untouched,
// and the next try succeeds. And time: leases run on the source's own monotonic clock, whatever
// other clocks do.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "handoff/testing/fault_fixture.h"

namespace baton {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Stage {
  kGreeted,
  kComputing,
  kBlocksOffered,
  kBlocksPulled,
  kOffered,
  kPulling,
  kHalfPulled,
  kLanded,
  kVerifying,
  kCommitting,
};
enum class Actor { kReceiverCancels, kSourceStops, kSourceRestarts };

// Acts when the n-th part is digested.
class ActingDevice final : public Device {
 public:
  void Copy(MutableByteSpan dst, ByteSpan src) const override { host_.Copy(dst, src); }
  void Fill(MutableByteSpan dst, std::byte value) const override { host_.Fill(dst, value); }
  PartDigest Digest(const Digester& digester,
                    const DigestSeed& seed,
                    ByteSpan bytes) const override {
    if (left.fetch_sub(1) == 1 && act != nullptr) act();
    return host_.Digest(digester, seed, bytes);
  }
  mutable std::atomic<int> left{0};
  std::function<void()> act;

 private:
  HostDevice host_;
};

class StageTest : public FaultTest {
 protected:
  // Runs `act` once the pull of `tokens_` has come to `stage`.
  void ArmAt(Stage stage, std::function<void()> act) {
    const auto on_frame = [&](FrameType type) {
      Attack attack;
      attack.receive = [type, act](Frame* frame) {
        if (frame->type == type) act();
      };
      hostile_->Arm(attack);
    };
    switch (stage) {
      case Stage::kGreeted:
        return on_frame(FrameType::kHello);
      case Stage::kComputing:
        provider_->before = [act](const Ask&, const CancelToken& cancel) {
          std::thread(act).detach();  // Run waits until it has acted
          while (!cancel.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
          return Reject(Reason::kCancelled, "cancelled");
        };
        return;
      case Stage::kBlocksOffered:
        return on_frame(FrameType::kBlocks);
      case Stage::kBlocksPulled:
        return hostile_->Arm(AfterPull(act));  // of the first batch
      case Stage::kOffered:
        return on_frame(FrameType::kOffer);
      case Stage::kPulling:
        return ArmOnLastPull(act, 0);
      case Stage::kHalfPulled:
        return ArmOnLastPull(act, 1);
      case Stage::kLanded:
        return ArmOnLastPull(act, 2);
      case Stage::kVerifying:
        device_.left = static_cast<int>(early_blocks_) + 1;
        device_.act = act;
        return;
      case Stage::kCommitting:
        device_.left = static_cast<int>(layout_.TotalBlocks(kTokens) + layout_.StatePartCount());
        device_.act = act;
        return;
    }
  }
  // The pull after the offer is the one that brings state.
  void ArmOnLastPull(std::function<void()> act, int when) {
    Attack attack;
    attack.pull = [act, when](const PullCall& call) {
      const bool last = IsStatePart(call.extents.back().part);
      const size_t half = call.extents.size() / 2;
      if (!last) return call.Honest();
      if (when == 0) act();
      PullCall part = call;
      part.extents = call.extents.first(half);
      PullOutcome outcome = part.Honest();
      if (when == 1) act();
      part.extents = call.extents.subspan(half);
      PullOutcome rest = part.Honest();
      if (when == 2) act();
      outcome.landed.insert(outcome.landed.end(), rest.landed.begin(), rest.landed.end());
      if (outcome.status.ok()) outcome.status = rest.status;
      return outcome;
    };
    hostile_->Arm(attack);
  }

  void Act(Actor actor) {
    if (actor == Actor::kReceiverCancels) cancel_.request_stop();
    if (actor != Actor::kReceiverCancels) server_->Stop();
    if (actor == Actor::kSourceRestarts) {
      // What the old process held is gone with it; whoever still reads it reads something else.
      const ByteSpan arena = source_->region().bytes;
      std::fill_n(const_cast<std::byte*>(arena.data()), arena.size(), std::byte{0x11});
    }
    acted_ = true;
  }
  void AwaitNoConversation() {
    for (int i = 0; i < 10000 && server_stats_.conversations_now != 0; ++i)
      std::this_thread::sleep_for(milliseconds(1));
  }

  void Run(Stage stage, Actor actor) {
    SCOPED_TRACE(
        absl::StrCat("stage ", static_cast<int>(stage), ", actor ", static_cast<int>(actor)));
    provider_->early_batches = 2;
    early_blocks_ = 0;
    for (size_t g = 0; g < layout_.groups().size(); ++g)
      early_blocks_ += layout_.BlockCount(g, kTokens);
    // All blocks come before the offer, so that every stage exists and is reached at a known
    // digest.
    std::atomic<uint64_t> base{0};
    CancelToken asked;
    provider_->before = [&](const Ask&, const CancelToken& cancel) {
      base = stats_.early_blocks.load();
      asked = cancel;
      return absl::OkStatus();
    };
    provider_->between = [&](size_t batch, FakeBundle* bundle, BlockStream*) {
      uint64_t want = base;
      for (const auto& group : bundle->block_handles) want += group.size() * (batch + 1) / 2;
      for (int i = 0; i < 5000 && stats_.early_blocks < want && !asked.stop_requested(); ++i)
        std::this_thread::sleep_for(milliseconds(1));
    };
    client_options_.device = &device_;
    device_.left = 0;
    NewServer(Checks());
    const PullRequest bystander = NewRequest(SomeTokens(48, 900));
    ASSERT_TRUE(Pull(bystander).status.ok());
    const auto before = receiver_->BytesOf(bystander);
    acted_ = false;
    ArmAt(stage, [this, actor] { Act(actor); });
    const PullRequest request = NewRequest(tokens_);
    const PullResult result = Pull(request);
    for (int i = 0; i < 5000 && !acted_; ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(acted_);
    if (result.status.ok()) {
      // Too late to matter: then it is whole. A cancel is never too late before the commit.
      EXPECT_TRUE(receiver_->BytesOf(request) == Truth());
      EXPECT_NE(actor, Actor::kReceiverCancels);
      receiver_->FreeUnits(request);
    } else {
      EXPECT_TRUE(ReasonOf(result.status).has_value()) << result.status;
      if (actor == Actor::kReceiverCancels) {
        EXPECT_EQ(ReasonOf(result.status), Reason::kCancelled) << result.status;
      }
      ExpectAllFree(request);
    }
    EXPECT_TRUE(receiver_->BytesOf(bystander) == before);
    hostile_->Disarm();
    AwaitNoConversation();  // its hooks refer to what is here
    device_.act = nullptr;
    provider_->before = nullptr;
    provider_->between = nullptr;
    cancel_ = CancelSource();
    if (actor == Actor::kSourceRestarts) {
      RestartSource();
      hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
    }
    NewServer(Checks());
    ExpectHonestRetry();
    receiver_->FreeUnits(bystander);
    ExpectNothingLeaked();
  }

  ActingDevice device_;
  size_t early_blocks_ = 0;
  std::atomic<bool> acted_{false};
};

class GivenUp : public StageTest {};

TEST_P(GivenUp, ByTheReceiver) {
  for (int s = 0; s <= static_cast<int>(Stage::kCommitting); ++s)
    Run(static_cast<Stage>(s), Actor::kReceiverCancels);
}
TEST_P(GivenUp, ByTheSource) {
  for (int s = 0; s <= static_cast<int>(Stage::kCommitting); ++s)
    Run(static_cast<Stage>(s), Actor::kSourceStops);
}
TEST_P(GivenUp, F21ByARestartOfTheSource) {
  for (int s = 0; s <= static_cast<int>(Stage::kCommitting); ++s)
    Run(static_cast<Stage>(s), Actor::kSourceRestarts);
}

// Runs with the real one, from another origin, and jumps when told.
class JumpingClock final : public Clock {
 public:
  explicit JumpingClock(Duration ahead) : ahead_(ahead.count()) {}
  Instant Now() const override { return real_.Now() + Duration(ahead_.load()); }
  void Jump(Duration d) { ahead_.fetch_add(d.count()); }

 private:
  MonotonicClock real_;
  std::atomic<int64_t> ahead_;
};

class ClockTest : public FaultTest {};

// Durations travel, never timestamps: the two clocks need have nothing in common.
TEST_P(ClockTest, ClocksOfOtherOriginsAgree) {
  for (const Duration ahead : {Duration(hours(24 * 365)), Duration(-hours(2))}) {
    const JumpingClock source_clock(ahead);
    server_options_.clock = &source_clock;
    server_options_.lease = seconds(20);
    provider_->early_batches = 2;
    NewServer(Checks());
    ExpectHonestRetry();
    ExpectNothingLeaked();
    EXPECT_EQ(server_stats_.leases_expired, 0u);
    server_->Stop();
    server_.reset();
  }
}

// Only the source's own clock ends a lease: not real time, not the receiver's clock.
TEST_P(ClockTest, TheLeaseEndsOnTheSourcesOwnClock) {
  ManualClock source_clock;
  server_options_.clock = &source_clock;
  server_options_.lease = seconds(30);
  NewServer(Checks());
  auto link = Greet();
  PullRequest request = NewRequest(tokens_);
  request.ask.deadline_ms = 600000;
  const Instant soon = clock_.Now() + seconds(20);
  ASSERT_TRUE(link->Send(EncodeAsk(request.ask), soon).ok());
  auto offer = link->Receive(soon);
  ASSERT_TRUE(offer.ok()) << offer.status();
  ASSERT_EQ(offer->type, FrameType::kOffer);
  EXPECT_EQ(DecodeOffer(*offer)->lease_ms, 30000u);
  source_clock.Advance(seconds(29));
  EXPECT_FALSE(link->Receive(clock_.Now() + milliseconds(120)).ok());
  EXPECT_EQ(server_stats_.leases_expired, 0u);
  EXPECT_GT(source_->UnitsInUse(), 0u);
  source_clock.Advance(seconds(2));
  for (int i = 0; i < 10000 && server_stats_.leases_expired == 0; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(server_stats_.leases_expired, 1u);
  link.reset();
  receiver_->FreeUnits(request);
  source_clock.Advance(seconds(60));
  ExpectNothingLeaked();
}

// A jump of the wall clock reaches nobody: nothing that decides reads one.
TEST(WallClock, IsReadByNothingThatDecides) {
  const std::string root = BATON_SOURCE_DIR;
  for (const char* file :
       {"handoff/client.cc", "handoff/conversation.cc", "handoff/early_offers.cc",
        "handoff/link_group.cc", "handoff/server.cc", "handoff/transfer.cc",
        "handoff/quarantine.cc", "connector/socket_stream.cc", "connector/tcp/tcp_connector.cc",
        "connector/shm/shm_connector.cc", "connector/inproc/inproc_connector.cc",
        "engine/engine.cc", "engine/core.cc", "engine/admission.cc", "engine/worker.cc",
        "base/clock.h"}) {
    std::ifstream in(root + "/src/" + file);
    ASSERT_TRUE(in.good()) << file;
    std::stringstream text;
    text << in.rdbuf();
    for (const char* wall : {"system_clock", "gettimeofday", "CLOCK_REALTIME", "time(nullptr)"})
      EXPECT_EQ(text.str().find(wall), std::string::npos) << file << " reads " << wall;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GivenUp, ::testing::ValuesIn(AllConnectors()));
INSTANTIATE_TEST_SUITE_P(All, ClockTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
