#include "tier/disk/disk_object.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr uint64_t RoundUp(uint64_t n) {
  return (n + kObjectAlign - 1) / kObjectAlign * kObjectAlign;
}

constexpr uint64_t kHalfBytes = uint64_t{2} << 20;
// One request of io_uring has a 32-bit length; the kernel takes at most 2 GiB.
constexpr uint64_t kRequestMax = uint64_t{1} << 26;

}  // namespace

Status DiskError(int error, const std::string& what) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Reject(full ? Reason::kNoCapacity : Reason::kPeerUnavailable,
                absl::StrCat("disk tier: ", what, ": ", std::strerror(error)));
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

LentContext::~LentContext() {
  while (under_way_ > 0 && !broken_) Wait().IgnoreError();
  from_.GiveBack(std::move(context_), broken_);
}

Status LentContext::Start(const IoRequest& request) {
  Status status = context_->io().Start(request);
  if (status.ok())
    ++under_way_;
  else
    broken_ = true;
  return status;
}

StatusOr<IoCompletion> LentContext::Wait() {
  StatusOr<IoCompletion> done = context_->io().Wait();
  if (done.ok())
    --under_way_;
  else
    broken_ = true;
  return done;
}

DiskWriter::DiskWriter(DiskFile file,
                       FsyncPolicy fsync,
                       const ObjectSize& size,
                       IoContexts* contexts)
    : file_(std::move(file)), fsync_(fsync), size_(size), context_(contexts) {}

DiskWriter::~DiskWriter() {
  if (committed_) return;
  WaitForWrites().IgnoreError();
  unlinkat(file_.directory, (file_.name + ".tmp").c_str(), 0);
}

