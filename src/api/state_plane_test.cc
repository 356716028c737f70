// Two planes in one process stand for two engines: what one seals the other gets whole and
// verified, or not at all.
#include "baton/state_plane.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton::plane {
namespace {

Options Engine(std::vector<std::string> listen) {
  Options o;
  o.model.fill(7);
  o.numerics.fill(1);
  o.parts = {{0, "conv", Element::kBF16, {3, 24}, "tap-oldest-first,channel"},
             {0, "ssm", Element::kF32, {2, 8, 4}, "H,N,P"}};
  o.groups = {{"full", {1, 2}, 2, 8, Element::kF32}};
  o.slots = 4;
  o.blocks = 16;
  o.listen = std::move(listen);
  return o;
}

std::unique_ptr<StatePlane> Make(const Options& options) {
  Status status;
  auto plane = StatePlane::Create(options, &status);
  EXPECT_TRUE(status) << status.message;
  return plane;
}

std::vector<uint32_t> Tokens(size_t n, uint32_t first = 100) {
  std::vector<uint32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// The made-up engine: every byte a function of the tokens and the place.
void Compute(const Lease& lease, std::span<const uint32_t> tokens) {
  const auto fill = [&](std::span<std::byte> bytes, uint32_t place) {
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>((tokens.back() * 31 + place * 7 + i) % 60);  // finite
  };
  fill(lease.part(0), 1);
  fill(lease.part(1), 2);
  for (size_t b = 0; b * kGrid < tokens.size(); ++b)
    fill(lease.block(0, b), 10 + static_cast<uint32_t>(b));
}

std::vector<std::byte> BytesOf(const Lease& lease, size_t blocks) {
  std::vector<std::byte> all;
  const auto add = [&](std::span<std::byte> bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  add(lease.part(0));
  add(lease.part(1));
  for (size_t b = 0; b < blocks; ++b) add(lease.block(0, b));
  return all;
}

struct Made {
  std::optional<Offer> offer;
  std::vector<std::byte> bytes;
};

Made MakeBundle(StatePlane& plane, std::span<const uint32_t> tokens, std::string_view tenant = "") {
  Made made;
  Status status;
  auto sequence = plane.Begin(tenant, &status);
  EXPECT_TRUE(status) << status.message;
  EXPECT_TRUE(sequence->Extend(tokens.size()));
  {
    auto lease = sequence->Pin(&status);
    EXPECT_TRUE(status) << status.message;
    Compute(*lease, tokens);
    made.bytes = BytesOf(*lease, tokens.size() / kGrid);
  }
  EXPECT_TRUE(sequence->Advance(tokens));
  made.offer = std::move(*sequence).MakeOffer(&status);
  EXPECT_TRUE(status) << status.message;
  return made;
}

class StatePlaneTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::string Listen() const {
    return GetParam() == "shm" ? "shm:@baton-api-test-" + std::to_string(getpid())
                               : "tcp:127.0.0.1:0";
  }
};

TEST_P(StatePlaneTest, ABundleArrivesWholeAndIsLive) {
  const auto prefill = Make(Engine({Listen()}));
  const auto decode = Make(Engine({}));
  const auto tokens = Tokens(48);
  const Made made = MakeBundle(*prefill, tokens);
  ASSERT_TRUE(made.offer.has_value());
  EXPECT_TRUE(made.offer->Verify());
  EXPECT_EQ(made.offer->boundary(), 48u);
  EXPECT_FALSE(made.offer->WaitReleased(std::chrono::milliseconds(1)));

  Status status;
  auto pulled =
      decode->Pull({prefill->endpoints()[0], "", std::chrono::seconds(5)}, tokens, &status);
  ASSERT_TRUE(status) << status.reason << " " << status.message;
  EXPECT_TRUE(made.offer->WaitReleased(std::chrono::seconds(5)));
  EXPECT_EQ(pulled->boundary(), 48u);
  {
    auto lease = pulled->Pin(&status);
    ASSERT_TRUE(status) << status.message;
    EXPECT_TRUE(BytesOf(*lease, 3) == made.bytes);
  }
  // It goes on from there, and is offered again at a later boundary.
  EXPECT_FALSE(pulled->Advance(Tokens(16, 148)));  // no blocks yet
  EXPECT_TRUE(pulled->Extend(64));
  EXPECT_TRUE(pulled->Advance(Tokens(16, 148)));
  EXPECT_TRUE(std::move(*pulled).MakeOffer(&status).has_value()) << status.message;
}

// A window of 20 tokens: at 48 the next token sees 29 to 48, blocks 1 and 2 of the three.
TEST_P(StatePlaneTest, AWindowHandsOverWhatANextTokenCanSee) {
  const auto windowed = [](std::vector<std::string> listen) {
    Options o = Engine(std::move(listen));
    o.groups.push_back({"window", {3}, 1, 8, Element::kF32, 20});
    o.blocks = 4;
    return o;
  };
  const auto prefill = Make(windowed({Listen()}));
  const auto decode = Make(windowed({}));
  const auto tokens = Tokens(48);
  Status status;
  const auto fill = [](std::span<std::byte> bytes, uint8_t value) {
    std::memset(bytes.data(), value, bytes.size());
  };
  auto sequence = prefill->Begin("", &status);
  ASSERT_TRUE(sequence->Extend(48));
  for (size_t step = 0; step < 3; ++step) {
    auto lease = sequence->Pin(&status);
    fill(lease->part(0), 1);
    fill(lease->part(1), 2);
    fill(lease->block(0, step), static_cast<uint8_t>(10 + step));
    fill(lease->block(1, step), static_cast<uint8_t>(20 + step));
    ASSERT_TRUE(sequence->Advance(std::span(tokens).subspan(step * 16, 16)));
  }
  {
    const auto lease = sequence->Pin(&status);
    EXPECT_FALSE(lease->block(0, 0).empty());
    EXPECT_TRUE(lease->block(1, 0).empty());
    EXPECT_FALSE(lease->block(1, 1).empty());
  }
  auto offer = std::move(*sequence).MakeOffer(&status);
  ASSERT_TRUE(offer.has_value()) << status.message;
  EXPECT_TRUE(offer->Verify());

  auto pulled = decode->Pull({prefill->endpoints()[0]}, tokens, &status);
  ASSERT_TRUE(pulled.has_value()) << status.message;
  {
    const auto lease = pulled->Pin(&status);
    EXPECT_TRUE(lease->block(1, 0).empty());
    EXPECT_TRUE(lease->block(1, 3).empty());
    for (const size_t b : {1, 2})
      for (const std::byte byte : lease->block(1, b))
        ASSERT_EQ(byte, static_cast<std::byte>(20 + b)) << b;
    for (const size_t b : {0, 1, 2})
      for (const std::byte byte : lease->block(0, b))
        ASSERT_EQ(byte, static_cast<std::byte>(10 + b)) << b;
  }
  // It goes on, and what it leaves behind is there for others.
  ASSERT_TRUE(pulled->Extend(64));
  ASSERT_TRUE(pulled->Advance(Tokens(16, 500)));
  const auto lease = pulled->Pin(&status);
  EXPECT_TRUE(lease->block(1, 1).empty());
  EXPECT_FALSE(lease->block(1, 2).empty());
  EXPECT_FALSE(lease->block(1, 3).empty());
}

TEST_P(StatePlaneTest, WhatIsNotThatBundleIsATypedError) {
  const auto prefill = Make(Engine({Listen()}));
  const std::string endpoint = prefill->endpoints()[0];
  const auto tokens = Tokens(48);
  const Made made = MakeBundle(*prefill, tokens, "tenant a");
  const auto pull = [&](const Options& options, std::span<const uint32_t> ids, const char* tenant) {
    const auto decode = Make(options);
    Status status;
    EXPECT_FALSE(
        decode->Pull({endpoint, tenant, std::chrono::seconds(5)}, ids, &status).has_value());
    EXPECT_FALSE(status.message.empty());
    return status.reason;
  };
  Options other = Engine({});
  other.model[3] ^= 1;
  EXPECT_EQ(pull(other, tokens, "tenant a"), "model_mismatch");
  other = Engine({});
  other.parts[1].axes = "H,P,N";
  EXPECT_EQ(pull(other, tokens, "tenant a"), "layout_mismatch");
  other = Engine({});
  other.digest_key.assign(32, 5);
  EXPECT_EQ(pull(other, tokens, "tenant a"), "digest_algorithm");
  EXPECT_EQ(pull(Engine({}), tokens, "tenant b"), "peer_error");
  EXPECT_EQ(pull(Engine({}), Tokens(48, 101), "tenant a"), "peer_error");
  EXPECT_EQ(pull(Engine({}), Tokens(40), "tenant a"), "");
  // None of it took memory for good: a right one still arrives.
  const auto decode = Make(Engine({}));
  Status status;
  EXPECT_TRUE(decode->Pull({endpoint, "tenant a", std::chrono::seconds(5)}, tokens, &status))
      << status.message;
}

TEST_P(StatePlaneTest, AnAskCanBeAnsweredByComputing) {
  std::mutex mu;
  std::vector<Made> made;
  std::unique_ptr<StatePlane> prefill;
  Options options = Engine({Listen()});
  options.tenants = {"a"};
  options.on_ask = [&](std::string_view tenant, std::span<const uint32_t> tokens) {
    const std::lock_guard lock(mu);
    made.push_back(MakeBundle(*prefill, tokens, tenant));
  };
  prefill = Make(options);
  const auto decode = Make(Engine({}));
  const std::string endpoint = prefill->endpoints()[0];
  Status status;
  const auto tokens = Tokens(32);
  const auto pull = [&](const char* tenant) {
    return decode->Pull({endpoint, tenant, std::chrono::seconds(5)}, tokens, &status);
  };
  auto pulled = pull("a");
  ASSERT_TRUE(status) << status.message;
  auto lease = pulled->Pin(&status);
  EXPECT_TRUE(BytesOf(*lease, 2) == made[0].bytes);
  EXPECT_FALSE(pull("nobody knows").has_value());
  EXPECT_EQ(made.size(), 1u);
  EXPECT_TRUE(pull("").has_value()) << status.message;
  EXPECT_EQ(made.size(), 2u);
  prefill->Stop();
  made.clear();
  EXPECT_FALSE(pull("a").has_value());
  EXPECT_EQ(made.size(), 0u);
}

TEST_P(StatePlaneTest, TwoOffersOfTheSameTokensStandSideBySide) {
  const auto prefill = Make(Engine({Listen()}));
  const auto decode = Make(Engine({}));
  const auto tokens = Tokens(16);
  const Made first = MakeBundle(*prefill, tokens);
  { const Made second = MakeBundle(*prefill, tokens); }
  Status status;
  EXPECT_TRUE(decode->Pull({prefill->endpoints()[0], "", std::chrono::seconds(5)}, tokens, &status))
      << status.message;
  EXPECT_TRUE(first.offer->WaitReleased(std::chrono::milliseconds::max()));
}

TEST_P(StatePlaneTest, MemoryOfTheEngine) {
  Options options = Engine({Listen()});
  Status status;
  const size_t bytes = StatePlane::MemoryBytes(options, &status);
  ASSERT_TRUE(status) << status.message;
  const int fd = memfd_create("engine", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  options.memory = memory;
  options.memory_bytes = bytes - 1;
  options.memory_fd = fd;
  EXPECT_EQ(StatePlane::Create(options, &status), nullptr);
  EXPECT_NE(status.message.find("are needed"), std::string::npos) << status.message;
  options.memory_bytes = bytes;
  {
    const auto prefill = Make(options);
    const auto tokens = Tokens(16);
    const Made made = MakeBundle(*prefill, tokens);
    const auto decode = Make(Engine({}));
    EXPECT_TRUE(
        decode->Pull({prefill->endpoints()[0], "", std::chrono::seconds(5)}, tokens, &status))
        << status.message;
  }
  munmap(memory, bytes);
  close(fd);
}

INSTANTIATE_TEST_SUITE_P(All, StatePlaneTest, ::testing::Values("shm", "tcp"));

TEST(StatePlane, OffersAreOnTheGridOnlyAndOfWholeSteps) {
  const auto plane = Make(Engine({}));
  Status status;
  auto sequence = plane->Begin("", &status);
  EXPECT_TRUE(sequence->Extend(10));
  EXPECT_TRUE(sequence->Advance(Tokens(10)));
  EXPECT_FALSE(std::move(*sequence).MakeOffer(&status).has_value());
  EXPECT_NE(status.message.find("multiples of 16"), std::string::npos);
  sequence = plane->Begin("", &status);
  EXPECT_TRUE(sequence->Extend(16));
  EXPECT_TRUE(sequence->Advance(Tokens(16)));
  sequence->Invalidate();
  EXPECT_FALSE(std::move(*sequence).MakeOffer(&status).has_value());
  EXPECT_EQ(status.reason, "identity_mismatch");
}

TEST(StatePlane, MemoryIsBoundedAndComesBack) {
  const auto plane = Make(Engine({}));
  Status status;
  for (int round = 0; round < 3; ++round) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 4; ++i) sequences.push_back(*plane->Begin("", &status));
    EXPECT_FALSE(plane->Begin("", &status).has_value());
    EXPECT_EQ(status.reason, "no_capacity");
    EXPECT_EQ(sequences[0].Extend(17 * 16).reason, "no_capacity");  // and takes nothing
    EXPECT_TRUE(sequences[0].Extend(16 * 16));
    EXPECT_EQ(sequences[1].Extend(16).reason, "no_capacity");
  }
}

TEST(StatePlane, SpansOutsideTheLayoutAreEmpty) {
  const auto plane = Make(Engine({}));
  Status status;
  auto sequence = plane->Begin("", &status);
  auto lease = sequence->Pin(&status);
  EXPECT_EQ(lease->part(0).size(), 3u * 24 * 2);
  EXPECT_TRUE(lease->part(2).empty());
  EXPECT_TRUE(lease->block(0, 0).empty());
  EXPECT_TRUE(lease->block(1, 0).empty());
}

TEST(StatePlane, WrongOptionsAreNamed) {
  Status status;
  EXPECT_EQ(StatePlane::Create(Options(), &status), nullptr);
  EXPECT_NE(status.message.find("neither state parts nor KV groups"), std::string::npos);
  Options options = Engine({"bad endpoint"});
  EXPECT_EQ(StatePlane::Create(options, &status), nullptr);
  EXPECT_NE(status.message.find("bad endpoint"), std::string::npos);
  options = Engine({});
  options.slots = 0;
  EXPECT_EQ(StatePlane::Create(options, &status), nullptr);
  options = Engine({});
  options.parts[0].shape = {0};
  EXPECT_EQ(StatePlane::Create(options, &status), nullptr);
}

}  // namespace
}  // namespace baton::plane
