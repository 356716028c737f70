#include "memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

Status Failed(std::string_view call, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("arena: ", std::string(call), " of ", bytes,
                                                   " bytes failed: ", strerror(errno),
                                                   "; lower the memory budget"));
}

// A memfd of fixed size: sealed, so that no peer can shrink it under a reader.
StatusOr<int> SealedMemfd(uint64_t bytes) {
  const int fd = memfd_create("baton-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Failed("memfd_create", bytes);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const Status status = Failed("sizing a memfd", bytes);
    close(fd);
    return status;
  }
  return fd;
}

// Only mappings that exist can write from here on: a peer that is given the descriptor can read the
// arena, but not change or punch what others will be served from it. Kernels before 5.1 do not know
// that seal and go without.
bool SealAgainstPeers(int fd) {
  return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 ||
         (errno == EINVAL && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
}

}  // namespace

StatusOr<std::unique_ptr<Arena>> Arena::Create(uint64_t bytes, const ArenaOptions& options) {
  constexpr uint64_t kMax = uint64_t{1} << 46;
  if (bytes == 0 || bytes > kMax)
    return absl::InvalidArgumentError(
        absl::StrCat("arena: size ", bytes, ", expected 1..", kMax, " bytes"));
  const uint64_t size = (bytes + kAlign - 1) / kAlign * kAlign;
  int fd = -1;
  if (options.shareable) {
    BATON_ASSIGN_OR_RETURN(fd, SealedMemfd(size));
  }
  const int flags = options.shareable ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    const Status status = Failed("mmap", size);
    if (fd >= 0) close(fd);
    return status;
  }
  if (fd >= 0 && !SealAgainstPeers(fd)) {
    const Status status = Failed("sealing a memfd", size);
    munmap(p, size);
    close(fd);
    return status;
  }
  if (options.huge_pages) (void)madvise(p, size, MADV_HUGEPAGE);
  return std::unique_ptr<Arena>(new Arena(static_cast<std::byte*>(p), size, fd, true));
}

StatusOr<std::unique_ptr<Arena>> Arena::Adopt(MutableByteSpan memory, int fd) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const uint64_t size = memory.size() / kAlign * kAlign;
  if (address == 0 || address % kAlign != 0 || size == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("arena: memory at ", address, " of ", memory.size(),
                     " bytes; expected whole pages of ", kAlign, " bytes"));
  return std::unique_ptr<Arena>(new Arena(memory.data(), size, fd, false));
}

Arena::~Arena() {
  if (!owned_) return;
  munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

StatusOr<uint64_t> Arena::Carve(uint64_t bytes) {
  if (bytes > size_ - carved_)
    return absl::ResourceExhaustedError(
        absl::StrCat("arena: ", bytes, " bytes asked, ", size_ - carved_, " of ", size_, " left"));
  const uint64_t offset = carved_;
  carved_ += (bytes + kAlign - 1) / kAlign * kAlign;  // size_ is a multiple of kAlign
  return offset;
}

}  // namespace baton
