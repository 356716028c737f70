// What every connector promises, run over each of them.
#include "connector/connector.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/rng.h"
#include "connector/connectors.h"
#include "connector/frame.h"
#include "connector/grant_table.h"
#include "connector/socket_stream.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Source memory that every connector can serve: a memfd sealed against shrinking.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes, int seals = F_SEAL_SHRINK)
      : fd_(memfd_create("connector_test", MFD_ALLOW_SEALING | MFD_CLOEXEC)) {
    BATON_CHECK(ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
    BATON_CHECK(fcntl(fd_.get(), F_ADD_SEALS, seals) == 0);
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    BATON_CHECK(p != MAP_FAILED);
    bytes_ = MutableByteSpan(static_cast<std::byte*>(p), bytes);
    SplitMix64 rng(7);
    for (auto& b : bytes_) b = static_cast<std::byte>(rng.Next());
  }
  ~SharedMemory() { munmap(bytes_.data(), bytes_.size()); }
  MutableByteSpan bytes() const { return bytes_; }
  SourceRegion region() const { return {bytes_, fd_.get()}; }

 private:
  Fd fd_;
  MutableByteSpan bytes_;
};

std::string UniqueName() { return "baton-test-" + RandomBytes<StateId>().Hex(); }

class ConnectorTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kBytes = size_t{4} << 20;

  void SetUp() override {
    const std::string scheme = GetParam();
    const std::string address = scheme == "tcp"   ? "127.0.0.1:0"
                                : scheme == "shm" ? "@" + UniqueName()
                                                  : UniqueName();
    auto listener = Listen({scheme + ":" + address, {memory_.region()}, &clock_, &hub_});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
    connectors_ = ConnectorSet::Standard(&clock_, &hub_);
    auto connector = connectors_.For(listener_->endpoint());
    ASSERT_TRUE(connector.ok()) << connector.status();
    connector_ = *connector;
    EXPECT_EQ(connector_->name(), scheme);
    EXPECT_EQ(listener_->connector_name(), scheme);
  }

  bool reads_are_served() const { return std::string(GetParam()) != "shm"; }
  Instant Soon() const { return clock_.Now() + seconds(20); }

  void ConnectBoth() {
    // A shm connect waits for the source to accept and pass its arena.
    std::jthread accept([this] {
      auto source = listener_->Accept();
      ASSERT_TRUE(source.ok()) << source.status();
      source_ = std::move(*source);
    });
    auto link = connector_->Connect(listener_->endpoint(), Soon(), {});
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = std::move(*link);
  }

  // Serves on its own thread until the receiver sends a frame or leaves.
  void ServeInBackground() {
    server_ = std::jthread([this] { served_ = source_->ServeUntilFrame(Soon()).status(); });
  }

  // Grants `count` parts of differing sizes, laid out backwards in memory.
  void GrantParts(size_t count) {
    size_t end = kBytes;
    std::vector<GrantedPart> parts;
    for (size_t i = 0; i < count; ++i) {
      const size_t bytes = 1 + (i * 977) % 1500;
      end -= bytes;
      parts.push_back({id_, PartKey(1000 - i), memory_.bytes().subspan(end, bytes)});
    }
    auto addresses = source_->Grant(parts);
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    granted_ = parts;
    destination_.assign(kBytes, std::byte{0});
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      extents_.push_back({id_, parts[i].part, (*addresses)[i].region, (*addresses)[i].offset,
                          parts[i].bytes.size(),
                          MutableByteSpan(destination_).subspan(at, parts[i].bytes.size())});
      at += parts[i].bytes.size() + 3;
    }
    // Nothing may depend on the order asked.
    SplitMix64 rng(3);
    for (size_t i = count; i > 1; --i) std::swap(extents_[i - 1], extents_[rng.Below(i)]);
  }

  const ByteSpan BytesOf(PartKey key) const {
    for (const auto& part : granted_)
      if (part.part == key) return part.bytes;
    return {};
  }

  MonotonicClock clock_;
  InprocHub hub_;
  SharedMemory memory_{kBytes};
  ConnectorSet connectors_;
  Connector* connector_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<SourceLink> source_;
  const StateId id_ = RandomBytes<StateId>();
  std::vector<GrantedPart> granted_;
  std::vector<ReadExtent> extents_;
  std::vector<std::byte> destination_;
  Status served_;
  std::jthread server_;
};

