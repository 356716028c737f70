// What every connector promises of a pull: exactly the bytes asked for, exactly where asked for,
// counted, and after its return no others.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "connector/conformance/conformance_fixture.h"

extern char** environ;

namespace baton {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

using PullConformance = ConformanceTest;

TEST_P(PullConformance, EveryPartLandsAtItsPlaceAndNothingBetween) {
  ConnectBoth();
  GrantParts(700);
  ServeInBackground();
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  link_->Close();
}

// Bytes, pages, pieces and batches of every transport, and one off.
TEST_P(PullConformance, SizesAroundEveryBorder) {
  ConnectBoth();
  std::vector<size_t> sizes = {1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 1 << 20};
  for (size_t border : {8192u, 65536u, 131072u})
    for (int off : {-1, 0, 1}) sizes.push_back(border + static_cast<size_t>(off));
  GrantParts(sizes);
  ServeInBackground();
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  link_->Close();
}

TEST_P(PullConformance, MorePartsThanOneTableHolds) {
  ConnectBoth();
  GrantParts(std::vector<size_t>(kRangesMax + 500, 40));
  ServeInBackground();
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  link_->Close();
}

TEST_P(PullConformance, NothingIsPulledByNoExtents) {
  ConnectBoth();
  ServeInBackground();
  const PullOutcome out = connector_->Pull(*link_, {}, Soon());
  EXPECT_TRUE(out.status.ok()) << out.status;
  EXPECT_TRUE(out.landed.empty());
  link_->Close();
}

TEST_P(PullConformance, EmptyWrongSizedAndDoubleExtentsAreInvalidAndMoveNothing) {
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  const auto refused = [&](const std::function<void(std::vector<ReadExtent>*)>& change) {
    auto extents = extents_;
    change(&extents);
    const PullOutcome out = connector_->Pull(*link_, extents, Soon());
    EXPECT_EQ(out.status.code(), absl::StatusCode::kInvalidArgument) << out.status;
    EXPECT_EQ(out.landed, std::vector<uint64_t>(extents.size(), 0));
    ExpectNothingWritten();
  };
  refused([](auto* e) { (*e)[1].bytes = 0, (*e)[1].destination = {}; });
  refused([](auto* e) { (*e)[1].bytes += 1; });
  refused([](auto* e) { e->push_back(e->front()); });
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));  // the link is as good as before
  link_->Close();
}

TEST_P(PullConformance, TheSamePartsCanBePulledAgainAndOthersAfterThem) {
  ConnectBoth();
  GrantParts(40);
  ServeInBackground();
  const auto all = extents_;
  ExpectAllLanded(connector_->Pull(*link_, all, Soon()));
  destination_.assign(destination_.size(), kUntouched);
  extents_.assign(all.begin(), all.begin() + 20);
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  extents_.assign(all.begin() + 20, all.end());
  destination_.assign(destination_.size(), kUntouched);
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  ASSERT_TRUE(link_->Send({FrameType::kRelease, {}}, Soon()).ok());
  server_.join();
  EXPECT_TRUE(served_.ok()) << served_;
}

TEST_P(PullConformance, ReadOfWhatWasNotGrantedIsRefused) {
  if (!source_refuses()) GTEST_SKIP() << "the receiver reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  auto extents = extents_;
  extents[1].part = PartKey(12345);
  const PullOutcome out = connector_->Pull(*link_, extents, Soon());
  EXPECT_EQ(ReasonOf(out.status), Reason::kUnknownPart) << out.status;
  EXPECT_EQ(out.landed[1], 0u);
  EXPECT_TRUE(out.quiet);
  link_->Close();
}

TEST_P(PullConformance, AnotherBundlesPartOfTheSameNumberIsRefused) {
  if (!source_refuses()) GTEST_SKIP() << "the receiver reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  auto extents = extents_;
  extents[0].state_id = RandomBytes<StateId>();
  EXPECT_EQ(ReasonOf(connector_->Pull(*link_, extents, Soon()).status), Reason::kUnknownPart);
  link_->Close();
}

