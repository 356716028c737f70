// Question: what does a copy cost that also proves what it copied, against the cheapest copy alone?
// One thread, cold data: parts of one size lie shuffled in arenas several times the last-level
// cache, and each run takes the parts after those of the run before. Seven runs, the variants
// interleaved; medians, and the spread of the ratio within a run.
//   memcpy       the C library's
//   stream       non-temporal 64-byte stores, prefetched like the digesting copy
//   fused        Digester::CopyDigest, cold target: copy, seeded XXH3-128 and finite check
//   fused-warm   the same with ordinary stores
//   two-pass     memcpy, then Digester::Digest of the destination
//   blake2b      keyed: Digester::CopyDigest with BLAKE2b
//   move         fused, then digests of destination and source: what a pool's move or fork does
//   avx2, portable   fused by these kernels
//   three-pass   the same safety by digest, memcpy, digest
// The bar is fused against the better of memcpy and stream. Every digest and destination is
// checked.
#include <immintrin.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "identity/digest.h"
#include "memory/arena.h"

namespace baton {
namespace {

constexpr int kRuns = 7;
constexpr size_t kArenaBytes = size_t{512} << 20;
constexpr size_t kRunBytes = size_t{48} << 20;

__attribute__((target("avx512f"))) void Stream512(MutableByteSpan dst, ByteSpan src) {
  for (size_t i = 0; i < src.size(); i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(src.data()) + i + 1024, _MM_HINT_T0);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst.data() + i),
                        _mm512_loadu_si512(src.data() + i));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) void Stream256(MutableByteSpan dst, ByteSpan src) {
  for (size_t i = 0; i < src.size(); i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(src.data()) + i + 1024, _MM_HINT_T0);
    const auto* from = reinterpret_cast<const __m256i*>(src.data() + i);
    auto* to = reinterpret_cast<__m256i*>(dst.data() + i);
    _mm256_stream_si256(to, _mm256_loadu_si256(from));
    _mm256_stream_si256(to + 1, _mm256_loadu_si256(from + 1));
  }
  _mm_sfence();
}

struct Variant {
  std::string name;
  std::function<Digest128(MutableByteSpan dst, ByteSpan src)> run;
  bool digests = false;
  std::array<double, kRuns> seconds{};
};

MutableByteSpan Bytes(Arena& arena) { return {arena.data(), arena.size()}; }

// Of this thread: turns that other processes take do not count, waiting for memory does.
double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::array<double, kRuns> v) {
  std::sort(v.begin(), v.end());
  return v[kRuns / 2];
}

