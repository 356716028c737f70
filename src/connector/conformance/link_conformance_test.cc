// What every connector promises of the conversation: frames, waiting, closing, connecting.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <thread>

#include "connector/conformance/conformance_fixture.h"

namespace baton {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

using LinkConformance = ConformanceTest;

TEST_P(LinkConformance, FramesTravelBothWays) {
  ConnectBoth();
  const Frame big{FrameType::kAsk, std::vector<uint8_t>(3 << 20, 42)};
  std::jthread sender([&] { EXPECT_TRUE(link_->Send(big, Soon()).ok()); });
  auto got = source_->ServeUntilFrame(Soon());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->type, FrameType::kAsk);
  EXPECT_EQ(got->payload, big.payload);
  ASSERT_TRUE(source_->Send({FrameType::kOffer, {}}, Soon()).ok());
  got = link_->Receive(Soon());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->type, FrameType::kOffer);
}

TEST_P(LinkConformance, AReceiveEndsAtItsDeadline) {
  ConnectBoth();
  EXPECT_EQ(ReasonOf(link_->Receive(clock_.Now() + milliseconds(10)).status()),
            Reason::kPeerUnavailable);
  EXPECT_EQ(ReasonOf(source_->ServeUntilFrame(clock_.Now() + milliseconds(10)).status()),
            Reason::kPeerUnavailable);
}

TEST_P(LinkConformance, CloseUnblocksReceiveOnBothSides) {
  ConnectBoth();
  Status a, b;
  std::thread receiver([&] { a = link_->Receive(clock_.Now() + hours(1)).status(); });
  std::thread source([&] { b = source_->ServeUntilFrame(clock_.Now() + hours(1)).status(); });
  link_->Close();
  link_->Close();
  receiver.join();
  source.join();
  EXPECT_EQ(ReasonOf(a), Reason::kPeerUnavailable);
  EXPECT_EQ(ReasonOf(b), Reason::kPeerUnavailable);
}

TEST_P(LinkConformance, AnEndThatIsDestroyedIsSeenByTheOther) {
  ConnectBoth();
  source_.reset();
  EXPECT_EQ(link_->WaitReadable(Soon()), Link::Event::kReadable);
  EXPECT_EQ(ReasonOf(link_->Receive(Soon()).status()), Reason::kPeerUnavailable);
}

TEST_P(LinkConformance, InterruptWakesAWaitOnce) {
  ConnectBoth();
  std::jthread waker([&] { source_->Interrupt(); });
  EXPECT_EQ(source_->WaitReadable(Soon()), Link::Event::kInterrupted);
  EXPECT_EQ(source_->WaitReadable(clock_.Now() + milliseconds(5)), Link::Event::kDeadline);
  ASSERT_TRUE(link_->Send({FrameType::kRelease, {}}, Soon()).ok());
  EXPECT_EQ(source_->WaitReadable(Soon()), Link::Event::kReadable);
}

TEST_P(LinkConformance, ListenerCloseUnblocksAccept) {
  std::jthread closer([&] { listener_->Close(); });
  EXPECT_EQ(listener_->Accept().status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkConformance, ConnectToNobodyIsPeerUnavailable) {
  const std::string endpoint = listener_->endpoint();
  listener_->Close();
  listener_.reset();
  EXPECT_EQ(ReasonOf(connector_->Connect(endpoint, Soon(), {}).status()), Reason::kPeerUnavailable);
}

TEST_P(LinkConformance, ACancelledConnectConnectsNothing) {
  CancelSource cancel;
  cancel.request_stop();
  EXPECT_EQ(
      ReasonOf(connector_->Connect(listener_->endpoint(), Soon(), cancel.get_token()).status()),
      Reason::kCancelled);
}

TEST_P(LinkConformance, ReconnectsAfterAClosedLinkAndAfterARestartedListener) {
  ConnectBoth();
  link_->Close();
  source_.reset();
  ConnectBoth();
  link_.reset();
  source_.reset();
  const std::string endpoint = listener_->endpoint();
  listener_.reset();
  auto again = Listen({endpoint, {memory_.region()}, &clock_, &hub_});
  ASSERT_TRUE(again.ok()) << again.status();
  listener_ = std::move(*again);
  EXPECT_EQ(listener_->endpoint(), endpoint);
  ConnectBoth();
  ASSERT_TRUE(link_->Send({FrameType::kRelease, {}}, Soon()).ok());
  EXPECT_TRUE(source_->Receive(Soon()).ok());
}

TEST_P(LinkConformance, EndpointsThatDoNotParseAreInvalid) {
  for (const std::string bad : {"", ":", "/", " "}) {
    const auto link = connector_->Connect(GetParam() + ":" + bad, Soon(), {});
    EXPECT_FALSE(link.ok()) << bad;
  }
  EXPECT_EQ(connector_->Connect("other:127.0.0.1:1", Soon(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A stranger on the port: refused, and the next peer is served.
TEST_P(LinkConformance, GarbageIsMalformedAndHarmsNobodyElse) {
  const std::string endpoint = listener_->endpoint();
  Fd fd;
  if (GetParam() == "tcp" || GetParam() == "ucx") {
    fd = Fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
    addr.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr), 0);
  } else if (GetParam() == "shm") {
    fd = Fd(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    const std::string name = endpoint.substr(endpoint.find('@') + 1);
    std::memcpy(addr.sun_path + 1, name.data(), name.size());
    const auto len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&addr), len), 0);
  } else {
    GTEST_SKIP() << "within a process there are no strangers";
  }
  const std::string garbage = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(send(fd.get(), garbage.data(), garbage.size(), 0),
            static_cast<ssize_t>(garbage.size()));
  auto stranger = listener_->Accept();
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(ReasonOf((*stranger)->ServeUntilFrame(Soon()).status()), Reason::kMalformed);
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  ExpectAllLanded(connector_->Pull(*link_, extents_, Soon()));
  link_->Close();
}

// Frames of a connector's own that come out of turn, from a peer that can frame: an error, not
// more.
TEST_P(LinkConformance, ConnectorFramesOutOfTurnAreRefused) {
  if (!source_serves()) GTEST_SKIP() << "frames of this connector's own do not reach the source";
  for (const FrameType type : {FrameType::kRead, FrameType::kData, FrameType::kLanded}) {
    if (GetParam() == "tcp" && type != FrameType::kRead) continue;  // handed up, and refused there
    ConnectBoth();
    const auto bytes = std::vector<uint8_t>(type == FrameType::kLanded ? 8 : 40, 1);
    ASSERT_TRUE(link_->Send({type, bytes}, Soon()).ok());
    const auto served = source_->ServeUntilFrame(Soon());
    if (served.ok()) {
      EXPECT_EQ(served->type, type);  // the conversation above knows no such frame
    } else {
      EXPECT_EQ(ReasonOf(served.status()), Reason::kMalformed) << served.status();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         LinkConformance,
                         ::testing::ValuesIn(ConnectorsUnderTest()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton
