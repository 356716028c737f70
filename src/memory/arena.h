// One contiguous mapping that all pools of a process share: anonymous, or a memfd that a peer on
// the same host can map (connector/shm). It hands out ranges once and takes none back; pools
// manage what lies inside. Pages cost memory only when touched.
// Thread rule: Carve belongs to start-up on one thread; the rest is immutable.
#ifndef BATON_MEMORY_ARENA_H_
#define BATON_MEMORY_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"

namespace baton {

struct ArenaOptions {
  bool shareable = false;   // memfd, sealed: whoever has fd() can map it, to read only
  bool huge_pages = false;  // madvise(MADV_HUGEPAGE): advice, never an error
};

class Arena {
 public:
  static constexpr uint64_t kAlign = 4096;

  // `bytes` is rounded up to kAlign; zero-filled. kResourceExhausted with the number of bytes and
  // the reason if the mapping fails.
  static StatusOr<std::unique_ptr<Arena>> Create(uint64_t bytes, const ArenaOptions& options);
  // Over memory of somebody else's, which outlives the arena and is not unmapped by it:
  // page-aligned, a multiple of kAlign is used. `fd` is the memfd it maps, or -1; not closed
  // either.
  static StatusOr<std::unique_ptr<Arena>> Adopt(MutableByteSpan memory, int fd);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() { return data_; }
  uint64_t size() const { return size_; }
  // -1 unless shareable or adopted with one. Stays owned by whoever made the arena or the memory.
  int fd() const { return fd_; }

  // Sets aside the next `bytes` (rounded up to kAlign) and returns their offset.
  StatusOr<uint64_t> Carve(uint64_t bytes);

 private:
  Arena(std::byte* data, uint64_t size, int fd, bool owned)
      : data_(data), size_(size), fd_(fd), owned_(owned) {}

  std::byte* data_;
  uint64_t size_;
  int fd_;
  const bool owned_;
  uint64_t carved_ = 0;
};

}  // namespace baton

#endif  // BATON_MEMORY_ARENA_H_
