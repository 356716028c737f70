// What happens while bytes are being copied, and when a copy goes wrong.
#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "memory/pool_test_util.h"

namespace baton {
namespace {

// Flips one bit of what it copies while `broken` is set.
class BrokenDevice final : public Device {
 public:
  void Copy(MutableByteSpan dst, ByteSpan src) const override {
    host_.Copy(dst, src);
    if (broken) dst[dst.size() / 2] ^= std::byte{1};
  }
  void Fill(MutableByteSpan dst, std::byte value) const override { host_.Fill(dst, value); }
  PartDigest Digest(const Digester& d, const DigestSeed& seed, ByteSpan bytes) const override {
    return host_.Digest(d, seed, bytes);
  }
  bool broken = true;

 private:
  HostDevice host_;
};

// Stops inside Copy until told to go on.
class StoppingDevice final : public Device {
 public:
  void Copy(MutableByteSpan dst, ByteSpan src) const override {
    MutexLock lock(&mu_);
    ++inside_;
    cv_.NotifyAll();
    while (!open_) cv_.Wait(&mu_);
    host_.Copy(dst, src);
  }
  void Fill(MutableByteSpan dst, std::byte value) const override { host_.Fill(dst, value); }
  PartDigest Digest(const Digester& d, const DigestSeed& seed, ByteSpan bytes) const override {
    return host_.Digest(d, seed, bytes);
  }
  void AwaitInside() {
    MutexLock lock(&mu_);
    while (inside_ == 0) cv_.Wait(&mu_);
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    cv_.NotifyAll();
  }

