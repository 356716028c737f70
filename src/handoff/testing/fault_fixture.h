// A receiver whose connector lies, a source whose provider lies, and the four conditions that every
// injected fault must meet, with its twin: the same injection with the named checks switched off
// must reach VERIFIED with wrong bytes (or a wrong record), which shows that the injection is real
// and the check can fail.
#ifndef BATON_HANDOFF_TESTING_FAULT_FIXTURE_H_
#define BATON_HANDOFF_TESTING_FAULT_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "connector/hostile/attacks.h"
#include "connector/hostile/hostile_connector.h"
#include "connector/hostile/hostile_provider.h"
#include "handoff/checks_for_testing.h"
#include "handoff/testing/handoff_fixture.h"

namespace baton {

inline constexpr size_t kTokens = 64;

inline Checks AllBut(const std::vector<Check>& off) {
  Checks checks;
  for (const Check check : off) checks = ChecksForTesting::Also(checks, check);
  return checks;
}

class FaultTest : public HandoffFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  FaultTest() : HandoffFixture(GetParam()) {
    auto hostile = std::make_unique<HostileConnector>(connectors_.Take(GetParam()));
    hostile_ = hostile.get();
    connectors_.Add(std::move(hostile));
    hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
  }

  void NewServer(const Checks& checks) {
    if (server_ != nullptr) server_->Stop();
    client_options_.checks = checks;
    server_options_.checks = checks;
    ServeWith(hostile_provider_.get());
  }
  void NewNodes(const std::function<void(FakeNodeOptions*)>& change_source) {
    SetUpNodes(change_source);
    hostile_provider_ = std::make_unique<HostileProvider>(provider_.get());
  }

  // What an undisturbed run lands.
  std::vector<std::vector<std::byte>> Truth() const { return ReferenceBundle(*receiver_, tokens_); }

  void Capture(std::vector<TokenId> tokens) {
    hostile_->CaptureNext();
    const PullRequest request = NewRequest(std::move(tokens));
    const PullResult result = Pull(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
    receiver_->FreeUnits(request);
  }

  // Arms the injection; called before each run. It may pull honestly first, to capture.
  using Arm = std::function<void()>;

  // The four conditions.
  void ExpectLoud(const Arm& arm, Reason reason) {
    NewServer(Checks());
    const PullRequest bystander = NewRequest(SomeTokens(48, 900));
    ASSERT_TRUE(Pull(bystander).status.ok());
    const auto before = receiver_->BytesOf(bystander);
    arm();
    const PullRequest request = NewRequest(tokens_);
    const PullResult result = Pull(request);
    EXPECT_EQ(ReasonOf(result.status), reason) << result.status;
    ExpectAllFree(request);
    hostile_->Disarm();
    EXPECT_TRUE(receiver_->BytesOf(bystander) == before);
    ExpectHonestRetry();
    receiver_->FreeUnits(bystander);
    ExpectNothingLeaked();
  }

  void ExpectHonestRetry() {
    const PullRequest retry = NewRequest(tokens_);
    const PullResult result = Pull(retry);
    EXPECT_TRUE(result.status.ok()) << result.status;
    if (result.status.ok()) {
      EXPECT_TRUE(receiver_->BytesOf(retry) == Truth());
      receiver_->FreeUnits(retry);
    }
  }

  // The twin: the lie reaches VERIFIED.
  void ExpectSilent(const Arm& arm, const std::vector<Check>& off, bool wrong_bytes = true) {
    NewServer(AllBut(off));
    arm();
    const PullRequest request = NewRequest(tokens_);
    const PullResult result = Pull(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
    for (const UnitState state : receiver_->StatesOf(request))
      EXPECT_EQ(state, UnitState::kVerified);
    EXPECT_EQ(receiver_->BytesOf(request) != Truth(), wrong_bytes);
    receiver_->FreeUnits(request);
    hostile_->Disarm();
    ExpectNothingLeaked();
  }

  void ExpectLoudAndTwin(const Arm& arm, Reason reason, const std::vector<Check>& off) {
    ExpectLoud(arm, reason);
    ExpectSilent(arm, off);
  }

  PartKey Conv(uint32_t layer) const { return StatePartKey(*layout_.FindPart(layer, "conv")); }
  PartKey Ssm(uint32_t layer) const { return StatePartKey(*layout_.FindPart(layer, "ssm")); }

  const std::vector<TokenId> tokens_ = SomeTokens(kTokens, 42);
  HostileConnector* hostile_ = nullptr;
  std::unique_ptr<HostileProvider> hostile_provider_;
};

}  // namespace baton

#endif  // BATON_HANDOFF_TESTING_FAULT_FIXTURE_H_