Status DiskWriter::Prepare() {
  // Room for the largest piece behind a remainder of less than a page.
  const uint64_t half = std::max(kHalfBytes, RoundUp(size_.largest) + kObjectAlign);
  BATON_ASSIGN_OR_RETURN(const MutableByteSpan memory, context_.Memory(2 * half));
  halves_ = {memory.first(half), memory.subspan(half, half)};
  // A full disk is known now, and the file lies in one piece where the file system can.
  if (fallocate(file_.fd.get(), 0, 0, static_cast<off_t>(size_.bytes)) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    return DiskError(errno, absl::StrCat(size_.bytes, " bytes for ", file_.name));
  return absl::OkStatus();
}

StatusOr<MutableByteSpan> DiskWriter::Next(uint64_t bytes) {
  if (bytes > halves_[0].size() - kObjectAlign || bytes > size_.bytes - written_ - filled_)
    return absl::InternalError("disk tier: more bytes than the object was created with");
  if (bytes > halves_[half_].size() - filled_) BATON_RETURN_IF_ERROR(Flush());
  const MutableByteSpan out = halves_[half_].subspan(filled_, bytes);
  filled_ += bytes;
  return out;
}

// Starts writing the whole pages of this half, and goes on behind their remainder in the other,
// whose own writes have then ended.
Status DiskWriter::Flush() {
  BATON_RETURN_IF_ERROR(WaitForWrites());
  const uint64_t whole = filled_ / kObjectAlign * kObjectAlign;
  const MutableByteSpan from = halves_[half_];
  for (uint64_t done = 0; done < whole; done += kRequestMax) {
    if (context_.under_way() == BlockIo::kDepth) BATON_RETURN_IF_ERROR(WaitForWrites());
    IoRequest request;
    request.write = true;
    request.fd = file_.fd.get();
    request.offset = written_ + done;
    request.bytes = from.subspan(done, std::min(kRequestMax, whole - done));
    request.tag = request.bytes.size();
    BATON_RETURN_IF_ERROR(context_.Start(request));
  }
  half_ ^= 1;
  std::memcpy(halves_[half_].data(), from.data() + whole, filled_ - whole);
  written_ += whole;
  filled_ -= whole;
  return absl::OkStatus();
}

Status DiskWriter::WaitForWrites() {
  Status first;
  while (context_.under_way() > 0) {
    BATON_ASSIGN_OR_RETURN(const IoCompletion done, context_.Wait());
    if (!first.ok()) continue;
    if (done.result < 0)
      first = DiskError(static_cast<int>(-done.result), "writing " + file_.name);
    else if (static_cast<uint64_t>(done.result) != done.tag)  // ENOSPC in the middle looks so
      first = Reject(Reason::kNoCapacity, absl::StrCat("disk tier: ", done.result, " of ", done.tag,
                                                       " bytes of ", file_.name, " written"));
  }
  return first;
}

Status DiskWriter::Commit() {
  if (written_ + filled_ != size_.bytes || filled_ % kObjectAlign != 0)
    return absl::InternalError("disk tier: the object is not complete");
  BATON_RETURN_IF_ERROR(Flush());
  BATON_RETURN_IF_ERROR(WaitForWrites());
  if (fsync_ != FsyncPolicy::kNone && fdatasync(file_.fd.get()) != 0)
    return DiskError(errno, "fdatasync of " + file_.name);
  const std::string temporary = file_.name + ".tmp";
  if (renameat(file_.directory, temporary.c_str(), file_.directory, file_.name.c_str()) != 0)
    return DiskError(errno, "rename to " + file_.name);
  committed_ = true;
  if (fsync_ == FsyncPolicy::kFull && fsync(file_.directory) != 0)
    return DiskError(errno, "fsync of the directory");
  return absl::OkStatus();
}

DiskReader::DiskReader(DiskFile file, uint64_t size, ReadAhead ahead, IoContexts* contexts)
    : file_(std::move(file)), size_(size), ahead_(ahead), context_(contexts) {}

Status DiskReader::Prepare() {
  BATON_ASSIGN_OR_RETURN(memory_, context_.Memory(kWindows * kWindow));
  return absl::OkStatus();
}

Status DiskReader::StartWindow(uint64_t index) {
  Window& window = windows_[index % kWindows];
  window.index = index;
  window.asked = std::min(kWindow, RoundUp(size_ - index * kWindow));
  IoRequest request;
  request.fd = file_.fd.get();
  request.offset = index * kWindow;
  request.bytes = MemoryOf(index).first(window.asked);
  request.tag = index % kWindows;
  BATON_RETURN_IF_ERROR(context_.Start(request));
  window.under_way = true;
  return absl::OkStatus();
}

// Waits for the window; what a short read has left out is read the plain way.
Status DiskReader::Complete(Window* window, MutableByteSpan memory) {
  while (window->under_way) {
    BATON_ASSIGN_OR_RETURN(const IoCompletion done, context_.Wait());
    Window& other = windows_[done.tag % kWindows];
    other.under_way = false;
    other.result = done.result;
  }
  if (window->result < 0)
    return DiskError(static_cast<int>(-window->result), "reading " + file_.name);
  const uint64_t start = window->index * kWindow;
  auto have = static_cast<uint64_t>(window->result);
  while (have < window->asked && start + have < size_) {
    const uint64_t at = have / kObjectAlign * kObjectAlign;
    const ssize_t n = pread(file_.fd.get(), memory.data() + at, window->asked - at,
                            static_cast<off_t>(start + at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return DiskError(errno, "reading " + file_.name);
    if (at + static_cast<uint64_t>(n) <= have) break;  // the file has become shorter
    have = at + static_cast<uint64_t>(n);
  }
  window->result = static_cast<int64_t>(have);
  return absl::OkStatus();
}

StatusOr<ByteSpan> DiskReader::Read(uint64_t offset, uint64_t bytes_max) {
  if (offset >= size_ || bytes_max == 0) return ByteSpan();
  if (ahead_ == ReadAhead::kNone) return ReadOnce(offset, bytes_max);
  const uint64_t index = offset / kWindow;
  if (index + kWindows < next_ || index > next_) next_ = index;  // a jump
  // Windows next_ - kWindows .. next_ - 1 are there or under way; those before `index` are free.
  for (next_ = std::max(next_, index); next_ < index + kWindows && next_ * kWindow < size_;
       ++next_) {
    Window& window = windows_[next_ % kWindows];
    if (window.under_way) BATON_RETURN_IF_ERROR(Complete(&window, MemoryOf(window.index)));
    BATON_RETURN_IF_ERROR(StartWindow(next_));
  }
  Window& window = windows_[index % kWindows];
  BATON_RETURN_IF_ERROR(Complete(&window, MemoryOf(index)));
  const uint64_t at = offset % kWindow;
  const uint64_t end =
      std::min<uint64_t>(static_cast<uint64_t>(window.result), size_ - index * kWindow);
  if (at >= end) return ByteSpan();
  return ByteSpan(MemoryOf(index)).subspan(at, std::min(bytes_max, end - at));
}

StatusOr<ByteSpan> DiskReader::ReadOnce(uint64_t offset, uint64_t bytes_max) {
  const uint64_t start = offset / kObjectAlign * kObjectAlign;
  const uint64_t want = std::min(memory_.size(), RoundUp(offset - start + bytes_max));
  ssize_t n;
  do {
    n = pread(file_.fd.get(), memory_.data(), want, static_cast<off_t>(start));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return DiskError(errno, "reading " + file_.name);
  const auto have = static_cast<uint64_t>(n);
  if (have <= offset - start) return ByteSpan();
  return ByteSpan(memory_).subspan(offset - start, std::min(bytes_max, have - (offset - start)));
}

}  // namespace baton
