// The directory: what is refused at start, what is found again, what is left alone.
#include "tier/disk/disk_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

size_t OpenFiles() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

class DiskStoreTest : public StoreTest {
 protected:
  StatusOr<std::unique_ptr<ObjectStore>> OpenStore(DiskStoreOptions options = {},
                                                   DiskStoreInfo* info = nullptr) {
    options.directory = directory_.path();
    return OpenDiskStore(options, info);
  }
};
INSTANTIATE_TEST_SUITE_P(Stores, DiskStoreTest, ::testing::Values(StoreKind::kDisk), StoreKindName);

TEST_P(DiskStoreTest, ARestartFindsEverything) {
  for (const size_t n : {16, 272, 528})
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
  const TierStats before = tier_->Stats();
  Open(64 << 20);
  const TierStats after = tier_->Stats();
  EXPECT_EQ(after.bundles, 3u);
  EXPECT_EQ(after.found_bundles, 3u);
  EXPECT_EQ(after.found_segments, 2u);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.found_bad + after.found_foreign + after.found_other + after.found_incomplete, 0u);
  for (const size_t n : {16, 272, 528}) ExpectRestores(Prefix(n));
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
}

TEST_P(DiskStoreTest, EveryWayOfIoGivesTheSameBytes) {
  for (const bool uring : {false, true})
    for (const bool direct : {false, true}) {
      const SealedHistory h(&node_, SomeTokens(528, uring * 2 + direct + 100));
      tier_.reset();
      DiskStoreOptions options;
      options.use_uring = uring;
      options.use_direct = direct;
      options.fsync = direct ? FsyncPolicy::kFull : FsyncPolicy::kData;
      DiskStoreInfo info;
      auto store = *OpenStore(options, &info);
      if (!uring) {
        EXPECT_EQ(info.io, "pread/pwrite");
      }
      if (!direct) {
        EXPECT_FALSE(info.direct);
      }
      TierOptions tier;
      tier.model = node_.self().model;
      tier.layout = &layout_;
      tier.digester = &node_.self().digester;
      tier.device = &node_.device();
      tier.budget_bytes = 64 << 20;
      tier_ = *Tier::Open(tier, std::move(store));
      ASSERT_TRUE(tier_->Put(h.Source()).ok());
      ExpectRestores(h.tokens);
    }
}

// Objects longer than the window of read-ahead, and a part longer than half the write buffer.
TEST_P(DiskStoreTest, LargeObjects) {
  for (const auto& [parts, bytes] : {std::pair<size_t, uint64_t>{3, 5 << 20}, {40, 70000}}) {
    const Layout layout = BigLayout(parts, bytes);
    FakeNode node({&layout, Sha256(), Digester(), kHandoffProtocolVersion, 2, 64, nullptr});
    const SealedHistory h(&node, Prefix(272));
    tier_.reset();
    TierOptions options;
    options.model = node.self().model;
    options.layout = &layout;
    options.digester = &node.self().digester;
    options.device = &node.device();
    options.budget_bytes = 64 << 20;
    tier_ = *Tier::Open(options, *OpenStore());
    const Status put = tier_->Put(h.Source());
    ASSERT_TRUE(put.ok()) << put;
    Landing landing(node, h.tokens);
    const auto restored = tier_->Restore(landing.request);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_TRUE(landing.bytes == ReferenceBundle(node, h.tokens));
  }
}

TEST_P(DiskStoreTest, RefusedAtStartWithTheDirectoryAndTheRemedy) {
  const auto expect = [](const std::string& directory, absl::StatusCode code, const char* text) {
    DiskStoreOptions options;
    options.directory = directory;
    const Status status = OpenDiskStore(options).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(directory), absl::string_view::npos) << status;
  };
  expect(directory_.File("none"), absl::StatusCode::kNotFound, "create the directory");
  directory_.Write("file", "x");
  expect(directory_.File("file"), absl::StatusCode::kInvalidArgument, "name a directory");
  expect(directory_.path(), absl::StatusCode::kFailedPrecondition,
         "a directory of its own");  // this test's tier has it
}

TEST_P(DiskStoreTest, RefusedWithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  DiskStoreOptions options;
  options.directory = directory_.File("closed");
  ASSERT_EQ(mkdir(options.directory.c_str(), 0500), 0);
  const Status status = OpenDiskStore(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_NE(status.message().find("must be able to write"), absl::string_view::npos) << status;
}

TEST_P(DiskStoreTest, TheLockGoesWithItsHolder) {
  EXPECT_EQ(OpenStore().status().code(), absl::StatusCode::kFailedPrecondition);
  tier_.reset();
  EXPECT_TRUE(OpenStore().ok());
}

TEST_P(DiskStoreTest, LeftoversGoAndTheRestIsLeftAlone) {
  ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(272)).Source()).ok());
  const std::string good = BundleName(Prefix(272)).FileName();
  directory_.Write(good + ".tmp", "half");
  directory_.Write("mine.tmp", "not ours");
  directory_.Write("notes.txt", "not ours");
  directory_.Write(std::string(64, 'a') + ".bundle", "damaged");
  ASSERT_EQ(symlink("/etc/hostname", directory_.File(std::string(64, 'b') + ".bundle").c_str()), 0);
  ASSERT_EQ(mkdir(directory_.File(std::string(64, 'c') + ".bundle").c_str(), 0700), 0);
  Open(64 << 20);
  const TierStats stats = tier_->Stats();
  EXPECT_EQ(stats.found_bundles, 1u);
  EXPECT_EQ(stats.found_bad, 1u);
  EXPECT_EQ(stats.found_foreign, 4u);
  EXPECT_FALSE(std::filesystem::exists(directory_.File(good + ".tmp")));
  EXPECT_TRUE(std::filesystem::exists(directory_.File("mine.tmp")));
  EXPECT_TRUE(std::filesystem::exists(directory_.File("notes.txt")));
  EXPECT_TRUE(std::filesystem::exists(directory_.File(std::string(64, 'a') + ".bundle")));
  tier_->EvictTo(0);
  EXPECT_TRUE(std::filesystem::exists(directory_.File(std::string(64, 'a') + ".bundle")));
}

