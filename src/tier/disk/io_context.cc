#include "tier/disk/io_context.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {

IoContext::~IoContext() {
  io_.reset();
  if (data_ != nullptr) munmap(data_, bytes_);
}

StatusOr<MutableByteSpan> IoContext::Memory(uint64_t bytes) {
  if (bytes > bytes_) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return Reject(Reason::kNoCapacity,
                    absl::StrCat("disk tier: buffer of ", bytes, " bytes: ", std::strerror(errno)));
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = static_cast<std::byte*>(data);
    bytes_ = bytes;
  }
  return MutableByteSpan(data_, bytes_);
}

std::unique_ptr<IoContext> IoContexts::Borrow() {
  {
    MutexLock lock(&mu_);
    while (left_ == 0) free_.Wait(&mu_);
    --left_;
    if (!idle_.empty()) {
      std::unique_ptr<IoContext> context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  auto context = std::make_unique<IoContext>();
  context->io_ = make_();
  return context;
}

void IoContexts::GiveBack(std::unique_ptr<IoContext> context, bool broken) {
  if (broken) context.reset();
  MutexLock lock(&mu_);
  ++left_;
  if (context != nullptr) idle_.push_back(std::move(context));
  free_.NotifyOne();
}

}  // namespace baton
