// io_uring by its three system calls: one thread, one small ring, one entry submitted at a time,
// needs no library. Layout of the rings: io_uring_setup(2), io_uring(7).
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tier/disk/block_io.h"

namespace baton {
namespace {

Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat("io_uring: ", what, ": ", std::strerror(errno)));
}

class Mapping {
 public:
  ~Mapping() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  bool Map(int fd, size_t bytes, off_t offset) {
    bytes_ = bytes;
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    return data_ != MAP_FAILED;
  }
  template <class T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }

 private:
  void* data_ = MAP_FAILED;
  size_t bytes_ = 0;
};

class UringIo final : public BlockIo {
 public:
  // The kernel waits for what is under way when the ring goes; so do we, because buffers and files
  // go next.
  ~UringIo() override {
    while (under_way_ > 0 && Wait().ok()) {
    }
    if (fd_ >= 0) close(fd_);
  }

  Status Setup() {
    io_uring_params p{};
    fd_ = static_cast<int>(syscall(__NR_io_uring_setup, kDepth, &p));
    if (fd_ < 0) return Failed("setup");
    if ((p.features & IORING_FEAT_SINGLE_MMAP) == 0 || (p.features & IORING_FEAT_NODROP) == 0)
      return absl::UnavailableError("io_uring: this kernel's is too old (5.5 is needed)");
    const size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    const size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe);
    if (!rings_.Map(fd_, std::max(sq, cq), IORING_OFF_SQ_RING) ||
        !entries_.Map(fd_, p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES))
      return Failed("mmap");
    sq_tail_ = rings_.At<unsigned>(p.sq_off.tail);
    sq_mask_ = *rings_.At<unsigned>(p.sq_off.ring_mask);
    sq_array_ = rings_.At<unsigned>(p.sq_off.array);
    cq_head_ = rings_.At<unsigned>(p.cq_off.head);
    cq_tail_ = rings_.At<unsigned>(p.cq_off.tail);
    cq_mask_ = *rings_.At<unsigned>(p.cq_off.ring_mask);
    cqes_ = rings_.At<io_uring_cqe>(p.cq_off.cqes);
    return absl::OkStatus();
  }

  std::string_view name() const override { return "io_uring"; }

  Status Start(const IoRequest& r) override {
    BATON_CHECK(under_way_ < kDepth);
    const unsigned tail = *sq_tail_;  // only we write it
    const unsigned slot = tail & sq_mask_;
    io_uring_sqe* e = entries_.At<io_uring_sqe>(0) + slot;
    std::memset(e, 0, sizeof *e);
    e->opcode = r.write ? IORING_OP_WRITE : IORING_OP_READ;
    e->fd = r.fd;
    e->off = r.offset;
    e->addr = reinterpret_cast<uint64_t>(r.bytes.data());
    e->len = static_cast<uint32_t>(r.bytes.size());
    e->user_data = r.tag;
    sq_array_[slot] = slot;
    std::atomic_ref<unsigned>(*sq_tail_).store(tail + 1, std::memory_order_release);
    while (true) {
      const long n = syscall(__NR_io_uring_enter, fd_, 1, 0, 0, nullptr, 0);
      if (n == 1) break;
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      return Failed("submit");
    }
    ++under_way_;
    return absl::OkStatus();
  }

  StatusOr<IoCompletion> Wait() override {
    const unsigned head = *cq_head_;  // only we write it
    while (head == std::atomic_ref<unsigned>(*cq_tail_).load(std::memory_order_acquire)) {
      const long n = syscall(__NR_io_uring_enter, fd_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (n < 0 && errno != EINTR && errno != EAGAIN) return Failed("wait");
    }
    const io_uring_cqe& c = cqes_[head & cq_mask_];
    const IoCompletion done{c.user_data, c.res};
    std::atomic_ref<unsigned>(*cq_head_).store(head + 1, std::memory_order_release);
    --under_way_;
    return done;
  }

 private:
  int fd_ = -1;
  Mapping rings_, entries_;
  unsigned* sq_tail_ = nullptr;
  unsigned sq_mask_ = 0;
  unsigned* sq_array_ = nullptr;
  unsigned* cq_head_ = nullptr;
  unsigned* cq_tail_ = nullptr;
  unsigned cq_mask_ = 0;
  io_uring_cqe* cqes_ = nullptr;
  unsigned under_way_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<BlockIo>> MakeUringIo() {
  auto io = std::make_unique<UringIo>();
  BATON_RETURN_IF_ERROR(io->Setup());
  return io;
}

}  // namespace baton