TEST_P(PullConformance, RangeBeyondThePartIsRefused) {
  ConnectBoth();
  GrantParts({kBytes / 2, 8, 8});
  ServeInBackground();
  auto extents = extents_;
  for (ReadExtent& e : extents) {
    if (e.bytes != 8) continue;
    e.bytes = kBytes / 2;  // beyond the part, and beyond the region
    e.remote_offset = kBytes / 2 + 1;
    e.destination = MutableByteSpan(destination_).first(kBytes / 2);
    const PullOutcome out = connector_->Pull(*link_, std::span(&e, 1), Soon());
    EXPECT_EQ(ReasonOf(out.status), Reason::kMalformed) << out.status;
    EXPECT_EQ(out.landed, std::vector<uint64_t>(1, 0));
    break;
  }
  ExpectNothingWritten();
  link_->Close();
}

TEST_P(PullConformance, NothingIsServedAfterRevoke) {
  if (!source_refuses()) GTEST_SKIP() << "the receiver reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  source_->RevokeAll();
  ServeInBackground();
  const PullOutcome out = connector_->Pull(*link_, extents_, Soon());
  EXPECT_EQ(ReasonOf(out.status), Reason::kLeaseExpired) << out.status;
  EXPECT_EQ(out.landed, std::vector<uint64_t>(3, 0));
  ExpectNothingWritten();
  link_->Close();
}

TEST_P(PullConformance, GrantOutsideTheRegionsIsRefusedWhole) {
  ConnectBoth();
  std::vector<std::byte> foreign(64);
  const std::vector<GrantedPart> parts = {{id_, PartKey(1), memory_.bytes().first(8)},
                                          {id_, PartKey(2), foreign}};
  EXPECT_EQ(source_->Grant(parts).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(source_->Grant(std::span(parts).first(1)).ok());
}

TEST_P(PullConformance, LinkOfAnotherConnectorIsRefused) {
  ConnectBoth();
  GrantParts(1);
  for (const std::string& other : ConnectorsUnderTest()) {
    if (other == GetParam()) continue;
    const PullOutcome out = (*connectors_.For(other + ":x"))->Pull(*link_, extents_, Soon());
    EXPECT_EQ(out.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(out.landed, std::vector<uint64_t>(1, 0));
  }
}

TEST_P(PullConformance, APullThatIsNotServedEndsAtItsDeadlineAndStaysQuiet) {
  if (!source_serves()) GTEST_SKIP() << "a pull does not wait for the source";
  ConnectBoth();
  GrantParts(3);
  const PullOutcome out = connector_->Pull(*link_, extents_, clock_.Now() + milliseconds(30));
  EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
  EXPECT_EQ(out.landed, std::vector<uint64_t>(3, 0));
  ASSERT_TRUE(out.quiet);
  // The source wakes up and serves what nobody waits for any more.
  ServeInBackground();
  std::this_thread::sleep_for(milliseconds(50));
  ExpectNothingWritten();
  link_->Close();
}

// However fast the bytes come: the frame was there before the first of them.
TEST_P(PullConformance, AFrameThatNobodyWaitsForEndsAPull) {
  if (!source_serves()) GTEST_SKIP() << "a pull reads no frames";
  for (int round = 0; round < 20; ++round) {
    granted_.clear();
    extents_.clear();
    ConnectBoth();
    GrantParts(1);
    std::jthread source([&] {
      ASSERT_TRUE(source_->ServeUntilFrame(Soon()).ok());
      ASSERT_TRUE(source_->Send({FrameType::kNext, {}}, Soon()).ok());
      source_->ServeUntilFrame(Soon()).IgnoreError();
    });
    ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
    ASSERT_TRUE(link_->Send({FrameType::kNext, {}}, Soon()).ok());
    ASSERT_EQ(link_->WaitReadable(Soon()), Link::Event::kReadable);
    EXPECT_EQ(ReasonOf(connector_->Pull(*link_, extents_, Soon()).status), Reason::kMalformed);
    link_->Close();
  }
}

TEST_P(PullConformance, ADeadlineThatHasPassedMovesNothing) {
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  const PullOutcome out = connector_->Pull(*link_, extents_, clock_.Now() - milliseconds(1));
  EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
  ExpectNothingWritten();
  link_->Close();
}

TEST_P(PullConformance, CloseEndsAPullThatTheSourceDoesNotServe) {
  if (!source_serves()) GTEST_SKIP() << "a pull does not wait for the source";
  ConnectBoth();
  GrantParts(3);
  std::jthread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    link_->Close();
  });
  const PullOutcome out = connector_->Pull(*link_, extents_, clock_.Now() + hours(1));
  EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
  EXPECT_TRUE(out.quiet);
  ExpectNothingWritten();
}

