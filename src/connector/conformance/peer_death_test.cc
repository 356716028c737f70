// A peer's process is killed at a random moment around the meeting and the transfer, many times:
// each outcome is success or a typed error, nothing is written afterwards, and this process lives.
//
//   peer_death_test SCHEME ROUNDS [SEED]
//
// A program of its own: what it looks for is an abort of the survivor, and it starts itself again
// as the peer that is killed (peer_death_test source ADDRESS | receiver ENDPOINT).
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "connector/conformance/conformance_fixture.h"

extern char** environ;

namespace baton {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr size_t kBytes = size_t{8} << 20;
constexpr size_t kParts = 16;
constexpr size_t kPartBytes = kBytes / kParts;

#define EXPECT_HERE(condition, detail)                                                      \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition ": " << (detail) << "\n"; \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (false)

// Grants everything, says where, serves until the peer leaves.
Status Serve(SourceLink* source, MutableByteSpan memory, Instant deadline) {
  std::vector<GrantedPart> parts;
  for (size_t i = 0; i < kParts; ++i)
    parts.push_back({StateId(), PartKey(i), memory.subspan(i * kPartBytes, kPartBytes)});
  BATON_ASSIGN_OR_RETURN(const auto addresses, source->Grant(parts));
  ByteWriter w;
  for (const ExtentAddress& a : addresses) {
    w.Put(a.region);
    w.Put(a.offset);
  }
  Status served = source->Send({FrameType::kOffer, w.Take()}, deadline);
  if (served.ok()) served = source->ServeUntilFrame(deadline).status();
  source->RevokeAll();
  return served;
}

StatusOr<std::vector<ReadExtent>> Offered(Link* link, MutableByteSpan into, Instant deadline) {
  BATON_ASSIGN_OR_RETURN(const Frame offer, link->Receive(deadline));
  ByteReader r(AsBytes(offer.payload));
  std::vector<ReadExtent> extents;
  for (size_t i = 0; i < kParts; ++i) {
    const auto region = r.Get<uint32_t>();
    const auto offset = r.Get<uint64_t>();
    extents.push_back({StateId(), PartKey(i), region, offset, kPartBytes,
                       into.subspan(i * kPartBytes, kPartBytes)});
  }
  return extents;
}

// One hand-off as receiver. `before_pull` is called when only the pull is left.
Status PullOnce(Connector* connector,
                const std::string& endpoint,
                MutableByteSpan into,
                const Clock& clock,
                const std::function<void()>& before_pull) {
  const Instant deadline = clock.Now() + seconds(20);
  BATON_ASSIGN_OR_RETURN(const auto link, connector->Connect(endpoint, deadline, {}));
  BATON_ASSIGN_OR_RETURN(const auto extents, Offered(link.get(), into, deadline));
  before_pull();
  const PullOutcome out = connector->Pull(*link, extents, deadline);
  EXPECT_HERE(out.quiet, out.status);
  BATON_RETURN_IF_ERROR(out.status);
  return link->Send({FrameType::kRelease, {}}, deadline);
}

int SourceChild(const std::string& address) {
  const MonotonicClock clock;
  const SharedMemory memory(kBytes);
  auto listener = Listen({address, {memory.region()}, &clock, nullptr});
  if (!listener.ok()) return 3;
  std::printf("%s\n", (*listener)->endpoint().c_str());
  std::fflush(stdout);
  for (;;) {
    auto source = (*listener)->Accept();
    if (!source.ok()) return 4;
    Serve(source->get(), memory.bytes(), clock.Now() + seconds(60)).IgnoreError();
  }
}

int ReceiverChild(const std::string& endpoint) {
  const MonotonicClock clock;
  const ConnectorSet connectors = ConnectorSet::Standard(&clock);
  const auto connector = connectors.For(endpoint);
  if (!connector.ok()) return 3;
  std::vector<std::byte> into(kBytes);
  const auto tell = [] {
    std::printf("pulling\n");
    std::fflush(stdout);
  };
  for (;;)
    if (!PullOnce(*connector, endpoint, into, clock, tell).ok()) return 4;
}

class Child {
 public:
  Child(const char* role, std::string argument) {
    int out[2];
    EXPECT_HERE(pipe2(out, O_CLOEXEC) == 0, ErrnoText(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::string program = "/proc/self/exe";
    std::string role_arg = role;
    char* argv[] = {program.data(), role_arg.data(), argument.data(), nullptr};
    const int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_HERE(error == 0, ErrnoText(error));
    close(out[1]);
    out_ = Fd(out[0]);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Empty once the child is gone.
  std::string Line() {
    std::string line;
    for (char c; read(out_.get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  Fd out_;
};

// Half of them anywhere from 10 us to 60 ms, which holds the meeting and the transfer, as many
// short ones as long ones; half where two workers of UCX meet.
microseconds RandomMoment(SplitMix64* rng) {
  if (rng->Below(2) == 0) return microseconds(1000 + rng->Below(14000));
  return microseconds(static_cast<int>(std::pow(10, 1 + rng->Uniform() * 3.78)));
}

struct Tally {
  std::atomic<int> whole{0};
  std::atomic<int> cut{0};
};

class Survivor {
 public:
  Survivor(const std::string& scheme, uint64_t seed) : scheme_(scheme), rng_(seed) {
    auto listener = Listen({scheme_ + ":127.0.0.1:0", {memory_.region()}, &clock_, nullptr});
    EXPECT_HERE(listener.ok(), listener.status());
    listener_ = std::move(*listener);
    connectors_ = ConnectorSet::Standard(&clock_);
    connector_ = *connectors_.For(scheme_ + ":x");
    accept_ = std::jthread([this] {
      for (;;) {
        auto source = listener_->Accept();
        if (!source.ok()) return;
        serving_.emplace_back([this, source = std::move(*source)] {
          const Status served = Serve(source.get(), memory_.bytes(), clock_.Now() + seconds(20));
          Count(served, &served_);
        });
      }
    });
  }
  ~Survivor() {
    listener_->Close();
    accept_.join();
  }

  // The source dies under this process's pull, which may be the first with it or a later one.
  void SourceDies() {
    Child child("source", scheme_ + ":127.0.0.1:0");
    const std::string endpoint = child.Line();
    EXPECT_HERE(!endpoint.empty(), "the source did not start");
    std::vector<std::byte> into(kBytes);
    if (rng_.Below(4) == 0) {
      const Status pulled = PullOnce(connector_, endpoint, into, clock_, [] {});
      EXPECT_HERE(pulled.ok(), pulled);
    }
    const microseconds moment = RandomMoment(&rng_);
    std::jthread killer;
    const Status pulled = PullOnce(connector_, endpoint, into, clock_, [&] {
      killer = std::jthread([&child, moment] {
        std::this_thread::sleep_for(moment);
        child.Kill();
      });
    });
    Count(pulled, &pulled_);
    std::fill(into.begin(), into.end(), std::byte{0x5A});
    if (killer.joinable()) killer.join();
    EXPECT_HERE(into == std::vector<std::byte>(kBytes, std::byte{0x5A}), "written after the pull");
  }

  // The receiver dies while this process serves it.
  void ReceiverDies() {
    Child child("receiver", listener_->endpoint());
    for (uint64_t pull = rng_.Below(4) == 0 ? 2 : 1; pull > 0; --pull)
      EXPECT_HERE(child.Line() == "pulling", "the receiver did not start");
    std::this_thread::sleep_for(RandomMoment(&rng_));
    child.Kill();
  }

  // Nobody dies: both sides of this process still work.
  void PullFromSelf() {
    std::vector<std::byte> into(kBytes);
    const Status pulled = PullOnce(connector_, listener_->endpoint(), into, clock_, [] {});
    EXPECT_HERE(pulled.ok(), pulled);
    EXPECT_HERE(std::equal(into.begin(), into.end(), memory_.bytes().begin()), "other bytes");
  }

  void Print() const {
    std::printf("pulls: %d whole, %d cut; served: %d whole, %d cut\n", pulled_.whole.load(),
                pulled_.cut.load(), served_.whole.load(), served_.cut.load());
    std::fflush(stdout);
  }

 private:
  static void Count(const Status& status, Tally* tally) {
    EXPECT_HERE(status.ok() || ReasonOf(status) == Reason::kPeerUnavailable, status);
    ++(status.ok() ? tally->whole : tally->cut);
  }

  const std::string scheme_;
  SplitMix64 rng_;
  MonotonicClock clock_;
  SharedMemory memory_{kBytes};
  ConnectorSet connectors_;
  Connector* connector_ = nullptr;
  std::unique_ptr<Listener> listener_;
  Tally pulled_;
  Tally served_;
  std::vector<std::jthread> serving_;
  std::jthread accept_;  // first to go
};

int Run(const std::string& scheme, int rounds, uint64_t seed) {
  std::printf("peer_death_test %s %d %llu\n", scheme.c_str(), rounds,
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Survivor survivor(scheme, seed);
  for (int i = 0; i < rounds; ++i) {
    survivor.SourceDies();
    survivor.ReceiverDies();
    if (i % 8 == 7) survivor.PullFromSelf();
    if (i % 50 == 49) survivor.Print();
  }
  survivor.PullFromSelf();
  survivor.Print();
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 3 && (first == "source" || first == "receiver")) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return first == "source" ? baton::SourceChild(argv[2]) : baton::ReceiverChild(argv[2]);
  }
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: peer_death_test SCHEME ROUNDS [SEED]\n");
    return 2;
  }
  uint64_t seed = 0;
  baton::FillRandom(&seed, sizeof seed);
  if (argc == 4) seed = std::strtoull(argv[3], nullptr, 10);
  return baton::Run(first, std::atoi(argv[2]), seed);
}