class Bench {
 public:
  Bench() : src_(*Arena::Create(kArenaBytes, {})), dst_(*Arena::Create(kArenaBytes, {})) {
    SplitMix64 rng(1);
    float* f = reinterpret_cast<float*>(Bytes(*src_).data());
    for (size_t i = 0; i < kArenaBytes / sizeof(float); ++i)
      f[i] = static_cast<float>(static_cast<int64_t>(rng.Next()) >> 40);
    std::memset(Bytes(*dst_).data(), 1, kArenaBytes);
    seed_.value.bytes.fill(7);
    const std::string key(32, 'k');
    keyed_ = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key));
  }

  // Returns the ratio of the bar.
  double Run(size_t bytes) {
    std::vector<size_t> order(kArenaBytes / bytes);
    std::iota(order.begin(), order.end(), size_t{0});
    SplitMix64 rng(2);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
    std::vector<Variant> variants = MakeVariants();
    for (DigestKernel kernel : {DigestKernel::kAvx2, DigestKernel::kPortable})
      if (DigestKernelRuns(kernel)) variants.push_back(With(kernel));
    const size_t parts = std::max<size_t>(1, kRunBytes / bytes);
    size_t next = 0;
    for (int run = -1; run < kRuns; ++run) {  // the first warms up code and page tables
      for (Variant& v : variants) {
        const size_t first = next;
        std::vector<Digest128> digests(parts);
        const double start = CpuSeconds();
        for (size_t i = 0; i < parts; ++i) {
          const size_t at = order[(first + i) % order.size()] * bytes;
          digests[i] = v.run(Bytes(*dst_).subspan(at, bytes), Bytes(*src_).subspan(at, bytes));
        }
        if (run >= 0) v.seconds[static_cast<size_t>(run)] = CpuSeconds() - start;
        next += parts;
        for (size_t i = 0; i < parts; i += 1 + parts / 4)
          Check(v, order[(first + i) % order.size()] * bytes, bytes, digests[i]);
      }
    }
    return Report(bytes, parts, variants);
  }

 private:
  std::vector<Variant> MakeVariants() {
    const bool wide = __builtin_cpu_supports("avx512f");
    return {
        {"memcpy",
         [](MutableByteSpan d, ByteSpan s) {
           std::memcpy(d.data(), s.data(), s.size());
           return Digest128();
         }},
        {"stream",
         [wide](MutableByteSpan d, ByteSpan s) {
           wide ? Stream512(d, s) : Stream256(d, s);
           return Digest128();
         }},
        {"fused",
         [this](MutableByteSpan d, ByteSpan s) {
           return digester_.CopyDigest(seed_, d, s, CopyTarget::kCold)->digest;
         },
         true},
        {"fused-warm",
         [this](MutableByteSpan d, ByteSpan s) {
           return digester_.CopyDigest(seed_, d, s, CopyTarget::kWarm)->digest;
         },
         true},
        {"two-pass",
         [this](MutableByteSpan d, ByteSpan s) {
           std::memcpy(d.data(), s.data(), s.size());
           return digester_.Digest(seed_, d).digest;
         },
         true},
        {"move",
         [this](MutableByteSpan d, ByteSpan s) {
           const Digest128 copied = digester_.CopyDigest(seed_, d, s, CopyTarget::kCold)->digest;
           const bool same = digester_.Digest(seed_, d).digest == copied &&
                             digester_.Digest(seed_, s).digest == copied;
           return same ? copied : Digest128();
         },
         true},
        {"three-pass",
         [this](MutableByteSpan d, ByteSpan s) {
           const Digest128 before = digester_.Digest(seed_, s).digest;
           std::memcpy(d.data(), s.data(), s.size());
           return digester_.Digest(seed_, d).digest == before ? before : Digest128();
         },
         true},
        {"blake2b",
         [this](MutableByteSpan d, ByteSpan s) {
           return keyed_.CopyDigest(seed_, d, s, CopyTarget::kCold)->digest;
         },
         true},
    };
  }

  // Fused, by another kernel than the best.
  Variant With(DigestKernel kernel) {
    return {std::string(DigestKernelName(kernel)),
            [this, kernel](MutableByteSpan d, ByteSpan s) {
              Xxh3Stream stream(seed_.dtype, Sha256::kSize, kernel);
              stream.Update(AsBytes(seed_.value.bytes));
              return stream.CopyFinish(d, s, CopyTarget::kCold);
            },
            true};
  }

  void Check(const Variant& v, size_t at, size_t bytes, const Digest128& found) {
    const ByteSpan src = Bytes(*src_).subspan(at, bytes);
    const MutableByteSpan dst = Bytes(*dst_).subspan(at, bytes);
    const Digester& digester = v.name == "blake2b" ? keyed_ : digester_;
    const bool same = std::memcmp(dst.data(), src.data(), bytes) == 0 &&
                      (!v.digests || digester.Digest(seed_, src).digest == found);
    if (!same) {
      std::fprintf(stderr, "copy_digest_bench: %s is wrong at %zu bytes\n", v.name.c_str(), bytes);
      std::exit(1);
    }
    std::memset(dst.data(), 0, 64);  // the next must write it itself
  }

  double Report(size_t bytes, size_t parts, const std::vector<Variant>& variants) {
    const double total = static_cast<double>(bytes * parts);
    std::printf("%8zu KiB ", bytes >> 10);
    for (const Variant& v : variants)
      std::printf(" %s %.2f", v.name.c_str(), total / Median(v.seconds) / 1e9);
    const bool memcpy_wins = Median(variants[0].seconds) < Median(variants[1].seconds);
    const Variant& best = variants[memcpy_wins ? 0 : 1];
    std::array<double, kRuns> ratio{};
    for (size_t i = 0; i < kRuns; ++i) ratio[i] = best.seconds[i] / variants[2].seconds[i];
    const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
    const double bar = Median(best.seconds) / Median(variants[2].seconds);
    std::printf(
        " GB/s; fused/%s %.2f (runs %.2f..%.2f), fused/two-pass %.2f, move/three-pass %.2f\n",
        best.name.c_str(), bar, *low, *high,
        Median(variants[4].seconds) / Median(variants[2].seconds),
        Median(variants[6].seconds) / Median(variants[5].seconds));
    std::fflush(stdout);
    return bar;
  }

  std::unique_ptr<Arena> src_;
  std::unique_ptr<Arena> dst_;
  DigestSeed seed_;
  Digester digester_;
  Digester keyed_;
};

