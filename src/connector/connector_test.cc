// What single connectors promise beyond conformance/: endpoints, simulated clocks, shm's arenas and
// socket files.
#include "connector/connector.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "connector/conformance/conformance_fixture.h"

namespace baton {
namespace {

using std::chrono::seconds;

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
  std::vector<std::string> endpoints = {"tcp:127.0.0.1:0", "shm:@" + UniqueName(), "inproc:a"};
  if (HaveUcx()) endpoints.push_back("ucx:127.0.0.1:0");
  for (const std::string& endpoint : endpoints) {
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

}  // namespace
}  // namespace baton
