// kill -9 at random moments of demotion: after each, whatever is found is right, and what a
// finished Put had stored is there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

constexpr int kKills = 200;
constexpr uint8_t kStarted = 255;

class KillTest : public StoreTest {
 protected:
  struct Event {
    uint8_t history;
    uint8_t there;  // 1: Put has returned; 0: about to be removed
  };

  // Puts and removes until it is killed, telling what it does.
  [[noreturn]] void Child(int report, uint64_t seed) {
    Open(64 << 20);
    Tell(report, {kStarted, 0});
    SplitMix64 rng(seed);
    while (true) {
      const auto i = static_cast<uint8_t>(rng.Below(histories_.size()));
      if (tier_->Contains(histories_[i]->identity())) {
        Tell(report, {i, 0});
        tier_->Remove(histories_[i]->identity());
      } else if (tier_->Put(histories_[i]->Source()).ok()) {
        Tell(report, {i, 1});
      }
    }
  }
  static void Tell(int report, Event event) {
    if (write(report, &event, sizeof event) != sizeof event) _exit(1);
  }

  std::vector<std::unique_ptr<SealedHistory>> histories_;
};
INSTANTIATE_TEST_SUITE_P(Stores, KillTest, ::testing::Values(StoreKind::kDisk), StoreKindName);

TEST_P(KillTest, NothingWrongIsServedAndNothingCompleteIsLost) {
  for (const size_t n : {16, 272, 288, 528})
    histories_.push_back(std::make_unique<SealedHistory>(&node_, Prefix(n)));
  for (uint64_t seed = 30; seed < 34; ++seed)
    histories_.push_back(std::make_unique<SealedHistory>(&node_, SomeTokens(272, seed)));
  std::map<uint8_t, bool> there;  // by history, as far as it was told
  SplitMix64 rng(20250101);
  uint64_t events = 0, restores = 0;
  for (int kill_count = 0; kill_count < kKills; ++kill_count) {
    tier_.reset();
    int report[2];
    ASSERT_EQ(pipe(report), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(report[0]);
      Child(report[1], static_cast<uint64_t>(kill_count));
    }
    close(report[1]);
    Event event{kStarted, 0};
    // Most at a moment of demotion, some while the directory is read.
    if (kill_count % 8 != 0) {
      ASSERT_EQ(read(report[0], &event, sizeof event), static_cast<ssize_t>(sizeof event));
    }
    usleep(static_cast<useconds_t>(rng.Below(25000)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    while (read(report[0], &event, sizeof event) == sizeof event) {
      if (event.history == kStarted) continue;
      there[event.history] = event.there != 0;
      ++events;
    }
    close(report[0]);

    Open(64 << 20);
    ASSERT_EQ(tier_->Stats().found_bad, 0u);
    ASSERT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
    ASSERT_TRUE(directory_.Names(".tmp").empty());
    for (size_t i = 0; i < histories_.size(); ++i) {
      const bool found = tier_->Contains(histories_[i]->identity());
      if (there[static_cast<uint8_t>(i)]) {
        ASSERT_TRUE(found) << "lost " << i;
      }
      there[static_cast<uint8_t>(i)] = found;  // a Put that finished and could not tell
      if (!found) continue;
      ExpectRestores(histories_[i]->tokens);
      ASSERT_FALSE(HasFailure());
      ++restores;
    }
  }
  EXPECT_TRUE(tier_->Stats().rejects.empty());
  RecordProperty("events", static_cast<int>(events));
  EXPECT_GT(events, 0u);
  EXPECT_GT(restores, 0u);
  std::printf("%d kills, %llu events told, %llu restores checked\n", kKills,
              static_cast<unsigned long long>(events), static_cast<unsigned long long>(restores));
}

}  // namespace
}  // namespace baton