// TCP over loopback, the receiver's processor time: plain receive into a cold destination, and the
// same with each piece digested when it has come, while it is in the cache.
class TcpBench {
 public:
  TcpBench() : dst_(*Arena::Create(kArenaBytes, {})) {
    std::memset(dst_->data(), 1, kArenaBytes);
    source_.resize(kPart / sizeof(float), 1.25f);
    seed_.value.bytes.fill(7);
    want_ = digester_.Digest(seed_, AsBytes(source_)).digest;
  }

  void Run() {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, reinterpret_cast<sockaddr*>(&addr), sizeof addr) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&addr), &len) != 0 ||
        connect(fd, reinterpret_cast<sockaddr*>(&addr), sizeof addr) != 0)
      std::abort();
    const int peer = accept(listener, nullptr, nullptr);
    std::thread sender([this, peer] {
      for (int i = 0; i < 2 * (kRuns + 1) * kParts; ++i)
        for (size_t sent = 0; sent < kPart;)
          sent += static_cast<size_t>(
              std::max<ssize_t>(0, send(peer, AsBytes(source_).data() + sent, kPart - sent, 0)));
      close(peer);
    });
    std::array<double, kRuns> plain{};
    std::array<double, kRuns> digesting{};
    for (int run = -1; run < kRuns; ++run) {
      const double a = Receive(fd, false);
      const double b = Receive(fd, true);
      if (run < 0) continue;
      plain[static_cast<size_t>(run)] = a;
      digesting[static_cast<size_t>(run)] = b;
    }
    sender.join();
    close(fd);
    close(listener);
    std::array<double, kRuns> ratio{};
    for (size_t i = 0; i < kRuns; ++i) ratio[i] = plain[i] / digesting[i];
    const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
    const double total = static_cast<double>(kPart) * kParts / 1e9;
    std::printf(
        "tcp loopback, parts of %zu MiB: receive %.2f GB/s, receive+digest %.2f GB/s; %.2f "
        "(runs %.2f..%.2f)\n",
        kPart >> 20, total / Median(plain), total / Median(digesting),
        Median(plain) / Median(digesting), *low, *high);
  }

 private:
  static constexpr size_t kPart = size_t{4} << 20;
  static constexpr int kParts = 48;
  static constexpr size_t kPiece = size_t{256} << 10;

  double Receive(int fd, bool digest) {
    const double start = CpuSeconds();
    for (int i = 0; i < kParts; ++i) {
      const MutableByteSpan part = Bytes(*dst_).subspan(next_, kPart);
      next_ = (next_ + kPart) % kArenaBytes;
      DigestStream stream = digester_.Stream(seed_);
      for (size_t at = 0; at < kPart;) {
        const ssize_t n = recv(fd, part.data() + at, std::min(kPiece, kPart - at), 0);
        if (n <= 0) std::abort();
        if (digest) stream.Update(part.subspan(at, static_cast<size_t>(n)));
        at += static_cast<size_t>(n);
      }
      if (digest && stream.Finish().digest != want_) {
        std::fprintf(stderr, "copy_digest_bench: tcp digest is wrong\n");
        std::exit(1);
      }
    }
    return CpuSeconds() - start;
  }

  std::unique_ptr<Arena> dst_;
  std::vector<float> source_;
  DigestSeed seed_;
  Digester digester_;
  Digest128 want_;
  size_t next_ = 0;
};

}  // namespace
}  // namespace baton

int main() {
  std::printf("kernel %s; GB/s of source bytes, median of 7 interleaved runs\n",
              std::string(baton::DigestKernelName(baton::BestDigestKernel())).c_str());
  baton::Bench bench;
  for (size_t kib : {16, 64, 256, 1024, 4096, 16 * 1024, 96 * 1024}) bench.Run(kib << 10);
  baton::TcpBench().Run();
  return 0;
}
