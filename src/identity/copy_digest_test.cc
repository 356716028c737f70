// Every kernel against libxxhash's own one-shot call, for every kind of length, address and split.
#include "identity/copy_digest.h"

#define XXH_STATIC_LINKING_ONLY  // XXH3_generateSecret_fromSeed
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "identity/element_f8.h"
#include "identity/copy_digest_kernels.h"
#include "identity/digest.h"
#include "identity/finite.h"

namespace baton {
namespace {

std::vector<std::byte> RandomBytes(size_t n, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<std::byte> v(n);
  for (auto& b : v) b = static_cast<std::byte>(rng.Next() >> 56);
  return v;
}

Digest128 Library(ByteSpan bytes) {
  XXH128_canonical_t c;
  XXH128_canonicalFromHash(&c, XXH3_128bits_withSeed(bytes.data(), bytes.size(), 0));
  Digest128 d;
  std::memcpy(d.bytes.data(), c.digest, sizeof c.digest);
  return d;
}

class KernelTest : public ::testing::TestWithParam<DigestKernel> {
 protected:
  void SetUp() override {
    if (!DigestKernelRuns(GetParam()))
      GTEST_SKIP() << "this CPU has no " << DigestKernelName(GetParam());
  }
  Digest128 Hash(ByteSpan bytes) {
    Xxh3Stream s(ElementType::kF32, 0, GetParam());
    s.Update(bytes);
    return s.Finish();
  }
};

// Copies into a guarded buffer at the given misalignment: digest, bytes and guards.
void ExpectCopy(DigestKernel kernel, ByteSpan src, size_t shift, CopyTarget target) {
  constexpr size_t kGuard = 64;
  constexpr std::byte kMark{0xA5};
  std::vector<std::byte> room(src.size() + 2 * kGuard + 128, kMark);
  const size_t align = (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64;
  const size_t at = align + kGuard + shift;
  Xxh3Stream s(ElementType::kF32, 0, kernel);
  s.CopyUpdate(MutableByteSpan(room).subspan(at, src.size()), src, target);
  ASSERT_EQ(s.Finish(), Library(src)) << src.size() << " shift " << shift;
  ASSERT_TRUE(std::equal(src.begin(), src.end(), room.begin() + static_cast<ptrdiff_t>(at)));
  for (size_t i = 0; i < room.size(); ++i) {
    if (i < at || i >= at + src.size()) {
      ASSERT_EQ(room[i], kMark) << i;
    }
  }
}

TEST_P(KernelTest, EveryLengthTo2000) {
  const auto data = RandomBytes(2100, 1);
  for (size_t n = 0; n <= 2000; ++n) {
    const ByteSpan bytes = ByteSpan(data).subspan(n % 67, n);
    ASSERT_EQ(Hash(bytes), Library(bytes)) << n;
    ExpectCopy(GetParam(), bytes, n % 64, n % 2 == 0 ? CopyTarget::kWarm : CopyTarget::kCold);
  }
}

TEST_P(KernelTest, AroundStripesAndBlocksAtEveryAddress) {
  const auto data = RandomBytes(70000, 2);
  for (size_t base : {240u, 256u, 1024u, 2048u, 4096u, 16384u, 65536u}) {
    for (size_t n = base - 66; n <= base + 66; ++n) {
      const ByteSpan bytes = ByteSpan(data).subspan(n % 61, n);
      ASSERT_EQ(Hash(bytes), Library(bytes)) << n;
    }
  }
  for (size_t from = 0; from < 64; ++from)
    for (size_t to = 0; to < 64; to += 3)
      ExpectCopy(GetParam(), ByteSpan(data).subspan(from, 3000 + 7 * from), to,
                 (from + to) % 2 == 0 ? CopyTarget::kWarm : CopyTarget::kCold);
}

TEST_P(KernelTest, Large) {
  const auto data = RandomBytes((size_t{3} << 20) + 12345, 3);
  ASSERT_EQ(Hash(data), Library(data));
  ExpectCopy(GetParam(), data, 0, CopyTarget::kCold);
  ExpectCopy(GetParam(), data, 32, CopyTarget::kCold);
  ExpectCopy(GetParam(), data, 5, CopyTarget::kCold);
  ExpectCopy(GetParam(), data, 0, CopyTarget::kWarm);
}

// Random lengths in random pieces, copying, hashing only, or changing between the two.
TEST_P(KernelTest, HowItIsSplitDoesNotMatter) {
  SplitMix64 rng(4);
  const auto data = RandomBytes(40000, 5);
  for (int round = 0; round < 3000; ++round) {
    const size_t n = rng.Below(round % 10 == 0 ? 40000 : 1500);
    const size_t piece = 1 + rng.Below(round % 3 == 0 ? 5000 : 300);
    const ByteSpan src = ByteSpan(data).subspan(rng.Below(data.size() - n + 1), n);
    std::vector<std::byte> dst(n);
    Xxh3Stream s(ElementType::kF32, 0, GetParam());
    for (size_t i = 0; i < n;) {
      const size_t take = std::min<size_t>(rng.Below(piece + 1), n - i);
      if (rng.Below(4) == 0) {
        s.Update(src.subspan(i, take));
        std::copy_n(src.begin() + static_cast<ptrdiff_t>(i), take,
                    dst.begin() + static_cast<ptrdiff_t>(i));
      } else {
        s.CopyUpdate(MutableByteSpan(dst).subspan(i, take), src.subspan(i, take),
                     rng.Below(2) == 0 ? CopyTarget::kWarm : CopyTarget::kCold);
      }
      i += take;
    }
    ASSERT_EQ(s.Finish(), Library(src)) << n;
    ASSERT_TRUE(std::equal(src.begin(), src.end(), dst.begin()));
  }
}

// F29. A stream with a seed in front, in pieces that cut elements, against AllFinite.
TEST_P(KernelTest, FiniteIsWhatTheScanOfTheElementsSays) {
  SplitMix64 rng(6);
  for (int round = 0; round < 3000; ++round) {
    const auto dtype =
        std::vector{ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                    kElementF8E4M3}[rng.Below(4)];
    auto data = RandomBytes(rng.Below(1200), rng.Next());
    for (auto& b : data) b &= std::byte{0x3f};  // finite in all types
    if (data.size() > 8 && rng.Below(2) == 0) {
      const size_t at = rng.Below(data.size() - 4) / 4 * 4;
      const uint32_t bad = dtype == ElementType::kF32    ? 0x7f800000u
                           : dtype == ElementType::kBF16 ? 0xff800000u
                           : dtype == ElementType::kF16  ? 0x00007c01u
                                                         : 0x00ff0000u;
      std::memcpy(data.data() + at, &bad, sizeof bad);
    }
    const auto seed = std::vector<std::byte>(32, std::byte{0xff});  // would be NaN as elements
    std::vector<std::byte> dst(data.size());
    Xxh3Stream s(dtype, 32, GetParam());
    s.Update(seed);
    const size_t piece = 1 + rng.Below(900);
    for (size_t i = 0; i < data.size(); i += piece) {
      const size_t n = std::min(piece, data.size() - i);
      s.CopyUpdate(MutableByteSpan(dst).subspan(i, n), ByteSpan(data).subspan(i, n),
                   CopyTarget::kWarm);
    }
    ASSERT_EQ(s.finite(), AllFinite(dtype, data)) << data.size();
    auto all = seed;
    all.insert(all.end(), data.begin(), data.end());
    ASSERT_EQ(s.Finish(), Library(all));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    KernelTest,
    ::testing::Values(DigestKernel::kPortable, DigestKernel::kAvx2, DigestKernel::kAvx512),
    [](const auto& info) { return std::string(DigestKernelName(info.param)); });

TEST(CopyDigest, TheSecretIsTheSpecifications) {
  unsigned char secret[digest_internal::kSecretBytes];
  XXH3_generateSecret_fromSeed(secret, 0);
  EXPECT_EQ(0, std::memcmp(secret, digest_internal::kSecret, sizeof secret));
}

TEST(CopyDigest, OverlapAndUnequalSizesAreRefusedAndNothingIsWritten) {
  const std::string key(32, 'k');
  for (const Digester& digester :
       {Digester(), *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key))}) {
    auto data = RandomBytes(4096, 7);
    const auto before = data;
    const MutableByteSpan all(data);
    const auto refused = [&](MutableByteSpan dst, ByteSpan src) {
      EXPECT_EQ(digester.CopyDigest({}, dst, src, CopyTarget::kCold).status().code(),
                absl::StatusCode::kInvalidArgument);
      DigestStream stream = digester.Stream({});
      EXPECT_EQ(stream.CopyUpdate(dst, src).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(data == before);
      EXPECT_EQ(stream.Finish(), digester.Digest({}, {}));  // as if never called
    };
    refused(all, all);
    refused(all.first(1024), all.subspan(1023, 1024));
    refused(all.subspan(1, 1024), all.first(1024));
    refused(all.first(1024), all.subspan(2048, 1023));
    // Neighbours are fine, and so is nothing at all.
    EXPECT_TRUE(
        digester.CopyDigest({}, all.first(1024), all.subspan(1024, 1024), CopyTarget::kCold).ok());
    EXPECT_TRUE(digester.CopyDigest({}, {}, {}, CopyTarget::kCold).ok());
  }
}

TEST(CopyDigest, EqualsTheDigestOfTheLandedBytesInBothAlgorithms) {
  const std::string key(32, 'k');
  for (const Digester& digester :
       {Digester(), *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key))}) {
    for (size_t n : {0u, 4u, 100u, 208u, 224u, 228u, 16384u, 100000u}) {
      std::vector<float> src(n / 4, 1.5f);
      if (n == 100000u) src[20000] = std::numeric_limits<float>::infinity();
      std::vector<float> dst(n / 4);
      DigestSeed seed;
      seed.value.bytes.fill(static_cast<uint8_t>(n));
      const auto copied = digester.CopyDigest(seed, std::as_writable_bytes(std::span(dst)),
                                              AsBytes(src), CopyTarget::kCold);
      ASSERT_TRUE(copied.ok());
      EXPECT_EQ(dst, src);
      EXPECT_EQ(*copied, digester.Digest(seed, AsBytes(dst)));
      EXPECT_EQ(copied->finite, n != 100000u);
    }
  }
}

}  // namespace
}  // namespace baton