// Whichever side closes, whenever: all or a typed error, and nothing is written afterwards.
TEST_P(PullConformance, CloseInTheMiddleOfAPull) {
  for (int round = 0; round < 8; ++round) {
    granted_.clear();
    extents_.clear();
    ConnectBoth();
    GrantParts(std::vector<size_t>(100, 40000));
    ServeInBackground();
    std::jthread closer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 << round));
      round % 2 == 0 ? link_->Close() : source_->Close();
    });
    const PullOutcome out = connector_->Pull(*link_, extents_, Soon());
    destination_.assign(destination_.size(), kUntouched);
    if (out.status.ok()) {
      for (uint64_t landed : out.landed) EXPECT_EQ(landed, 40000u);
    } else {
      EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
    }
    EXPECT_TRUE(out.quiet);
    closer.join();
    link_->Close();
    server_.join();
    ExpectNothingWritten();
  }
}

// A server of as many conversations as come: grants all of `memory` in parts of `part_bytes`, says
// where by a kOffer frame, serves until a frame, revokes.
class BusySource {
 public:
  BusySource(Listener* listener, MutableByteSpan memory, size_t part_bytes, const Clock* clock)
      : accept_([=, this] {
          for (;;) {
            auto source = listener->Accept();
            if (!source.ok()) return;
            conversations_.emplace_back([source = std::move(*source), memory, part_bytes, clock] {
              Serve(source.get(), memory, part_bytes, clock);
            });
          }
        }) {}

 private:
  static void Serve(SourceLink* source,
                    MutableByteSpan memory,
                    size_t part_bytes,
                    const Clock* clock) {
    std::vector<GrantedPart> parts;
    for (size_t at = 0; at < memory.size(); at += part_bytes)
      parts.push_back({StateId(), PartKey(at / part_bytes), memory.subspan(at, part_bytes)});
    auto addresses = source->Grant(parts);
    BATON_CHECK(addresses.ok());
    ByteWriter w;
    for (const ExtentAddress& a : *addresses) {
      w.Put(a.region);
      w.Put(a.offset);
    }
    const Instant deadline = clock->Now() + std::chrono::seconds(30);
    if (source->Send({FrameType::kOffer, w.Take()}, deadline).ok())
      source->ServeUntilFrame(deadline).status().IgnoreError();
    source->RevokeAll();
  }

  std::vector<std::jthread> conversations_;
  std::jthread accept_;  // first to go
};

// The other side of BusySource.
std::vector<ReadExtent> ExtentsOf(const Frame& offer, MutableByteSpan into) {
  ByteReader r(AsBytes(offer.payload));
  const size_t count = offer.payload.size() / 12;
  const size_t part_bytes = into.size() / count;
  std::vector<ReadExtent> extents;
  for (size_t i = 0; i < count; ++i) {
    const auto region = r.Get<uint32_t>();
    const auto offset = r.Get<uint64_t>();
    extents.push_back({StateId(), PartKey(i), region, offset, part_bytes,
                       into.subspan(i * part_bytes, part_bytes)});
  }
  return extents;
}

TEST_P(PullConformance, ManyPullsAtOnceEachGetTheirOwn) {
  constexpr int kThreads = 6;
  BusySource source(listener_.get(), memory_.bytes(), kBytes / 64, &clock_);
  std::vector<std::jthread> receivers;
  std::atomic<int> right{0};
  for (int t = 0; t < kThreads; ++t) {
    receivers.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        auto link = connector_->Connect(listener_->endpoint(), Soon(), {});
        ASSERT_TRUE(link.ok()) << link.status();
        const auto offer = (*link)->Receive(Soon());
        ASSERT_TRUE(offer.ok()) << offer.status();
        std::vector<std::byte> mine(kBytes);
        const PullOutcome out = connector_->Pull(**link, ExtentsOf(*offer, mine), Soon());
        ASSERT_TRUE(out.status.ok()) << out.status;
        EXPECT_EQ(std::accumulate(out.landed.begin(), out.landed.end(), uint64_t{0}), kBytes);
        right += std::equal(mine.begin(), mine.end(), memory_.bytes().begin());
        ASSERT_TRUE((*link)->Send({FrameType::kRelease, {}}, Soon()).ok());
      }
    });
  }
  receivers.clear();
  EXPECT_EQ(right, kThreads * 3);
  listener_->Close();
}

