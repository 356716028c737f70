// A disk that really is full, read-only or closed to us: a small file system of the kernel's,
// mounted for the test (which needs the right to mount; it says so and skips without).
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tier/testing/tier_fixture.h"

namespace baton {
namespace {

constexpr uid_t kNobody = 65534;

// File accesses of this thread are another user's while it lives.
class AsNobody {
 public:
  AsNobody() : before_(setfsuid(kNobody)) {}
  ~AsNobody() { setfsuid(static_cast<uid_t>(before_)); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  int before_;
};

class MountedDiskTest : public StoreTest {
 protected:
  void SetUp() override {
    tier_.reset();
    if (mount("none", directory_.path().c_str(), "tmpfs", 0, "size=256k,mode=0755") != 0)
      GTEST_SKIP() << "mounting a file system: " << std::strerror(errno);
    mounted_ = true;
    Open(64 << 20);
  }
  void TearDown() override {
    tier_.reset();
    if (mounted_) {
      EXPECT_EQ(umount2(directory_.path().c_str(), MNT_DETACH), 0) << std::strerror(errno);
    }
  }
  // The kernel refuses this while a store is open: it holds a file it may write to.
  void SetReadOnly() {
    ASSERT_EQ(mount("none", directory_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY,
                    "size=256k,mode=0755"),
              0)
        << std::strerror(errno);
  }
  // Puts that failed for whatever reason left nothing, and what was there is still served.
  void ExpectUnharmed(const SealedHistory& kept) {
    EXPECT_TRUE(directory_.Names(".tmp").empty());
    EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
    ExpectRestores(kept.tokens);
  }
  void ExpectRefusedAtStart(absl::StatusCode code, const char* text) {
    DiskStoreOptions options;
    options.directory = directory_.path();
    const Status status = OpenDiskStore(options).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(directory_.path()), absl::string_view::npos) << status;
  }

 private:
  bool mounted_ = false;
};
INSTANTIATE_TEST_SUITE_P(Stores,
                         MountedDiskTest,
                         ::testing::Values(StoreKind::kDisk),
                         StoreKindName);

TEST_P(MountedDiskTest, AFullDiskIsACountedRefusalUntilThereIsRoom) {
  const SealedHistory a(&node_, Prefix(32)), b(&node_, Prefix(528));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  directory_.Write("filler", std::string(512 << 10, 'x'));  // as much as goes
  const Status status = tier_->Put(b.Source());
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
  EXPECT_EQ(tier_->Stats().puts_no_room, 1u);
  ExpectUnharmed(a);
  EXPECT_FALSE(tier_->Contains(b.identity()));

  std::filesystem::remove(directory_.File("filler"));
  ASSERT_TRUE(tier_->Put(b.Source()).ok());
  ExpectRestores(b.tokens);
  ExpectRestores(a.tokens);
}

TEST_P(MountedDiskTest, ADiskTooSmallForOneBundleRefusesEachAndServesTheRest) {
  const SealedHistory a(&node_, Prefix(32));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  uint64_t refused = 0;
  for (size_t i = 0; i < 64; ++i) {
    const SealedHistory h(&node_, SomeTokens(528, 200 + i));
    const Status status = tier_->Put(h.Source());
    if (status.ok()) continue;
    EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity) << status;
    ++refused;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(tier_->Stats().puts_no_room, refused);
  ExpectUnharmed(a);
}

TEST_P(MountedDiskTest, RefusedAtStartWhereReadOnlyOrFull) {
  tier_.reset();
  directory_.Write("filler", std::string(512 << 10, 'x'));
  ExpectRefusedAtStart(absl::StatusCode::kResourceExhausted,
                       "free space or name another directory");
  std::filesystem::remove(directory_.File("filler"));
  SetReadOnly();
  ExpectRefusedAtStart(absl::StatusCode::kFailedPrecondition, "name a writable directory");
}

TEST_P(MountedDiskTest, RefusedAtStartWithoutPermission) {
  tier_.reset();
  const AsNobody nobody;
  ExpectRefusedAtStart(absl::StatusCode::kPermissionDenied, "must be able to write");
}

TEST_P(MountedDiskTest, APermissionTakenAwayIsACountedFailure) {
  const SealedHistory a(&node_, Prefix(32)), b(&node_, Prefix(64));
  ASSERT_TRUE(tier_->Put(a.Source()).ok());
  {
    const AsNobody nobody;
    const Status status = tier_->Put(b.Source());
    EXPECT_EQ(ReasonOf(status), Reason::kPeerUnavailable) << status;
    EXPECT_NE(status.message().find("Permission denied"), absl::string_view::npos) << status;
    EXPECT_EQ(tier_->Stats().puts_failed, 1u);
  }
  ExpectUnharmed(a);
  ASSERT_TRUE(tier_->Put(b.Source()).ok());
  ExpectRestores(b.tokens);
}

}  // namespace
}  // namespace baton
