#include "identity/digest.h"

#include <sodium.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/rng.h"
#include "base/sha256.h"
#include "gtest/gtest.h"
#include "identity/element_f8.h"
#include "identity/model_fingerprint.h"

namespace baton {
namespace {

std::vector<float> Floats(size_t n, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(rng.Uniform() * 8 - 4);
  return v;
}

Sha256 Key(uint8_t i) {
  Sha256 k;
  k.bytes.fill(i);
  return k;
}

StatePart Part(uint32_t layer, std::string component) {
  StatePart p;
  p.layer = layer;
  p.component = std::move(component);
  return p;
}

std::vector<uint8_t> Cat(std::initializer_list<ByteSpan> spans) {
  ByteWriter w;
  for (ByteSpan s : spans) w.PutRaw(s);
  return w.Take();
}

// docs/format/seal.md, written the obvious way, with xxhash's own one-shot call.
TEST(Digest, StateDigestEqualsTheDocumentedFormula) {
  const auto data = Floats(10000, 1);
  const uint32_t layer = 5;
  const uint32_t length = 3;
  const auto seed_input = Cat({AsBytes(std::string("baton.state-part\0", 17)),
                               AsBytes(Key(9).bytes), std::as_bytes(std::span(&layer, 1)),
                               std::as_bytes(std::span(&length, 1)), AsBytes(std::string("ssm"))});
  const Sha256 seed = Sha256Of(AsBytes(seed_input));
  for (size_t n : {size_t{0}, size_t{1}, size_t{50}, size_t{61}, size_t{4096}, size_t{10000}}) {
    const ByteSpan bytes = AsBytes(data).first(4 * n);
    const auto input = Cat({AsBytes(seed.bytes), bytes});
    XXH128_canonical_t expected;
    XXH128_canonicalFromHash(&expected, XXH3_128bits(input.data(), input.size()));
    const PartDigest d = Digester().StateDigest(Key(9), Part(5, "ssm"), bytes);
    EXPECT_EQ(0, std::memcmp(d.digest.bytes.data(), expected.digest, 16)) << n;
    EXPECT_TRUE(d.finite);
  }
}

TEST(Digest, KeyedBlake2bEqualsLibsodium) {
  const std::string key = "0123456789abcdef0123456789abcdef";
  const StatusOr<Digester> digester = Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key));
  ASSERT_TRUE(digester.ok());
  const auto data = Floats(9000, 2);
  KvGroup group;
  const DigestSeed seed = BlockSeed(Key(1), 3, group);
  const auto input = Cat({AsBytes(seed.value.bytes), AsBytes(data)});
  uint8_t expected[16];
  crypto_generichash_blake2b(expected, 16, input.data(), input.size(),
                             reinterpret_cast<const uint8_t*>(key.data()), key.size());
  const PartDigest d = digester->BlockDigest(Key(1), 3, group, AsBytes(data));
  EXPECT_EQ(0, std::memcmp(d.digest.bytes.data(), expected, 16));
  const std::string other_key = "0123456789abcdef0123456789abcdeF";
  const auto other = Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(other_key));
  EXPECT_NE(other->BlockDigest(Key(1), 3, group, AsBytes(data)).digest, d.digest);
}

// F01, F06, F11, F14: an intact payload under another identity fails like a damaged one.
TEST(Digest, TheSameBytesUnderAnotherIdentityHaveAnotherDigest) {
  const auto data = Floats(1000, 3);
  const Digester digester;
  const Digest128 d = digester.StateDigest(Key(1), Part(3, "ssm"), AsBytes(data)).digest;
  EXPECT_NE(digester.StateDigest(Key(2), Part(3, "ssm"), AsBytes(data)).digest, d);
  EXPECT_NE(digester.StateDigest(Key(1), Part(4, "ssm"), AsBytes(data)).digest, d);
  EXPECT_NE(digester.StateDigest(Key(1), Part(3, "conv"), AsBytes(data)).digest, d);
  KvGroup g;
  const Digest128 b = digester.BlockDigest(Key(1), 0, g, AsBytes(data)).digest;
  EXPECT_NE(b, d);
  EXPECT_NE(digester.BlockDigest(Key(1), 1, g, AsBytes(data)).digest, b);
  EXPECT_NE(digester.BlockDigest(Key(2), 0, g, AsBytes(data)).digest, b);
}

