// Question: what do putting and restoring a verified bundle cost over moving the same bytes bare?
// Host: over a memcpy. Disk: over a plain write of such a file, and a plain read of the object's
// own file, both in the same way of I/O as the tier (past the page cache where it can). All are
// timed in turn, round by round, so that a machine that changes speed changes it for all. Each
// restore's bytes are compared with what was sealed.
//
//   tier_bench [--dir DIR] [--rounds N] [--buffered]
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "handoff/testing/fake_node.h"
#include "tier/disk/disk_store.h"
#include "tier/host/host_store.h"
#include "tier/tier.h"

namespace baton {
namespace {

struct Settings {
  std::string directory;
  int rounds = 7;
  bool direct = true;
};

void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "tier_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <class T>
T Must(StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// Page-aligned memory that has been touched.
struct Buffer {
  explicit Buffer(size_t n) : bytes(n) {
    void* p = nullptr;
    if (posix_memalign(&p, 4096, n) != 0) std::abort();
    data = static_cast<std::byte*>(p);
    std::memset(data, 1, n);
  }
  ~Buffer() { std::free(data); }
  std::byte* data;
  size_t bytes;
};

constexpr size_t kChunk = 1 << 20;

int OpenPlain(const std::string& path, int flags, bool direct) {
  int fd = direct ? open(path.c_str(), flags | O_DIRECT, 0600) : -1;
  if (fd < 0) fd = open(path.c_str(), flags, 0600);
  if (fd < 0) Must(absl::InternalError("cannot open " + path));
  return fd;
}

void PlainWrite(const std::string& path, const Buffer& from, bool direct) {
  unlink(path.c_str());
  const int fd = OpenPlain(path, O_WRONLY | O_CREAT, direct);
  if (fallocate(fd, 0, 0, static_cast<off_t>(from.bytes)) != 0) std::perror("fallocate");
  for (size_t at = 0; at < from.bytes; at += kChunk)
    if (pwrite(fd, from.data + at, std::min(kChunk, from.bytes - at), static_cast<off_t>(at)) <= 0)
      Must(absl::InternalError("short write"));
  close(fd);
}

void PlainRead(const std::string& path, Buffer* to, bool direct) {
  const int fd = OpenPlain(path, O_RDONLY, direct);
  for (size_t at = 0; at < to->bytes; at += kChunk)
    if (pread(fd, to->data + at, std::min(kChunk, to->bytes - at), static_cast<off_t>(at)) < 0)
      Must(absl::InternalError("read failed"));
  close(fd);
}

class Bench {
 public:
  Bench(const Settings& settings, size_t parts, uint64_t part_bytes)
      : settings_(settings),
        layout_(BigLayout(parts, part_bytes)),
        node_({&layout_, Sha256(), Digester(), kHandoffProtocolVersion, 2, 32, nullptr}),
        tokens_(SomeTokens(272, 1)),
        chain_(FakeNode::Scope(), tokens_),
        bundle_(*FakeBundle::Make(&node_, {node_.Base(), tokens_, tokens_})),
        reference_(ReferenceBundle(node_, tokens_)) {
    for (const BundlePart& part : BundleParts(layout_, tokens_.size())) bytes_ += part.bytes;
    request_.expected.identity = bundle_->seal.identity;
    request_.expected.chain = &chain_;
    size_t at = 0;
    landed_ = std::make_unique<Buffer>((bytes_ + 4095) / 4096 * 4096);
    for (const BundlePart& part : BundleParts(layout_, tokens_.size())) {
      request_.targets.push_back({part, {landed_->data + at, part.bytes}});
      at += part.bytes;
    }
  }

  void Run() {
    const uint64_t budget = 4 * bytes_ + (64 << 20);
    auto host = MakeTier(Must(OpenHostStore({budget})), budget);
    DiskStoreOptions options;
    options.directory = settings_.directory;
    options.use_direct = settings_.direct;
    DiskStoreInfo info;
    auto disk = MakeTier(Must(OpenDiskStore(options, &info)), budget);
    Buffer plain(landed_->bytes);
    const std::string file = settings_.directory + "/plain.bin";
    for (int round = -1; round < settings_.rounds; ++round) {
      warm_up_ = round < 0;
      Time("memcpy", [&] { CopyParts(plain.data); });
      Time("host put", [&] { Must(host->Put(Source())); });
      Time("host restore", [&] { Must(host->Restore(request_)); });
      Check();
      host->Remove(bundle_->seal.identity);
      Time("plain write", [&] { PlainWrite(file, plain, info.direct); });
      Time("disk put", [&] { Must(disk->Put(Source())); });
      Time("plain read", [&] { PlainRead(file, &plain, info.direct); });
      Time("disk restore", [&] { Must(disk->Restore(request_)); });
      Check();
      disk->Remove(bundle_->seal.identity);
    }
    std::filesystem::remove(file);
    std::printf("%8.2f MiB in %zu parts, %s%s\n", static_cast<double>(bytes_) / (1 << 20),
                request_.targets.size(), info.io.c_str(), info.direct ? ", O_DIRECT" : "");
    Print("host put", "memcpy");
    Print("host restore", "memcpy");
    Print("disk put", "plain write");
    Print("disk restore", "plain read");
  }

 private:
  std::unique_ptr<Tier> MakeTier(std::unique_ptr<ObjectStore> store, uint64_t budget) {
    TierOptions options;
    options.model = node_.self().model;
    options.layout = &layout_;
    options.digester = &node_.self().digester;
    options.device = &node_.device();
    options.budget_bytes = budget;
    return Must(Tier::Open(std::move(options), std::move(store)));
  }
  ByteSpan BytesOf(const BundlePart& part) const {
    return part.is_state
               ? bundle_->slot.bytes().subspan(layout_.parts()[part.part].offset, part.bytes)
               : bundle_->blocks[part.group][part.slot].bytes().first(part.bytes);
  }
  BundleSource Source() const {
    return {&bundle_->seal, &chain_, &bundle_->block_digests,
            [this](const BundlePart& part) -> StatusOr<PinnedBytes> {
              return PinnedBytes{BytesOf(part)};
            }};
  }
  void CopyParts(std::byte* to) const {
    for (const RestoreTarget& target : request_.targets) {
      std::memcpy(to, BytesOf(target.part).data(), target.part.bytes);
      to += target.part.bytes;
    }
  }
  void Check() {
    for (size_t i = 0; i < reference_.size(); ++i)
      if (std::memcmp(reference_[i].data(), request_.targets[i].bytes.data(),
                      reference_[i].size()) != 0)
        Must(absl::DataLossError("restored bytes differ"));
    std::memset(landed_->data, 0, landed_->bytes);
  }
  void Time(const char* what, const std::function<void()>& work) {
    const MonotonicClock clock;
    const double cpu = ThreadSeconds();
    const Instant start = clock.Now();
    work();
    if (warm_up_) return;
    times_[what].push_back(Seconds(clock.Now() - start));
    cpu_[what].push_back(ThreadSeconds() - cpu);
  }
  // Of this thread, kernel included: what neighbours on the machine disturb less.
  static double ThreadSeconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  static double Quantile(std::vector<double> v, double q) {
    std::sort(v.begin(), v.end());
    return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
  }
  // The ratio is taken within each round, then its median.
  void Print(const char* what, const char* over) {
    std::vector<double> ratio;
    for (size_t i = 0; i < times_[what].size(); ++i)
      ratio.push_back(times_[what][i] / times_[over][i]);
    std::vector<double> cpu;
    for (size_t i = 0; i < cpu_[what].size(); ++i) cpu.push_back(cpu_[what][i] / cpu_[over][i]);
    const auto gb = [&](const char* name) {
      return static_cast<double>(bytes_) / Quantile(times_[name], 0.5) / 1e9;
    };
    std::printf(
        "  %-13s %7.2f GB/s   %-12s %7.2f GB/s   time x %.2f  (%.2f .. %.2f)   cpu x %.2f\n", what,
        gb(what), over, gb(over), Quantile(ratio, 0.5), Quantile(ratio, 0.25),
        Quantile(ratio, 0.75), Quantile(cpu, 0.5));
  }

  const Settings& settings_;
  const Layout layout_;
  FakeNode node_;
  const std::vector<TokenId> tokens_;
  const PrefixChain chain_;
  const std::unique_ptr<FakeBundle> bundle_;
  const std::vector<std::vector<std::byte>> reference_;
  std::unique_ptr<Buffer> landed_;
  RestoreRequest request_;
  uint64_t bytes_ = 0;
  bool warm_up_ = true;
  std::map<std::string, std::vector<double>> times_, cpu_;
};

// A lookup that finds nothing asks for every block of the prompt.
void TimeLookup() {
  constexpr size_t kTokens = 32768;
  const Layout layout = SmallLayout();
  FakeNode node({&layout, Sha256(), Digester(), kHandoffProtocolVersion, 2, 2100, nullptr});
  const std::vector<TokenId> tokens = SomeTokens(kTokens, 1);
  const PrefixChain chain(FakeNode::Scope(), tokens);
  const auto bundle = *FakeBundle::Make(&node, {node.Base(), tokens, tokens});
  TierOptions options;
  options.model = node.self().model;
  options.layout = &layout;
  options.digester = &node.self().digester;
  options.device = &node.device();
  options.budget_bytes = 64 << 20;
  const auto tier = Must(Tier::Open(options, Must(OpenHostStore({options.budget_bytes}))));
  const auto bytes = [&](const BundlePart& part) -> StatusOr<PinnedBytes> {
    return PinnedBytes{
        part.is_state ? bundle->slot.bytes().subspan(layout.parts()[part.part].offset, part.bytes)
                      : bundle->blocks[part.group][part.slot].bytes().first(part.bytes)};
  };
  Must(tier->Put({&bundle->seal, &chain, &bundle->block_digests, bytes}));
  const auto other = PrefixChain::BlockHashes(FakeNode::Scope(), SomeTokens(kTokens, 2));
  const MonotonicClock clock;
  std::vector<double> us;
  for (int i = 0; i < 1001; ++i) {
    const Instant start = clock.Now();
    if (tier->FindDeepest(node.Base(), other, kTokens).has_value()) std::abort();
    us.push_back(Seconds(clock.Now() - start) * 1e6);
  }
  std::nth_element(us.begin(), us.begin() + 500, us.end());
  std::printf("FindDeepest of %zu tokens, nothing found: %.1f us (median)\n", kTokens, us[500]);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  using namespace baton;
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--dir" && i + 1 < argc) {
      settings.directory = argv[++i];
    } else if (arg == "--rounds" && i + 1 < argc) {
      settings.rounds = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--buffered") {
      settings.direct = false;
    } else {
      std::fprintf(stderr, "usage: tier_bench [--dir DIR] [--rounds N] [--buffered]\n");
      return 2;
    }
  }
  const std::string parent = settings.directory.empty()
                                 ? std::filesystem::temp_directory_path().string()
                                 : settings.directory;
  std::string mine = parent + "/tier-bench-XXXXXX";
  if (mkdtemp(mine.data()) == nullptr) {
    std::fprintf(stderr, "tier_bench: cannot make a directory in %s\n", parent.c_str());
    return 1;
  }
  settings.directory = mine;
  std::printf("tier_bench: %s build, %d rounds, median (quartiles of the ratio)\n",
#ifdef NDEBUG
              "release",
#else
              "debug",
#endif
              settings.rounds);
  // 17 blocks of 64 KiB, and states of some layers.
  for (const auto& [parts, bytes] :
       {std::pair<size_t, uint64_t>{1, 64 << 10}, {9, 1 << 20}, {25, 4 << 20}})
    Bench(settings, parts, bytes).Run();
  std::filesystem::remove_all(mine);
  TimeLookup();
  return 0;
}
