// Reads and writes of file ranges, several under way at once: io_uring where the kernel lets us,
// pread and pwrite otherwise. It knows no objects. Thread rule: one thread at a time.
#ifndef BATON_TIER_DISK_BLOCK_IO_H_
#define BATON_TIER_DISK_BLOCK_IO_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace baton {

struct IoRequest {
  bool write = false;
  int fd = -1;
  uint64_t offset = 0;
  MutableByteSpan bytes;  // left alone by the caller until the request has completed
  uint64_t tag = 0;
};

struct IoCompletion {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes, or -errno
};

class BlockIo {
 public:
  // More requests than that are never under way.
  static constexpr unsigned kDepth = 8;
  virtual ~BlockIo() = default;
  virtual std::string_view name() const = 0;
  // Fewer than kDepth requests are under way.
  virtual Status Start(const IoRequest& request) = 0;
  // Blocks until one has completed; at least one is under way. An error: the ring is broken, and
  // requests may still be under way until the object is destroyed.
  virtual StatusOr<IoCompletion> Wait() = 0;
};

// Unavailable with the kernel's reason where io_uring is absent or forbidden.
StatusOr<std::unique_ptr<BlockIo>> MakeUringIo();
std::unique_ptr<BlockIo> MakeSyncIo();

}  // namespace baton

#endif  // BATON_TIER_DISK_BLOCK_IO_H_