// F10: one bit, one cache line, one page, anywhere; F07: zeros; F09: a torn tail.
TEST(Digest, DamageChangesTheDigest) {
  auto data = Floats(16384, 4);
  const Digester digester;
  const Digest128 good = digester.StateDigest(Key(1), Part(0, "ssm"), AsBytes(data)).digest;
  auto* bytes = reinterpret_cast<uint8_t*>(data.data());
  const size_t n = data.size() * 4;
  SplitMix64 rng(5);
  for (int round = 0; round < 2000; ++round) {
    const size_t bit = rng.Below(8 * n);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_NE(digester.StateDigest(Key(1), Part(0, "ssm"), AsBytes(data)).digest, good);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  for (size_t length : {size_t{64}, size_t{4096}, n / 2, n}) {
    auto zeroed = data;
    std::memset(reinterpret_cast<uint8_t*>(zeroed.data()) + n - length, 0, length);
    EXPECT_NE(digester.StateDigest(Key(1), Part(0, "ssm"), AsBytes(zeroed)).digest, good);
  }
}

TEST(Digest, SplitAndCopyDoNotMatter) {
  const auto data = Floats(50000, 6);
  const DigestSeed seed = StateSeed(Key(1), Part(0, "ssm"));
  SplitMix64 rng(7);
  const std::string key(32, 'k');
  for (const Digester& digester :
       {Digester(), *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key))}) {
    const PartDigest whole = digester.Digest(seed, AsBytes(data));
    for (int round = 0; round < 20; ++round) {
      std::vector<std::byte> dst(data.size() * 4);
      DigestStream updates = digester.Stream(seed);
      DigestStream copies = digester.Stream(seed);
      for (size_t i = 0; i < dst.size();) {
        const size_t n = std::min<size_t>(rng.Below(30000), dst.size() - i);  // cuts elements
        updates.Update(AsBytes(data).subspan(i, n));
        ASSERT_TRUE(
            copies.CopyUpdate(std::span(dst).subspan(i, n), AsBytes(data).subspan(i, n)).ok());
        i += n;
      }
      ASSERT_EQ(updates.Finish(), whole);
      ASSERT_EQ(copies.Finish(), whole);
      ASSERT_EQ(0, std::memcmp(dst.data(), data.data(), dst.size()));
    }
  }
}

TEST(Digest, BlockRootBindsOrderNumberAndEveryDigest) {
  const Digester digester;
  std::vector<Digest128> digests(5);
  for (size_t i = 0; i < 5; ++i) digests[i].bytes[0] = static_cast<uint8_t>(i + 1);
  const Digest128 root = digester.BlockRoot(digests);
  EXPECT_NE(digester.BlockRoot(std::span(digests).first(4)), root);
  auto swapped = digests;
  std::swap(swapped[1], swapped[3]);
  EXPECT_NE(digester.BlockRoot(swapped), root);
  EXPECT_FALSE(digester.BlockRoot({}).is_zero());
  const uint64_t count = 5;
  const auto tag =
      Cat({AsBytes(std::string("baton.block-root\0", 17)), std::as_bytes(std::span(&count, 1))});
  const auto input =
      Cat({AsBytes(Sha256Of(AsBytes(tag)).bytes), std::as_bytes(std::span(digests))});
  XXH128_canonical_t expected;
  XXH128_canonicalFromHash(&expected, XXH3_128bits(input.data(), input.size()));
  EXPECT_EQ(0, std::memcmp(root.bytes.data(), expected.digest, 16));
}

// F29, against std::isfinite on the widened value, at every place within a vector.
TEST(Finite, FindsEveryNonFiniteF32AtEveryPosition) {
  const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffffffff};
  const uint32_t good[] = {0, 0x80000000, 1, 0x7f7fffff, 0xff7fffff, 0x00800000, 0x3f800000};
  for (size_t n = 1; n < 140; ++n) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<uint32_t> v(n);
      for (size_t i = 0; i < n; ++i) v[i] = good[(i + at) % std::size(good)];
      ASSERT_TRUE(AllFinite(ElementType::kF32, AsBytes(v)));
      v[at] = bad[(n + at) % std::size(bad)];
      ASSERT_FALSE(AllFinite(ElementType::kF32, AsBytes(v))) << n << " " << at;
    }
  }
}

TEST(Finite, HalfTypesAgreeWithTheirDefinitionOnAllPatterns) {
  for (uint32_t x = 0; x < 65536; ++x) {
    std::vector<uint16_t> v(40, 0x3c00);
    v[x % 40] = static_cast<uint16_t>(x);
    ASSERT_EQ(AllFinite(ElementType::kF16, AsBytes(v)), ((x >> 10) & 31) != 31) << x;
    ASSERT_EQ(AllFinite(ElementType::kBF16, AsBytes(v)), ((x >> 7) & 255) != 255) << x;
  }
}