TEST_P(DiskStoreTest, RenamedTruncatedAndForeignModelsAtStart) {
  for (const size_t n : {32, 48, 64, 80})
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
  const auto file = [&](size_t n) { return directory_.File(BundleName(Prefix(n)).FileName()); };
  Forged other = TakeApart(BundleName(Prefix(64)));
  other.header.identity.model.bytes[0] ^= 1;
  other.header.seal.identity = other.header.identity;
  PutBack(other.header.Name(), other);
  auto newer = Load(BundleName(Prefix(80)));
  newer[4] = std::byte{2};
  Save(BundleName(Prefix(80)), newer);
  tier_.reset();
  std::filesystem::rename(file(32), directory_.File(std::string(64, 'e') + ".bundle"));
  std::filesystem::resize_file(file(48), std::filesystem::file_size(file(48)) - 1);
  Open(64 << 20);
  TierStats stats = tier_->Stats();
  EXPECT_EQ(stats.found_bundles, 1u);
  EXPECT_EQ(stats.found_bad, 2u);
  EXPECT_EQ(stats.found_other, 1u);
  EXPECT_EQ(stats.found_newer, 1u);
  EXPECT_EQ(stats.bundles, 1u);
  ExpectRestores(Prefix(64));
  // They count, and are the first to go; the bad ones are not ours to remove.
  const uint64_t one = std::filesystem::file_size(file(64));
  EXPECT_EQ(stats.bytes, 3 * one);
  tier_->EvictTo(one);
  EXPECT_TRUE(tier_->Contains(node_.IdentityOf(Prefix(64))));
  EXPECT_EQ(directory_.Names(".bundle").size(), 3u);
  // A bad one is replaced when its bundle is stored again.
  ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(48)).Source()).ok());
  ExpectRestores(Prefix(48));
}

TEST_P(DiskStoreTest, ABundleWithoutItsSegmentIsNotServedAndGoes) {
  ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(528)).Source()).ok());
  tier_.reset();
  std::filesystem::remove(directory_.File(SegmentName(Prefix(256)).FileName()));
  Open(64 << 20);
  EXPECT_EQ(tier_->Stats().bundles, 0u);
  EXPECT_EQ(tier_->Stats().found_incomplete, 2u);  // the bundle, and the other segment
  EXPECT_TRUE(directory_.Names(".bundle").empty());
  EXPECT_TRUE(directory_.Names(".segment").empty());
  EXPECT_EQ(tier_->Stats().bytes, 0u);
}

TEST_P(DiskStoreTest, ASmallerBudgetAtStartKeepsTheNewest) {
  for (const size_t n : {16, 32, 48})
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
  const auto file = [&](size_t n) { return directory_.File(BundleName(Prefix(n)).FileName()); };
  for (const size_t n : {16, 32, 48})  // the clock of a file system is coarse
    std::filesystem::last_write_time(
        file(n), std::filesystem::file_time_type::clock::now() - std::chrono::hours(100 - n));
  const uint64_t newest = std::filesystem::file_size(file(48));
  Open(newest);
  EXPECT_EQ(tier_->Stats().bundles, 1u);
  ExpectRestores(Prefix(48));
}

TEST_P(DiskStoreTest, FullDiskIsACountedRefusalAndServingGoesOn) {
  const SealedHistory a(&node_, Prefix(32)), b(&node_, Prefix(528));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8192, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = tier_->Put(b.Source());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
  EXPECT_EQ(tier_->Stats().puts_no_room, 1u);
  EXPECT_TRUE(directory_.Names(".tmp").empty());
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
  ExpectRestores(a.tokens);
  ASSERT_TRUE(tier_->Put(b.Source()).ok());
  ExpectRestores(b.tokens);
}

TEST_P(DiskStoreTest, ADirectoryThatVanishesIsACountedFailure) {
  const SealedHistory a(&node_, Prefix(32)), b(&node_, Prefix(64));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  std::filesystem::remove_all(directory_.path());
  EXPECT_EQ(ReasonOf(tier_->Put(b.Source())), Reason::kPeerUnavailable);
  EXPECT_EQ(tier_->Stats().puts_failed, 1u);
  Landing landing(node_, a.tokens);
  EXPECT_EQ(ReasonOf(tier_->Restore(landing.request).status()), Reason::kMissingPart);
  EXPECT_FALSE(tier_->Contains(a.identity()));
}

TEST_P(DiskStoreTest, OpenFilesAreBounded) {
  tier_.reset();
  const size_t before = OpenFiles();
  Open(64 << 20);
  for (const size_t n : {272, 528, 784}) {
    ASSERT_TRUE(tier_->Put(SealedHistory(&node_, Prefix(n)).Source()).ok());
    ExpectRestores(Prefix(n));
  }
  EXPECT_LE(OpenFiles(), before + 3);  // directory, lock, one ring
  tier_.reset();
  EXPECT_EQ(OpenFiles(), before);
}

}  // namespace
}  // namespace baton
