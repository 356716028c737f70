// Question: what does a hand-off cost that proves every byte, against merely copying the bytes?
// For shm the bare copy is memcpy from the same shared mapping into the same kind of memory; for
// tcp and ucx it is send/recv over a loopback socket. Rows marked blake2b use keyed digests. Rounds
// alternate between the two, so that a ratio compares neighbours in time; the median ratio and the
// range over all rounds are printed:
//   pull/copy      moving the bytes alone
//   verified/copy  moving and verifying: the price of the proof
//   whole/copy     the hand-off from connect to release (the provider has the bundle ready)
// Checked: every round's bundle is VERIFIED and as long as the layout says; once per size its
// bytes are compared with the reference.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "handoff/testing/fake_node.h"

namespace baton {
namespace {

constexpr int kRounds = 21;
constexpr int kWarmUp = 3;
constexpr size_t kTokens = 64;

// Serves one bundle that was sealed beforehand, so that only the hand-off is measured.
class ReadyProvider final : public BundleProvider {
 public:
  ReadyProvider(FakeNode* node, FakeBundle* bundle) : node_(node), bundle_(bundle) {}
  StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask&,
                                                  Instant,
                                                  const CancelToken&) override {
    auto served = std::make_unique<ServedBundle>();
    served->seal = bundle_->seal;
    served->block_digests = bundle_->block_digests;
    for (size_t g = 0; g < bundle_->block_handles.size(); ++g) {
      served->blocks.emplace_back();
      for (const BlockHandle& handle : bundle_->block_handles[g]) {
        BATON_ASSIGN_OR_RETURN(BlockLease lease,
                               node_->pools().blocks[g]->Acquire(handle, LeaseFor::kSend));
        served->blocks[g].push_back(std::move(lease));
      }
    }
    BATON_ASSIGN_OR_RETURN(served->slot,
                           node_->pools().slots->Acquire(*bundle_->slot_handle, LeaseFor::kSend));
    return served;
  }

 private:
  FakeNode* node_;
  FakeBundle* bundle_;
};

// The cheapest way to get `bytes` from one place to another over the same kind of transport.
class BareCopy {
 public:
  virtual ~BareCopy() = default;
  virtual double Seconds() = 0;
};

class MemoryCopy final : public BareCopy {
 public:
  explicit MemoryCopy(size_t bytes) : bytes_(bytes), source_(Map(bytes)), destination_(Map(bytes)) {
    std::memset(source_, 1, bytes);
    std::memset(destination_, 2, bytes);
  }
  ~MemoryCopy() override {
    munmap(source_, bytes_);
    munmap(destination_, bytes_);
  }
  double Seconds() override {
    const Instant start = clock_.Now();
    std::memcpy(destination_, source_, bytes_);
    return baton::Seconds(clock_.Now() - start);
  }

 private:
  // As an arena is: shared memory.
  static void* Map(size_t bytes) {
    const int fd = memfd_create("handoff_bench", MFD_CLOEXEC);
    BATON_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    BATON_CHECK(p != MAP_FAILED);
    close(fd);
    return p;
  }
  const size_t bytes_;
  void* source_;
  void* destination_;
  MonotonicClock clock_;
};

// The same socket settings as the connector; a blocking sender thread and a blocking receiver.
class SocketCopy final : public BareCopy {
 public:
  explicit SocketCopy(size_t bytes) : source_(bytes, std::byte{1}), destination_(bytes) {
    OpenPair();
  }
  ~SocketCopy() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  double Seconds() override {
    const Instant start = clock_.Now();
    std::thread sender([this] { Move(ends_[0], source_.data(), true); });
    Move(ends_[1], destination_.data(), false);
    sender.join();
    return baton::Seconds(clock_.Now() - start);
  }