 private:
  mutable Mutex mu_;
  mutable CondVar cv_;
  mutable int inside_ BATON_GUARDED_BY(mu_) = 0;
  mutable bool open_ BATON_GUARDED_BY(mu_) = false;
  HostDevice host_;
};

template <class D>
PoolOptions With(const D* device) {
  PoolOptions options;
  options.device = device;
  return options;
}

TEST(PoolMove, ABrokenCopyIsAnErrorAndTheTableDoesNotFlip) {
  BrokenDevice device;
  TestPool<SlotKind> p(4, With(&device));
  const SlotHandle h = p.Sealed(1);
  const uint64_t before = p.OffsetOf(h);
  EXPECT_EQ(ReasonOf(p->Move(h)), Reason::kDigestMismatch);
  EXPECT_EQ(p.OffsetOf(h), before);
  EXPECT_TRUE(p.Holds(h, 1));
  EXPECT_EQ(p->Stats().moves, 0u);
  EXPECT_EQ(p->Stats().free, 3u);
  EXPECT_TRUE(p->CheckInvariants().ok());
  device.broken = false;
  EXPECT_TRUE(p->Move(h).ok());
  EXPECT_TRUE(p.Holds(h, 1));
}

TEST(PoolMove, ABrokenForkCanNeitherGoLiveNorBeSealed) {
  BrokenDevice device;
  TestPool<SlotKind> p(4, With(&device));
  const SlotHandle source = p.Sealed(1);
  const SlotHandle fork = Must(p->Reserve({}));  // zero-filled, but the copy spoils that
  EXPECT_EQ(ReasonOf(p->CopyInto(source, fork)), Reason::kDigestMismatch);
  EXPECT_FALSE(p->Activate(fork).ok());
  EXPECT_FALSE(p->Seal(fork).ok());
  EXPECT_TRUE(p->Free(fork).ok());
  EXPECT_TRUE(p->Free(source).ok());
  EXPECT_EQ(p->Stats().free, 4u);
}

TEST(PoolMoveI3, ALeaseAskedForDuringAMoveWaitsAndSeesTheNewPlace) {
  StoppingDevice device;
  TestPool<SlotKind> p(2, With(&device));
  const SlotHandle h = p.Live(1);
  const uint64_t before = p.OffsetOf(h);
  Status moved;
  std::thread mover([&] { moved = p->Move(h); });
  device.AwaitInside();
  std::atomic<bool> leased = false;
  uint64_t seen = before;
  std::thread reader([&] {
    const StateLease lease = Must(p->Acquire(h, LeaseFor::kCompute));
    leased = true;
    seen = lease.arena_offset();
    EXPECT_TRUE(HasPattern(lease.bytes(), 1));
  });
  EXPECT_TRUE(p->CheckInvariants().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a lease that did not wait is seen
  EXPECT_FALSE(leased);
  device.Open();
  mover.join();
  reader.join();
  EXPECT_TRUE(moved.ok()) << moved;
  EXPECT_NE(seen, before);
}

TEST(PoolMove, AStepThatAsksForTheSourceOfACopyWaitsForIt) {
  StoppingDevice device;
  TestPool<SlotKind> p(2, With(&device));
  const SlotHandle source = p.Live(1);
  const SlotHandle checkpoint = Must(p->Reserve({}));
  Status copied;
  std::thread copier([&] { copied = p->CopyInto(source, checkpoint); });
  device.AwaitInside();
  std::atomic<bool> leased = false;
  std::thread step([&] {
    const StateLease lease = Must(p->Acquire(source, LeaseFor::kCompute));
    leased = true;
    WritePattern(lease.bytes(), 2);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a step that did not wait is seen
  EXPECT_FALSE(leased);
  device.Open();
  copier.join();
  step.join();
  EXPECT_TRUE(copied.ok()) << copied;
  EXPECT_TRUE(p->Seal(checkpoint).ok());
  EXPECT_TRUE(p.Holds(checkpoint, 1));
  EXPECT_TRUE(p.Holds(source, 2));
}

TEST(PoolMove, OtherUnitsAreNotHeldUpByAMove) {
  StoppingDevice device;
  TestPool<SlotKind> p(4, With(&device));
  const SlotHandle h = p.Live(1);
  const SlotHandle other = p.Live(2);
  std::thread mover([&] { EXPECT_TRUE(p->Move(h).ok()); });
  device.AwaitInside();
  EXPECT_TRUE(p.Holds(other, 2));  // no global gate
  EXPECT_TRUE(p->Seal(other).ok());
  EXPECT_TRUE(p->Free(other).ok());
  EXPECT_TRUE(p->Free(p.Live(3)).ok());
  device.Open();
  mover.join();
}

TEST(PoolMove, AUnitFreedDuringItsMoveIsStaleAtOnceAndFreeAfterwards) {
  StoppingDevice device;
  TestPool<SlotKind> p(2, With(&device));
  const SlotHandle h = p.Live(1);
  std::thread mover([&] { (void)p->Move(h); });
  device.AwaitInside();
  EXPECT_TRUE(p->Free(h).ok());
  EXPECT_EQ(ReasonOf(p->StateOf(h).status()), Reason::kStaleHandle);
  EXPECT_FALSE(p->Reserve({}).ok());  // both places are still in the mover's hands
  EXPECT_TRUE(p->CheckInvariants().ok());
  device.Open();
  mover.join();
  EXPECT_EQ(p->Stats().free, 2u);
  EXPECT_TRUE(p->CheckInvariants().ok());
}

TEST(PoolMove, ADestinationFreedDuringACopyIsStaleNotCopied) {
  StoppingDevice device;
  TestPool<SlotKind> p(2, With(&device));
  const SlotHandle source = p.Live(1);
  const SlotHandle fork = Must(p->Reserve({}));
  Status copied;
  std::thread copier([&] { copied = p->CopyInto(source, fork); });
  device.AwaitInside();
  EXPECT_FALSE(p->Activate(fork).ok());  // half copied
  EXPECT_TRUE(p->Free(fork).ok());
  EXPECT_EQ(ReasonOf(p->Reserve({}).status()), Reason::kNoCapacity);
  device.Open();
  copier.join();
  EXPECT_EQ(ReasonOf(copied), Reason::kStaleHandle);
  EXPECT_EQ(p->Stats().free, 1u);
  EXPECT_TRUE(p.Holds(source, 1));
  EXPECT_TRUE(p->CheckInvariants().ok());
}

}  // namespace
}  // namespace baton
