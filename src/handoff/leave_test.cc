// F04, a read that comes after the source's lease, and F22, a client that leaves or runs out of
// time at every stage of a hand-off.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "handoff/testing/fault_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Makes the source's lease run out while the receiver is about to pull: the units are freed and
// hold another sequence's bytes when the late read comes.
class LateReadTest : public FaultTest {
 protected:
  void ArmLateRead(bool ignore_deadline) {
    provider_->tamper = [this](FakeBundle* bundle) {
      bundle->on_end = [this, bundle](ServeEnd end) {
        if (end != ServeEnd::kLeaseExpired) return;
        bundle->Free();
        // The pools are just large enough that the next owner gets these very units.
        FakeBundle::Content other;
        other.base = source_->Base();
        other.tokens = other.state_tokens = SomeTokens(kTokens, 555);
        squatter_ = *FakeBundle::Make(source_.get(), other);
        expired_ = true;
      };
    };
    expired_ = false;
    hostile_->Arm(BeforePull(
        [this] {
          while (!expired_) std::this_thread::sleep_for(milliseconds(1));
        },
        ignore_deadline));
  }
  void SetUp() override {
    NewNodes([this](FakeNodeOptions* o) {
      o->slots = 1;
      o->blocks = static_cast<uint32_t>(layout_.BlockCount(0, kTokens));
    });
    // Long enough for the honest retry on a busy machine, where ucx makes and connects workers
    // first.
    server_options_.lease = milliseconds(400);
  }
  std::atomic<bool> expired_{false};
  std::unique_ptr<FakeBundle> squatter_;
};

TEST_P(LateReadTest, F04ReadOfAFreedAndReusedSlot) {
  for (const bool ignore_deadline : {false, true}) {
    NewServer(Checks());
    ArmLateRead(ignore_deadline);
    const PullRequest request = NewRequest(tokens_);
    const Status status = Pull(request).status;
    const bool reads_memory = std::string(GetParam()) == "shm" && ignore_deadline;
    const auto reason = ReasonOf(status);
    if (reads_memory) {
      EXPECT_EQ(reason, Reason::kBlockDigestMismatch) << status;
    } else {
      // The source has revoked it, or this side noticed that the lease is over.
      EXPECT_TRUE(reason == Reason::kLeaseExpired || reason == Reason::kPeerUnavailable) << status;
    }
    ExpectAllFree(request);
    squatter_.reset();
    provider_->tamper = nullptr;
    ExpectHonestRetry();
    ExpectNothingLeaked();
  }
}

TEST_P(LateReadTest, F04Twin) {
  if (std::string(GetParam()) != "shm")
    GTEST_SKIP() << "the source itself refuses; grants are bounds and cannot be switched off";
  NewServer(AllBut({Check::kBlockDigest, Check::kStateDigest}));
  ArmLateRead(/*ignore_deadline=*/true);
  const PullRequest request = NewRequest(tokens_);
  const Status status = Pull(request).status;
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(receiver_->BytesOf(request) != Truth());
  receiver_->FreeUnits(request);
  squatter_.reset();
  ExpectNothingLeaked();
}

// F22: the client leaves, or its deadline passes, at every stage.
class LeaveTest : public FaultTest {
 protected:
  void ExpectLeft(Reason reason) {
    const PullRequest request = NewRequest(tokens_);
    const Status status = Pull(request).status;
    EXPECT_EQ(ReasonOf(status), reason) << status;
    ExpectAllFree(request);
    ExpectNothingLeaked();
    cancel_ = CancelSource();
    deadline_ = seconds(30);
    hostile_->Disarm();
    ExpectHonestRetry();
    ExpectNothingLeaked();
  }
  std::function<void()> Cancel() {
    return [this] { cancel_.request_stop(); };
  }
  std::function<void()> OutlastDeadline() {
    return [this] { std::this_thread::sleep_for(deadline_ + milliseconds(20)); };
  }
};

TEST_P(LeaveTest, F22CancelAfterTheOffer) {
  NewServer(Checks());
  hostile_->Arm(OnOffer(Cancel()));
  ExpectLeft(Reason::kCancelled);
}

TEST_P(LeaveTest, F22CancelBeforeThePull) {
  NewServer(Checks());
  hostile_->Arm(BeforePull(Cancel()));
  ExpectLeft(Reason::kCancelled);
}

TEST_P(LeaveTest, F22CancelInMidPull) {
  NewServer(Checks());
  Attack attack;
  attack.pull = [this](const PullCall& call) {
    PullCall half = call;
    half.extents = call.extents.first(call.extents.size() / 2);
    PullOutcome outcome = half.Honest();
    cancel_.request_stop();
    half.extents = call.extents.subspan(call.extents.size() / 2);
    const PullOutcome rest = half.Honest();
    outcome.landed.insert(outcome.landed.end(), rest.landed.begin(), rest.landed.end());
    outcome.status = rest.status;
    return outcome;
  };
  hostile_->Arm(attack);
  ExpectLeft(Reason::kCancelled);
}

TEST_P(LeaveTest, F22CancelBeforeVerification) {
  NewServer(Checks());
  hostile_->Arm(AfterPull(Cancel()));
  ExpectLeft(Reason::kCancelled);
}

// Cancels when the first part is digested: verification has begun, nothing is released yet.
class CancellingDevice final : public Device {
 public:
  explicit CancellingDevice(std::function<void()> act) : act_(std::move(act)) {}
  void Copy(MutableByteSpan dst, ByteSpan src) const override { host_.Copy(dst, src); }
  void Fill(MutableByteSpan dst, std::byte value) const override { host_.Fill(dst, value); }
  PartDigest Digest(const Digester& digester,
                    const DigestSeed& seed,
                    ByteSpan bytes) const override {
    if (armed.exchange(false)) act_();
    return host_.Digest(digester, seed, bytes);
  }
  mutable std::atomic<bool> armed{true};

 private:
  HostDevice host_;
  std::function<void()> act_;
};

TEST_P(LeaveTest, F22CancelBeforeTheRelease) {
  const CancellingDevice device(Cancel());
  client_options_.device = &device;
  NewServer(Checks());
  ExpectLeft(Reason::kCancelled);
}

TEST_P(LeaveTest, F22TimeoutAfterTheOffer) {
  NewServer(Checks());
  deadline_ = milliseconds(100);
  hostile_->Arm(OnOffer(OutlastDeadline()));
  ExpectLeft(Reason::kPeerUnavailable);
}

TEST_P(LeaveTest, F22TimeoutBeforeThePull) {
  NewServer(Checks());
  deadline_ = milliseconds(100);
  hostile_->Arm(BeforePull(OutlastDeadline()));
  ExpectLeft(Reason::kPeerUnavailable);
}

INSTANTIATE_TEST_SUITE_P(All, LateReadTest, ::testing::ValuesIn(AllConnectors()));
INSTANTIATE_TEST_SUITE_P(All, LeaveTest, ::testing::ValuesIn(AllConnectors()));

}  // namespace
}  // namespace baton