// Acts on the n-th look at the time after it was armed: in the middle of a transfer, whatever the
// machine's speed.
class ActingClock final : public Clock {
 public:
  Instant Now() const override {
    if (left_.load() > 0 && left_.fetch_sub(1) == 1) act_();
    return clock_.Now();
  }
  void Arm(int looks, std::function<void()> act) {
    act_ = std::move(act);
    left_ = looks;
  }

 private:
  MonotonicClock clock_;
  std::function<void()> act_;
  mutable std::atomic<int> left_{0};
};

TEST_P(PullConformance, PeerDeathInMidTransfer) {
  if (GetParam() == "inproc") GTEST_SKIP() << "the peer is this process";
  constexpr size_t kLarge = size_t{64} << 20;
  int out_pipe[2];
  ASSERT_EQ(pipe(out_pipe), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out_pipe[1], 1);
  posix_spawn_file_actions_addclose(&actions, out_pipe[0]);
  const std::string address = AddressOf(GetParam());
  std::string program = BATON_CONNECTOR_SOURCE;
  std::string bytes = std::to_string(kLarge);
  std::string endpoint_arg = address;
  char* argv[] = {program.data(), endpoint_arg.data(), bytes.data(), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(out_pipe[1]);
  std::string endpoint;
  for (char c; read(out_pipe[0], &c, 1) == 1 && c != '\n';) endpoint += c;
  close(out_pipe[0]);

  ActingClock clock;
  const ConnectorSet connectors = ConnectorSet::Standard(&clock);
  const auto connector = connectors.For(endpoint);
  ASSERT_TRUE(connector.ok()) << connector.status();
  auto link = (*connector)->Connect(endpoint, Soon(), {});
  ASSERT_TRUE(link.ok()) << link.status();
  const auto offer = (*link)->Receive(Soon());
  ASSERT_TRUE(offer.ok()) << offer.status();
  std::vector<std::byte> into(kLarge, kUntouched);
  const auto extents = ExtentsOf(*offer, into);
  bool dead = false;
  clock.Arm(6, [&] {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    dead = true;
  });
  const PullOutcome out = (*connector)->Pull(**link, extents, Soon());
  clock.Arm(0, nullptr);
  EXPECT_TRUE(dead);
  EXPECT_TRUE(out.quiet);
  const auto landed = std::accumulate(out.landed.begin(), out.landed.end(), uint64_t{0});
  if (GetParam() == "shm") {  // the mapping outlives the process that made it
    EXPECT_TRUE(out.status.ok()) << out.status;
    EXPECT_EQ(landed, kLarge);
  } else {
    EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
    EXPECT_LT(landed, kLarge);
  }
  into.assign(kLarge, kUntouched);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(into == std::vector<std::byte>(kLarge, kUntouched));
  EXPECT_EQ(ReasonOf((*link)->Receive(Soon()).status()), Reason::kPeerUnavailable);
  if (!dead) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

// The receiver dies: the source's serving ends with a typed error, long before its deadline.
TEST_P(PullConformance, AReceiverThatLeavesInMidTransferFreesTheSource) {
  if (!source_serves()) GTEST_SKIP() << "the source does not serve";
  ConnectBoth();
  GrantParts(std::vector<size_t>(60, 65000));
  server_ = std::jthread(
      [this] { served_ = source_->ServeUntilFrame(clock_.Now() + hours(1)).status(); });
  std::jthread leaver([&] { link_->Close(); });
  connector_->Pull(*link_, extents_, Soon());
  leaver.join();
  link_.reset();
  server_.join();
  EXPECT_EQ(ReasonOf(served_), Reason::kPeerUnavailable) << served_;
  source_->RevokeAll();
}

INSTANTIATE_TEST_SUITE_P(All,
                         PullConformance,
                         ::testing::ValuesIn(ConnectorsUnderTest()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton
