#include "handoff/wire.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "handoff/testing/fake_node.h"

namespace baton {
namespace {

class WireTest : public ::testing::Test {
 protected:
  Ask SomeAsk(size_t n) const {
    Ask ask;
    ask.attempt = Attempt(7);
    ask.tokens = SomeTokens(n, 1);
    ask.expected = node_.IdentityOf(ask.tokens);
    ask.deadline_ms = 1234;
    ask.label = "request 12";
    return ask;
  }
  Offer SomeOffer() const {
    Offer offer;
    const ContentIdentity identity = node_.IdentityOf(SomeTokens(32, 1));
    offer.claim.attempt = Attempt(9);
    offer.claim.epoch = RandomBytes<Epoch>();
    offer.claim.seal = ReferenceSeal(node_.self(), identity);
    offer.claim.state_id = offer.claim.seal.state_id;
    offer.lease_ms = 30000;
    for (size_t g = 0; g < layout_.groups().size(); ++g)
      offer.claim.block_digests.push_back({RandomBytes<Digest128>(), RandomBytes<Digest128>()});
    for (const BundlePart& part : BundleParts(layout_, 32))
      offer.parts.push_back({part.key, {0, part.key.value * 64, part.bytes}});
    return offer;
  }

  Layout layout_ = SmallLayout();
  FakeNode node_{{&layout_, Sha256(), Digester(), kHandoffProtocolVersion, 4, 64, nullptr}};
};

TEST_F(WireTest, HelloRoundTrip) {
  const Hello hello = HelloOf(node_.self());
  const auto decoded = DecodeHello(EncodeHello(hello));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, hello);
  EXPECT_TRUE(MatchHello(hello, *decoded).ok());
}

TEST_F(WireTest, HelloOfALaterVersionIsReadAsFarAsItsVersion) {
  Hello hello;
  hello.protocol = kHandoffProtocolVersion + 1;
  Frame frame = EncodeHello(hello);
  frame.payload.resize(7);
  const auto decoded = DecodeHello(frame);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(ReasonOf(MatchHello(HelloOf(node_.self()), *decoded)), Reason::kProtocolVersion);
}

TEST_F(WireTest, KeysThatDifferAreNoticedAtHello) {
  LocalIdentity a = node_.self();
  LocalIdentity b = a;
  const std::vector<uint8_t> key_a(32, 1), key_b(32, 2);
  a.digester = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key_a));
  b.digester = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key_b));
  EXPECT_TRUE(MatchHello(HelloOf(a), HelloOf(a)).ok());
  EXPECT_EQ(ReasonOf(MatchHello(HelloOf(a), HelloOf(b))), Reason::kDigestAlgorithm);
}

TEST_F(WireTest, AskRoundTrip) {
  Ask ask = SomeAsk(48);
  auto decoded = DecodeAsk(EncodeAsk(ask));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, ask);
  ask.hint = PrefixHint{32, "tcp:127.0.0.1:9001"};
  decoded = DecodeAsk(EncodeAsk(ask));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, ask);
}

TEST_F(WireTest, AskOffTheGridOrWithAHintBeyondItIsMalformed) {
  for (const size_t n : {0, 1, 17, 47}) {
    const auto decoded = DecodeAsk(EncodeAsk(SomeAsk(n)));
    EXPECT_EQ(ReasonOf(decoded.status()), Reason::kMalformed) << n;
  }
  for (const uint64_t boundary : {uint64_t{0}, uint64_t{17}, uint64_t{48}, uint64_t{64}}) {
    Ask ask = SomeAsk(48);
    ask.hint = PrefixHint{boundary, "tcp:127.0.0.1:9001"};
    EXPECT_EQ(ReasonOf(DecodeAsk(EncodeAsk(ask)).status()), Reason::kMalformed) << boundary;
  }
}

TEST_F(WireTest, OfferRoundTrip) {
  const Offer offer = SomeOffer();
  const auto decoded = DecodeOffer(EncodeOffer(offer));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->claim.attempt, offer.claim.attempt);
  EXPECT_EQ(decoded->claim.epoch, offer.claim.epoch);
  EXPECT_EQ(decoded->claim.state_id, offer.claim.state_id);
  EXPECT_EQ(decoded->claim.seal, offer.claim.seal);
  EXPECT_EQ(decoded->claim.block_digests, offer.claim.block_digests);
  EXPECT_EQ(decoded->lease_ms, offer.lease_ms);
  EXPECT_EQ(decoded->parts, offer.parts);
}

// Every prefix and every single flipped bit of every record is refused or decodes, never more.
TEST_F(WireTest, TruncatedAndFlippedRecordsAreTotal) {
  for (const Frame& frame :
       {EncodeHello(HelloOf(node_.self())), EncodeAsk(SomeAsk(16)), EncodeOffer(SomeOffer())}) {
    const auto decode = [&](const Frame& f) -> Status {
      if (f.type == FrameType::kHello) return DecodeHello(f).status();
      if (f.type == FrameType::kAsk) return DecodeAsk(f).status();
      return DecodeOffer(f).status();
    };
    ASSERT_TRUE(decode(frame).ok());
    for (size_t n = 0; n < frame.payload.size(); ++n) {
      Frame cut = frame;
      cut.payload.resize(n);
      EXPECT_FALSE(decode(cut).ok()) << n;
    }
    for (size_t bit = 0; bit < 8 * frame.payload.size(); ++bit) {
      Frame flipped = frame;
      flipped.payload[bit / 8] ^= 1 << (bit % 8);
      const Status status = decode(flipped);
      if (frame.type == FrameType::kOffer) {
        EXPECT_EQ(ReasonOf(status), Reason::kMalformed) << bit;
      }
    }
    Frame longer = frame;
    longer.payload.push_back(0);
    EXPECT_FALSE(decode(longer).ok());
    longer.type = FrameType::kRelease;
    EXPECT_FALSE(decode(longer).ok());
  }
}

TEST_F(WireTest, PartKeysAreDistinctAndNamed) {
  const auto parts = BundleParts(layout_, 64);
  EXPECT_EQ(parts.size(), layout_.TotalBlocks(64) + layout_.StatePartCount());
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t j = i + 1; j < parts.size(); ++j) EXPECT_NE(parts[i].key, parts[j].key);
  EXPECT_EQ(PartKeyName(layout_, StatePartKey(1)), "l0.ssm");
  EXPECT_EQ(PartKeyName(layout_, BlockPartKey(1, 3)), "window[3]");
  EXPECT_EQ(PartKeyName(layout_, StatePartKey(99)), "part 0x63");
}

}  // namespace
}  // namespace baton