TEST_P(ConnectorTest, FramesTravelBothWays) {
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

TEST_P(ConnectorTest, PullLandsEveryPartAtItsPlaceAndNothingBetween) {
  ConnectBoth();
  GrantParts(700);  // more than one kData
  ServeInBackground();
  const PullOutcome out = connector_->Pull(*link_, extents_, Soon());
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_TRUE(out.quiet);
  std::vector<std::byte> expected(kBytes, std::byte{0});
  for (size_t i = 0; i < extents_.size(); ++i) {
    EXPECT_EQ(out.landed[i], extents_[i].bytes);
    const ByteSpan source = BytesOf(extents_[i].part);
    std::copy(source.begin(), source.end(),
              expected.begin() + (extents_[i].destination.data() - destination_.data()));
  }
  EXPECT_TRUE(destination_ == expected);
  link_->Close();
}

TEST_P(ConnectorTest, ReadOfWhatWasNotGrantedIsRefused) {
  if (!reads_are_served()) GTEST_SKIP() << "a shm peer reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  auto extents = extents_;
  extents[1].part = PartKey(12345);
  const PullOutcome out = connector_->Pull(*link_, extents, Soon());
  EXPECT_EQ(ReasonOf(out.status), Reason::kUnknownPart) << out.status;
  EXPECT_EQ(out.landed[1], 0u);
  link_->Close();
}

TEST_P(ConnectorTest, AnotherBundlesPartOfTheSameNumberIsRefused) {
  if (!reads_are_served()) GTEST_SKIP() << "a shm peer reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  auto extents = extents_;
  extents[0].state_id = RandomBytes<StateId>();
  EXPECT_EQ(ReasonOf(connector_->Pull(*link_, extents, Soon()).status), Reason::kUnknownPart);
  link_->Close();
}

TEST_P(ConnectorTest, RangeBeyondThePartIsRefused) {
  ConnectBoth();
  GrantParts(3);
  ServeInBackground();
  auto extents = extents_;
  extents[0].bytes = kBytes;
  extents[0].remote_offset += 1;
  extents[0].destination = destination_;
  EXPECT_EQ(ReasonOf(connector_->Pull(*link_, extents, Soon()).status), Reason::kMalformed);
  EXPECT_TRUE(destination_ == std::vector<std::byte>(kBytes, std::byte{0}));
  link_->Close();
}

TEST_P(ConnectorTest, NothingIsServedAfterRevoke) {
  if (!reads_are_served()) GTEST_SKIP() << "a shm peer reads the mapping itself";
  ConnectBoth();
  GrantParts(3);
  source_->RevokeAll();
  ServeInBackground();
  const PullOutcome out = connector_->Pull(*link_, extents_, Soon());
  EXPECT_EQ(ReasonOf(out.status), Reason::kLeaseExpired) << out.status;
  EXPECT_EQ(out.landed, std::vector<uint64_t>(3, 0));
  link_->Close();
}

TEST_P(ConnectorTest, GrantOutsideTheRegionsIsRefusedWhole) {
  ConnectBoth();
  std::vector<std::byte> foreign(64);
  const std::vector<GrantedPart> parts = {{id_, PartKey(1), memory_.bytes().first(8)},
                                          {id_, PartKey(2), foreign}};
  EXPECT_EQ(source_->Grant(parts).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(source_->Grant(std::span(parts).first(1)).ok());
}

TEST_P(ConnectorTest, CloseUnblocksReceiveOnBothSides) {
  ConnectBoth();
  Status a, b;
  std::thread receiver([&] { a = link_->Receive(clock_.Now() + std::chrono::hours(1)).status(); });
  std::thread source(
      [&] { b = source_->ServeUntilFrame(clock_.Now() + std::chrono::hours(1)).status(); });
  link_->Close();
  receiver.join();
  source.join();
  EXPECT_EQ(ReasonOf(a), Reason::kPeerUnavailable);
  EXPECT_EQ(ReasonOf(b), Reason::kPeerUnavailable);
}

TEST_P(ConnectorTest, CloseEndsAPullThatTheSourceDoesNotServe) {
  ConnectBoth();
  GrantParts(3);
  if (!reads_are_served()) GTEST_SKIP() << "a shm pull does not wait for the source";
  std::jthread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    link_->Close();
  });
  const PullOutcome out = connector_->Pull(*link_, extents_, clock_.Now() + std::chrono::hours(1));
  // inproc copies without the source's help and may have finished.
  if (std::string(GetParam()) == "tcp") {
    EXPECT_EQ(ReasonOf(out.status), Reason::kPeerUnavailable) << out.status;
  }
  EXPECT_TRUE(out.quiet);
}

TEST_P(ConnectorTest, InterruptWakesAWaitOnce) {
  ConnectBoth();
  std::jthread waker([&] { source_->Interrupt(); });
  EXPECT_EQ(source_->WaitReadable(Soon()), Link::Event::kInterrupted);
  EXPECT_EQ(source_->WaitReadable(clock_.Now() + milliseconds(5)), Link::Event::kDeadline);
  ASSERT_TRUE(link_->Send({FrameType::kRelease, {}}, Soon()).ok());
  EXPECT_EQ(source_->WaitReadable(Soon()), Link::Event::kReadable);
}

