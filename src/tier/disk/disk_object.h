// One file being written or read through a borrowed IoContext. Private to disk/.
// Thread rule: one thread.
#ifndef BATON_TIER_DISK_DISK_OBJECT_H_
#define BATON_TIER_DISK_DISK_OBJECT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tier/disk/disk_store.h"
#include "tier/disk/io_context.h"
#include "tier/object_store.h"

namespace baton {

// A file descriptor that is closed with its owner.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~OwnedFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A context on loan, and what is under way in it.
class LentContext {
 public:
  explicit LentContext(IoContexts* from) : from_(*from), context_(from->Borrow()) {}
  // Waits for what is under way.
  ~LentContext();
  StatusOr<MutableByteSpan> Memory(uint64_t bytes) { return context_->Memory(bytes); }
  Status Start(const IoRequest& request);
  StatusOr<IoCompletion> Wait();
  unsigned under_way() const { return under_way_; }

 private:
  IoContexts& from_;
  std::unique_ptr<IoContext> context_;
  unsigned under_way_ = 0;
  bool broken_ = false;
};

// "No space left" is kNoCapacity, everything else kPeerUnavailable: the disk is the peer.
Status DiskError(int error, const std::string& what);

struct DiskFile {
  int directory = -1;  // open directory, not owned
  std::string name;
  OwnedFd fd;
};

// Two halves of the buffer: one is filled while the other is written.
class DiskWriter final : public ObjectWriter {
 public:
  // `file` is open under its temporary name, name + ".tmp".
  DiskWriter(DiskFile file, FsyncPolicy fsync, const ObjectSize& size, IoContexts* contexts);
  ~DiskWriter() override;
  Status Prepare();
  StatusOr<MutableByteSpan> Next(uint64_t bytes) override;
  Status Commit() override;

 private:
  Status Flush();
  Status WaitForWrites();

  DiskFile file_;
  const FsyncPolicy fsync_;
  const ObjectSize size_;
  LentContext context_;
  std::array<MutableByteSpan, 2> halves_;
  size_t half_ = 0;       // being filled
  uint64_t filled_ = 0;   // bytes of it
  uint64_t written_ = 0;  // file offset of its first byte
  bool committed_ = false;
};

// With read-ahead, a ring of windows is kept under way in front of the reader; without, one request
// at a time.
class DiskReader final : public ObjectReader {
 public:
  DiskReader(DiskFile file, uint64_t size, ReadAhead ahead, IoContexts* contexts);
  Status Prepare();
  uint64_t size() const override { return size_; }
  StatusOr<ByteSpan> Read(uint64_t offset, uint64_t bytes_max) override;

 private:
  static constexpr uint64_t kWindow = uint64_t{1} << 20;
  static constexpr uint64_t kWindows = 4;
  struct Window {
    uint64_t index = ~uint64_t{0};
    bool under_way = false;
    uint64_t asked = 0;
    int64_t result = 0;
  };
  Status StartWindow(uint64_t index);
  Status Complete(Window* window, MutableByteSpan memory);
  StatusOr<ByteSpan> ReadOnce(uint64_t offset, uint64_t bytes_max);
  MutableByteSpan MemoryOf(uint64_t index) const {
    return memory_.subspan(index % kWindows * kWindow, kWindow);
  }

  DiskFile file_;
  const uint64_t size_;
  const ReadAhead ahead_;
  LentContext context_;
  MutableByteSpan memory_;
  std::array<Window, kWindows> windows_;
  uint64_t next_ = 0;  // first window not asked for
};

}  // namespace baton

#endif  // BATON_TIER_DISK_DISK_OBJECT_H_
