// Fewer bits at rest: each number against its definition, and whole bundles over both stores.
#include "tier/rest_encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "handoff/checks_for_testing.h"
#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

StatePart PartOf(int64_t rows, int64_t width) {
  StatePart part{0, "ssm", ElementType::kF32, {rows, width}, "H,N"};
  part.bytes = static_cast<uint64_t>(rows * width) * 4;
  return part;
}

std::vector<float> Through(RestEncoding encoding, const StatePart& part, std::vector<float> in) {
  std::vector<std::byte> rest(EncodedBytes(encoding, part));
  EncodeRest(encoding, part, AsBytes(in), rest);
  std::vector<float> out(in.size());
  DecodeRest(encoding, part, rest, std::as_writable_bytes(std::span(out)));
  return out;
}

// Decoding all 65,536 codes and encoding them again changes none that is finite.
TEST(RestEncoding, HalvesKeepEveryOneOfTheirOwnValues) {
  for (const RestEncoding encoding : {RestEncoding::kBF16, RestEncoding::kF16}) {
    const StatePart part = PartOf(1, 1);
    for (uint32_t code = 0; code < 65536; ++code) {
      const auto half = static_cast<uint16_t>(code);
      float value;
      DecodeRest(encoding, part, std::as_bytes(std::span(&half, 1)),
                 std::as_writable_bytes(std::span(&value, 1)));
      if (!std::isfinite(value)) continue;
      uint16_t again;
      EncodeRest(encoding, part, std::as_bytes(std::span(&value, 1)),
                 std::as_writable_bytes(std::span(&again, 1)));
      ASSERT_EQ(again, half) << value;
    }
  }
}

// No code is nearer, over values of all magnitudes; halfway goes to the even code.
TEST(RestEncoding, HalvesRoundToTheNearest) {
  SplitMix64 rng(3);
  for (const RestEncoding encoding : {RestEncoding::kBF16, RestEncoding::kF16}) {
    const StatePart part = PartOf(1, 1);
    const auto decode = [&](uint16_t half) {
      float value;
      DecodeRest(encoding, part, std::as_bytes(std::span(&half, 1)),
                 std::as_writable_bytes(std::span(&value, 1)));
      return static_cast<double>(value);
    };
    for (int i = 0; i < 200000; ++i) {
      const auto value = static_cast<float>(
          std::ldexp(rng.Uniform() * 2 - 1, static_cast<int>(rng.Below(40)) - 28));
      uint16_t code;
      EncodeRest(encoding, part, std::as_bytes(std::span(&value, 1)),
                 std::as_writable_bytes(std::span(&code, 1)));
      const double error = std::fabs(decode(code) - value);
      for (const int step : {-1, 1}) {
        const double other = std::fabs(decode(static_cast<uint16_t>(code + step)) - value);
        ASSERT_FALSE(other < error) << value;
        if (other == error) {
          ASSERT_EQ(code % 2, 0) << value;
        }
      }
    }
  }
}

TEST(RestEncoding, NothingFiniteBecomesInfinite) {
  const float big = std::numeric_limits<float>::max();
  const StatePart part = PartOf(1, 4);
  for (const RestEncoding encoding : {RestEncoding::kBF16, RestEncoding::kF16, RestEncoding::kInt8})
    for (const float x : Through(encoding, part, {big, -big, 65520.0f, 0.0f}))
      EXPECT_TRUE(std::isfinite(x)) << RestEncodingName(encoding);
  EXPECT_EQ(Through(RestEncoding::kF16, part, {big, -big, 65519.0f, -0.0f}),
            (std::vector<float>{65504, -65504, 65504, -0.0f}));
}

TEST(RestEncoding, Int8IsWithinHalfAStepOfItsRow) {
  SplitMix64 rng(4);
  const StatePart part = PartOf(50, 37);
  std::vector<float> in(50 * 37);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(std::ldexp(rng.Uniform() * 2 - 1, static_cast<int>(i / 37) - 25));
  std::fill(in.begin(), in.begin() + 37, 0.0f);
  const auto out = Through(RestEncoding::kInt8, part, in);
  for (size_t r = 0; r < 50; ++r) {
    float largest = 0;
    for (size_t i = 0; i < 37; ++i) largest = std::max(largest, std::fabs(in[r * 37 + i]));
    for (size_t i = 0; i < 37; ++i)
      EXPECT_LE(std::fabs(out[r * 37 + i] - in[r * 37 + i]), largest / 127 * 0.501f);
  }
}

using RestEncodingTest = StoreTest;
INSTANTIATE_TEST_SUITE_P(Stores,
                         RestEncodingTest,
                         ::testing::Values(StoreKind::kHost, StoreKind::kDisk),
                         StoreKindName);