TEST_P(ConnectorTest, ListenerCloseUnblocksAccept) {
  std::jthread closer([&] { listener_->Close(); });
  EXPECT_EQ(listener_->Accept().status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(ConnectorTest, ConnectToNobodyIsPeerUnavailable) {
  const std::string endpoint = listener_->endpoint();
  listener_->Close();
  listener_.reset();
  EXPECT_EQ(ReasonOf(connector_->Connect(endpoint, Soon(), {}).status()), Reason::kPeerUnavailable);
}

TEST_P(ConnectorTest, LinkOfAnotherConnectorIsRefused) {
  ConnectBoth();
  GrantParts(1);
  const std::string other = std::string(GetParam()) == "tcp" ? "shm:x" : "tcp:x";
  const PullOutcome out = (*connectors_.For(other))->Pull(*link_, extents_, Soon());
  EXPECT_EQ(out.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(out.landed, std::vector<uint64_t>(1, 0));
}

INSTANTIATE_TEST_SUITE_P(All, ConnectorTest, ::testing::Values("inproc", "shm", "tcp"));

TEST(Endpoint, ParsesOrSaysWhatIsWrong) {
  EXPECT_EQ(ParseEndpoint("tcp:127.0.0.1:9001")->address, "127.0.0.1:9001");
  EXPECT_EQ(ParseEndpoint("shm:/a/b")->scheme, "shm");
  for (const char* bad : {"", "tcp", "tcp:", ":x"})
    EXPECT_EQ(ParseEndpoint(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  MonotonicClock clock;
  const auto set = ConnectorSet::Standard(&clock);
  EXPECT_EQ(set.For("ftp:x").status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* bad : {"tcp:nohost", "tcp:1.2.3.4:99999", "tcp::80", "shm:@"}) {
    auto connector = set.For(bad);
    ASSERT_TRUE(connector.ok()) << bad;
    EXPECT_EQ((*connector)->Connect(bad, clock.Now() + seconds(5), {}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(Deadline, ASimulatedClockEndsAWait) {
  ManualClock clock;
  InprocHub hub;
  SharedMemory memory(4096);
  for (const std::string& endpoint :
       {std::string("tcp:127.0.0.1:0"), "shm:@" + UniqueName(), std::string("inproc:a")}) {
    auto listener = Listen({endpoint, {memory.region()}, &clock, &hub});
    ASSERT_TRUE(listener.ok()) << listener.status();
    const auto set = ConnectorSet::Standard(&clock, &hub);
    StatusOr<std::unique_ptr<SourceLink>> source = absl::UnknownError("");
    std::jthread accept([&] { source = (*listener)->Accept(); });
    auto link =
        (*set.For(endpoint))->Connect((*listener)->endpoint(), clock.Now() + seconds(1), {});
    ASSERT_TRUE(link.ok()) << link.status();
    const Instant deadline = clock.Now() + seconds(5);
    accept.join();
    std::jthread advance([&] { clock.Advance(seconds(10)); });
    EXPECT_EQ(ReasonOf((*link)->Receive(deadline).status()), Reason::kPeerUnavailable);
  }
}

TEST(Shm, ArenaThatCouldShrinkIsRefused) {
  MonotonicClock clock;
  SharedMemory memory(4096, F_SEAL_GROW);
  auto listener = Listen({"shm:@" + UniqueName(), {memory.region()}, &clock, nullptr});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::jthread accept([&] { EXPECT_TRUE((*listener)->Accept().ok()); });
  const auto set = ConnectorSet::Standard(&clock);
  EXPECT_EQ(ReasonOf((*set.For("shm:x"))
                         ->Connect((*listener)->endpoint(), clock.Now() + seconds(5), {})
                         .status()),
            Reason::kMalformed);
}

TEST(Shm, SocketFileOfADeadProcessIsTakenOverALiveOneIsNot) {
  MonotonicClock clock;
  SharedMemory memory(4096);
  const std::string path = ::testing::TempDir() + UniqueName();
  {
    Fd dead(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    std::strncpy(addr.sun_path, path.c_str(), sizeof addr.sun_path - 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr), 0);
  }
  auto listener = Listen({"shm:" + path, {memory.region()}, &clock, nullptr});
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(Listen({"shm:" + path, {memory.region()}, &clock, nullptr}).status().code(),
            absl::StatusCode::kUnavailable);
  listener->reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Tcp, GarbageOnThePortIsMalformedNotMore) {
  MonotonicClock clock;
  SharedMemory memory(4096);
  auto listener = Listen({"tcp:127.0.0.1:0", {memory.region()}, &clock, nullptr});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string endpoint = (*listener)->endpoint();
  Fd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  addr.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr), 0);
  const std::string garbage = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(send(fd.get(), garbage.data(), garbage.size(), 0),
            static_cast<ssize_t>(garbage.size()));
  auto source = (*listener)->Accept();
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(ReasonOf((*source)->ServeUntilFrame(clock.Now() + seconds(5)).status()),
            Reason::kMalformed);
}

}  // namespace
}  // namespace baton