 private:
  void OpenPair();
  void Move(int fd, std::byte* data, bool out) {
    size_t done = 0;
    while (done < source_.size()) {
      const size_t left = source_.size() - done;
      const ssize_t n = out ? send(fd, data + done, left, 0) : recv(fd, data + done, left, 0);
      BATON_CHECK(n > 0);
      done += static_cast<size_t>(n);
    }
  }
  std::vector<std::byte> source_;
  std::vector<std::byte> destination_;
  int ends_[2] = {-1, -1};
  MonotonicClock clock_;
};

void SocketCopy::OpenPair() {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof addr;
  auto* any = reinterpret_cast<sockaddr*>(&addr);
  BATON_CHECK(bind(listening, any, sizeof addr) == 0 && listen(listening, 1) == 0 &&
              getsockname(listening, any, &len) == 0);
  ends_[0] = socket(AF_INET, SOCK_STREAM, 0);
  BATON_CHECK(connect(ends_[0], any, sizeof addr) == 0);
  ends_[1] = accept(listening, nullptr, nullptr);
  close(listening);
  const int one = 1;
  const int buffer = 8 << 20;
  for (const int fd : ends_) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
}

struct Ratios {
  std::vector<double> pull, verified, whole;
};

void Print(const char* name, std::vector<double> r) {
  std::sort(r.begin(), r.end());
  std::printf("  %s %5.2f (%.2f..%.2f)", name, r[r.size() / 2], r.front(), r.back());
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void Measure(const std::string& scheme, uint64_t mib, const Digester& digester) {
  // State in parts of 64 KiB to 1 MiB, and four KV blocks of 64 KiB in front.
  const uint64_t bytes = mib << 20;
  const uint64_t kv = (kTokens / 16) * uint64_t{65536};
  const uint64_t part = mib == 1 ? 65536 : uint64_t{1} << 20;
  const Layout layout = BigLayout((bytes - kv) / part, part);
  const MonotonicClock clock;
  FakeNodeOptions options;
  options.layout = &layout;
  options.slots = 2;
  options.blocks = 16;
  options.digester = digester;
  FakeNode source(options), receiver(options);
  const std::vector<TokenId> tokens = SomeTokens(kTokens, mib);
  auto bundle = FakeBundle::Make(&source, {source.Base(), tokens, tokens});
  BATON_CHECK(bundle.ok());
  ReadyProvider provider(&source, bundle->get());
  HandoffServerOptions server_options;
  server_options.self = source.self();
  server_options.clock = &clock;
  server_options.regions = {source.region()};
  HandoffServer server(server_options, &provider);
  BATON_CHECK(server
                  .AddListener(scheme == "shm" ? "shm:@handoff-bench-" + source.self().node.Hex()
                                               : scheme + ":127.0.0.1:0")
                  .ok());
  server.Start();
  const ConnectorSet connectors = ConnectorSet::Standard(&clock);
  HandoffClientOptions client_options;
  client_options.self = receiver.self();
  client_options.pools = receiver.pools();
  client_options.clock = &clock;
  client_options.device = &receiver.device();
  client_options.connectors = &connectors;
  HandoffClient client(client_options);

  const uint64_t moved = layout.state_payload_bytes() + layout.KvPayloadBytes(kTokens);
  std::unique_ptr<BareCopy> bare;
  if (scheme == "shm")
    bare = std::make_unique<MemoryCopy>(moved);
  else
    bare = std::make_unique<SocketCopy>(moved);
  Ratios ratios;
  std::vector<double> copies, wholes, connects, waits, rest;
  for (int round = -kWarmUp; round < kRounds; ++round) {
    const double copy = bare->Seconds();
    const PullRequest request = receiver.NewRequest(server.endpoints()[0], tokens,
                                                    Attempt(static_cast<uint64_t>(round + 9)),
                                                    clock.Now() + std::chrono::seconds(30));
    const Instant start = clock.Now();
    const PullResult result = client.Pull(request, {});
    const double whole = Seconds(clock.Now() - start);
    if (!result.status.ok()) std::printf("%s\n", result.status.ToString().c_str());
    BATON_CHECK(result.status.ok() && result.report.landed == moved);
    if (round == -1) BATON_CHECK(receiver.BytesOf(request) == ReferenceBundle(receiver, tokens));
    receiver.FreeUnits(request);
    if (round < 0) continue;
    copies.push_back(copy);
    wholes.push_back(whole);
    connects.push_back(result.report.connect_seconds);
    waits.push_back(result.report.wait_seconds);
    rest.push_back(whole - result.report.connect_seconds - result.report.wait_seconds -
                   result.report.pull_seconds - result.report.verify_seconds);
    ratios.pull.push_back(result.report.pull_seconds / copy);
    ratios.verified.push_back((result.report.pull_seconds + result.report.verify_seconds) / copy);
    ratios.whole.push_back(whole / copy);
  }
  const bool keyed = digester.algorithm() == DigestAlgorithm::kBlake2b;
  std::printf("%-4s%s %3lu MiB  copy %8.3f ms %5.2f GB/s  hand-off %8.3f ms |", scheme.c_str(),
              keyed ? " blake2b" : "", static_cast<unsigned long>(mib), Median(copies) * 1e3,
              static_cast<double>(moved) / Median(copies) * 1e-9, Median(wholes) * 1e3);
  Print("pull/copy", ratios.pull);
  Print("verified/copy", ratios.verified);
  Print("whole/copy", ratios.whole);
  std::printf("  fixed: connect %.3f ask %.3f other %.3f ms\n", Median(connects) * 1e3,
              Median(waits) * 1e3, Median(rest) * 1e3);
  server.Stop();
}

}  // namespace
}  // namespace baton

int main() {
  std::printf("hand-off against bare copy; medians of %d rounds, (min..max); %u cores, %s\n",
              baton::kRounds, std::thread::hardware_concurrency(), __VERSION__);
  std::vector<std::string> schemes = {"shm", "tcp"};
  if (baton::HaveUcx()) schemes.push_back("ucx");
  for (const std::string& scheme : schemes)
    for (const uint64_t mib : {1, 16, 96}) baton::Measure(scheme, mib, baton::Digester());
  const std::string key(32, 'k');
  const auto keyed = baton::Digester::Create(baton::DigestAlgorithm::kBlake2b, baton::AsBytes(key));
  for (const std::string& scheme : schemes) baton::Measure(scheme, 16, *keyed);
  return 0;
}