TEST_P(RestEncodingTest, BlocksExactStatesCloseAndSealedAnew) {
  Open(64 << 20);
  const SealedHistory h(&node_, Prefix(528));
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  const uint64_t plain = tier_->Stats().bytes;
  tier_->EvictTo(0);
  const auto reference = ReferenceBundle(node_, h.tokens);
  for (const auto& [encoding, bound] : {std::pair{RestEncoding::kBF16, 0.004},
                                        {RestEncoding::kF16, 0.0005},
                                        {RestEncoding::kInt8, 0.01}}) {
    encoding_ = encoding;
    Open(64 << 20);
    ASSERT_TRUE(tier_->Put(h.Source()).ok());
    EXPECT_LE(tier_->Stats().bytes, plain);
    EXPECT_GT(tier_->Stats().encoding_error_max, 0);
    EXPECT_LT(tier_->Stats().encoding_error_max, bound) << RestEncodingName(encoding);
    if (GetParam() == StoreKind::kDisk) {  // the object says how it rests, not the option
      encoding_ = encoding == RestEncoding::kF16 ? RestEncoding::kInt8 : RestEncoding::kF16;
      Open(64 << 20);
    }
    Landing landing(node_, h.tokens);
    landing.request.expected.state_id = h.bundle->seal.state_id;
    const auto restored = tier_->Restore(landing.request);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->encoding, encoding);
    EXPECT_EQ(restored->seal.parent, h.bundle->seal.state_id);
    EXPECT_NE(restored->seal.state_id, h.bundle->seal.state_id);
    EXPECT_EQ(restored->seal.identity, h.identity());
    EXPECT_EQ(restored->block_digests, h.bundle->block_digests);
    const auto parts = BundleParts(layout_, 528);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].is_state) {
        EXPECT_EQ(landing.bytes[i], reference[i]);
        continue;
      }
      EXPECT_NE(landing.bytes[i], reference[i]);
      EXPECT_EQ(
          restored->seal.state_digests[parts[i].part],
          Digester()
              .StateDigest(h.identity().Key(), layout_.parts()[parts[i].part], landing.bytes[i])
              .digest);
      for (size_t k = 0; k < parts[i].bytes / 4; ++k) {
        float want, got;
        std::memcpy(&want, reference[i].data() + 4 * k, 4);
        std::memcpy(&got, landing.bytes[i].data() + 4 * k, 4);
        EXPECT_NEAR(got, want, 0.005);
      }
    }
    tier_->EvictTo(0);
  }
}

// A worker that promises the same bits does not find what gave them up.
TEST_P(RestEncodingTest, WhoSaysSameDoesNotUseFewerBits) {
  if (GetParam() != StoreKind::kDisk) GTEST_SKIP() << "nothing outlives a host store";
  encoding_ = RestEncoding::kBF16;
  Open(64 << 20);
  const SealedHistory h(&node_, Prefix(64));
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  encoding_ = RestEncoding::kSame;
  Open(64 << 20);
  EXPECT_FALSE(tier_->Contains(h.identity()));
  EXPECT_EQ(tier_->Stats().found_other, 1u);
  ASSERT_TRUE(tier_->Put(h.Source()).ok());
  Landing landing(node_, h.tokens);
  const auto restored = tier_->Restore(landing.request);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->encoding, RestEncoding::kSame);
}

TEST_P(RestEncodingTest, F10ABitAtRestIsRefusedAndItsTwin) {
  const SealedHistory h(&node_, Prefix(64));
  for (const RestEncoding encoding :
       {RestEncoding::kBF16, RestEncoding::kF16, RestEncoding::kInt8}) {
    encoding_ = encoding;
    std::vector<std::vector<std::byte>> good;
    for (const bool off : {false, true}) {
      Open(64 << 20, nullptr, off ? ChecksForTesting::Without({Check::kStateDigest}) : Checks());
      ASSERT_TRUE(tier_->Put(h.Source()).ok());
      Landing before(node_, h.tokens);
      ASSERT_TRUE(tier_->Restore(before.request).ok());
      Forged forged = TakeApart(BundleName(h.tokens));
      forged.Part(StatePartKey(2)).back() ^= std::byte{1};
      PutBack(BundleName(h.tokens), forged);
      Landing landing(node_, h.tokens);
      const auto restored = tier_->Restore(landing.request);
      if (off) {
        EXPECT_TRUE(restored.ok()) << restored.status();
        EXPECT_NE(landing.bytes, before.bytes);
      } else {
        EXPECT_EQ(ReasonOf(restored.status()), Reason::kDigestMismatch);
        EXPECT_FALSE(tier_->Contains(h.identity()));
      }
      tier_->EvictTo(0);
    }
  }
}

TEST_P(RestEncodingTest, F18F29F30AtRestInFewerBits) {
  encoding_ = RestEncoding::kF16;
  const SealedHistory h(&node_, Prefix(64));
  const auto expect = [&](Reason reason, const std::function<void(Forged*)>& change) {
    Open(64 << 20);
    ASSERT_TRUE(tier_->Put(h.Source()).ok());
    Forged forged = TakeApart(BundleName(h.tokens));
    change(&forged);
    PutBack(BundleName(h.tokens), forged);
    Landing landing(node_, h.tokens);
    EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), reason);
    EXPECT_FALSE(tier_->Contains(h.identity()));
  };
  expect(Reason::kShortTransfer, [](Forged* f) { f->header.parts.back().bytes -= 64; });
  expect(Reason::kShortTransfer, [](Forged* f) {  // says it is bf16 in an f32's length
    f->header.parts.back().bytes *= 2;
    f->header.payload_bytes += f->header.parts.back().bytes / 2;
  });
  expect(Reason::kDigestMismatch, [](Forged* f) { f->header.encoding = RestEncoding::kBF16; });
  expect(Reason::kNonFinite, [&](Forged* f) {
    const MutableByteSpan part = f->Part(StatePartKey(1));
    part[1] = std::byte{0x7c};  // an infinity of f16
    part[0] = std::byte{0};
    const DigestSeed live = StateSeed(h.identity().Key(), layout_.parts()[1]);
    for (size_t i = 0; i < f->header.parts.size(); ++i)
      if (f->header.parts[i].key == StatePartKey(1))
        f->header.rest_digests[i] =
            Digester().Digest(RestSeed(RestEncoding::kF16, live), part).digest;
  });
}

}  // namespace
}  // namespace baton