TEST(Finite, BytesAgreeWithTheirDefinitionOnAllPatterns) {
  for (uint32_t x = 0; x < 256; ++x) {
    for (size_t at = 0; at < 21; ++at) {
      std::vector<uint8_t> v(21, 0x7e);
      v[at] = static_cast<uint8_t>(x);
      ASSERT_EQ(AllFinite(kElementF8E4M3, AsBytes(v)), (x & 0x7f) != 0x7f) << x;
    }
  }
}

TEST(Finite, IsReportedByTheDigestInOnePass) {
  for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{99999}}) {
    auto data = Floats(100000, 8);
    data[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(Digester().StateDigest(Key(1), Part(0, "ssm"), AsBytes(data)).finite);
    DigestStream stream = Digester().Stream(StateSeed(Key(1), Part(0, "ssm")));
    for (size_t i = 0; i < data.size() * 4; i += 7)  // the NaN is cut in two
      stream.Update(AsBytes(data).subspan(i, std::min<size_t>(7, data.size() * 4 - i)));
    EXPECT_FALSE(stream.Finish().finite);
  }
  const std::vector<uint8_t> odd(7);
  EXPECT_FALSE(Digester().StateDigest(Key(1), Part(0, "ssm"), AsBytes(odd)).finite);
}

// F28: there is no way to ask for no digest.
TEST(Digester, NoneIsNotAnAlgorithm) {
  for (std::string_view name : {"none", "", "off", "XXH3-128", "xxh3"})
    EXPECT_EQ(ReasonOf(ParseDigestAlgorithm(name).status()), Reason::kDigestAlgorithm) << name;
  EXPECT_EQ(*ParseDigestAlgorithm("xxh3-128"), DigestAlgorithm::kXxh3_128);
  EXPECT_EQ(*ParseDigestAlgorithm("blake2b"), DigestAlgorithm::kBlake2b);
  const std::string key(32, 'k');
  EXPECT_FALSE(Digester::Create(static_cast<DigestAlgorithm>(0), AsBytes(key)).ok());
  EXPECT_FALSE(Digester::Create(DigestAlgorithm::kXxh3_128, AsBytes(key)).ok());
  EXPECT_FALSE(Digester::Create(DigestAlgorithm::kBlake2b, {}).ok());
  EXPECT_FALSE(Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(std::string(65, 'k'))).ok());
}

// F14: weights, config, adapter.
TEST(ModelFingerprint, EveryInputChangesItAndOrderAndThreadsDoNot) {
  const auto a = Floats(3'000'000, 9);  // several pieces
  const auto b = Floats(100, 10);
  std::vector<TensorView> tensors = {{"w.a", "F32", {3000, 1000}, AsBytes(a)},
                                     {"w.b", "F32", {100}, AsBytes(b)},
                                     {"w.empty", "F32", {0}, {}}};
  const Sha256 base = *FingerprintModel(tensors, "{}", "", nullptr);
  ThreadPool pool(2);
  EXPECT_EQ(*FingerprintModel(tensors, "{}", "", &pool), base);
  auto reordered = tensors;
  std::swap(reordered[0], reordered[1]);
  EXPECT_EQ(*FingerprintModel(reordered, "{}", "", &pool), base);
  EXPECT_NE(*FingerprintModel(tensors, "{\"eps\":1}", "", nullptr), base);
  EXPECT_NE(*FingerprintModel(tensors, "{}", "lora", nullptr), base);
  const auto changed = [&](auto change) {
    auto other = tensors;
    change(&other);
    EXPECT_NE(*FingerprintModel(other, "{}", "", nullptr), base);
  };
  changed([](auto* t) { (*t)[1].name = "w.c"; });
  changed([](auto* t) { (*t)[1].dtype = "I32"; });
  changed([](auto* t) { (*t)[0].shape = {1000, 3000}; });
  changed([](auto* t) { t->pop_back(); });
  auto flipped = a;
  flipped[2'999'999] += 1;
  changed([&](auto* t) { (*t)[0].bytes = AsBytes(flipped); });
  tensors[1].name = "w.a";
  EXPECT_FALSE(FingerprintModel(tensors, "{}", "", nullptr).ok());
}

}  // namespace
}  // namespace baton
