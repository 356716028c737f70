// What single connectors promise beyond conformance/: endpoints, simulated clocks, shm's arenas and
// socket files.
#include "connector/connector.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "connector/conformance/conformance_fixture.h"
#include "connector/shm/arena_map.h"

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

// Sparse files cost their owner nothing; the address space they take here is bounded.
TEST(Shm, ArenasOfAllPeersTogetherAreBounded) {
  const auto sparse = [](uint64_t bytes) {
    Fd fd(memfd_create("sparse", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    BATON_CHECK(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    BATON_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
  };
  constexpr uint64_t kHalf = uint64_t{1} << 30;
  ArenaMapCache cache(2 * kHalf);
  EXPECT_EQ(ReasonOf(cache.Map("a", 0, sparse(3 * kHalf), 3 * kHalf).status()),
            Reason::kPeerUnavailable);
  auto held = cache.Map("a", 0, sparse(kHalf), kHalf);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(cache.Map("a", 1, sparse(kHalf), kHalf).ok());
  // What is only kept for the next link makes room, what a link holds does not.
  EXPECT_TRUE(cache.Map("b", 0, sparse(kHalf), kHalf).ok());
  EXPECT_EQ(ReasonOf(cache.Map("b", 1, sparse(kHalf + 4096), kHalf + 4096).status()),
            Reason::kPeerUnavailable);
  held->reset();
  EXPECT_TRUE(cache.Map("b", 1, sparse(kHalf + 4096), kHalf + 4096).ok());
}

TEST(Shm, AnArenaThatGrewIsNotTheOneAnnounced) {
  SharedMemory memory(4096);
  ArenaMapCache cache;
  const auto map = [&](uint64_t announced) {
    return cache.Map("a", 0, Fd(dup(memory.region().fd)), announced).status();
  };
  EXPECT_TRUE(map(4096).ok());
  ASSERT_EQ(ftruncate(memory.region().fd, 8192), 0);
  EXPECT_EQ(ReasonOf(map(4096)), Reason::kMalformed);
  EXPECT_TRUE(map(8192).ok());
}

TEST(Stream, OutOfDescriptorsIsAClosedConnectionNotTheEnd) {
  MonotonicClock clock;
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const Fd other(pair[1]);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit none = {0, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  SocketStream stream(Fd(pair[0]), "peer", &clock);
  const Status connect = FinishConnect(other.get(), "peer", clock.Now() + seconds(5), &clock, {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(ReasonOf(connect), Reason::kPeerUnavailable);
  EXPECT_EQ(ReasonOf(stream.ReceiveFrame(clock.Now() + seconds(5)).status()),
            Reason::kPeerUnavailable);
  EXPECT_EQ(stream.WaitReadable(clock.Now() + seconds(5)), Link::Event::kReadable);
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
