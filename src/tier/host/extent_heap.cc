#include "tier/host/extent_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Address space costs nothing; gaps between objects of mixed sizes do not fill this.
constexpr uint64_t kRangeFactor = 4;

uint64_t RoundUp(uint64_t n) {
  return (n + ExtentHeap::kAlign - 1) / ExtentHeap::kAlign * ExtentHeap::kAlign;
}

}  // namespace

Extent::~Extent() { heap_.Free(data_, RoundUp(bytes_)); }

StatusOr<std::unique_ptr<ExtentHeap>> ExtentHeap::Create(uint64_t bytes_max) {
  if (bytes_max == 0 || bytes_max > uint64_t{1} << 44)
    return absl::InvalidArgumentError(
        absl::StrCat("host tier of ", bytes_max, " bytes: expected 1 .. 2^44"));
  const uint64_t range = RoundUp(bytes_max) * kRangeFactor;
  void* data = mmap(nullptr, range, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat(
        "host tier: reserving ", range, " bytes of address space: ", std::strerror(errno),
        "; lower the budget or raise the limit (ulimit -v)"));
  madvise(data, range, MADV_HUGEPAGE);  // advice
  return std::unique_ptr<ExtentHeap>(
      new ExtentHeap(static_cast<std::byte*>(data), range, RoundUp(bytes_max)));
}

ExtentHeap::ExtentHeap(std::byte* data, uint64_t range, uint64_t bytes_max)
    : data_(data), range_(range), bytes_max_(bytes_max) {
  MutexLock lock(&mu_);
  AddFree(0, range, false);
}

ExtentHeap::~ExtentHeap() { munmap(data_, range_); }

void ExtentHeap::EraseGap(Gaps::iterator it) {
  const auto [bytes, warm] = it->second;
  (warm ? warm_ : cold_).erase({bytes, it->first});
  if (warm) warm_bytes_ -= bytes;
  gaps_.erase(it);
}

void ExtentHeap::AddFree(uint64_t offset, uint64_t bytes, bool warm) {
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.first == offset && before->second.second == warm) {
      offset = before->first;
      bytes += before->second.first;
      EraseGap(before);
    }
  }
  next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && offset + bytes == next->first && next->second.second == warm) {
    bytes += next->second.first;
    EraseGap(next);
  }
  gaps_[offset] = {bytes, warm};
  (warm ? warm_ : cold_).insert({bytes, offset});
  if (warm) warm_bytes_ += bytes;
}

// Largest gaps first: the fewest calls.
void ExtentHeap::GiveBack(uint64_t bytes) {
  uint64_t given = 0;
  while (given < bytes && !warm_.empty()) {
    const auto [size, offset] = *warm_.rbegin();
    madvise(data_ + offset, size, MADV_DONTNEED);
    EraseGap(gaps_.find(offset));
    AddFree(offset, size, false);
    given += size;
  }
}

StatusOr<std::unique_ptr<Extent>> ExtentHeap::Allocate(uint64_t asked) {
  const uint64_t bytes = RoundUp(std::max<uint64_t>(asked, 1));
  MutexLock lock(&mu_);
  const auto no_room = [&] {
    return Reject(Reason::kNoCapacity, absl::StrCat("host tier: ", bytes, " bytes asked for, ",
                                                    used_, " of ", bytes_max_, " in use"));
  };
  if (bytes > bytes_max_ - used_) return no_room();
  auto it = warm_.lower_bound({bytes, 0});
  bool warm = it != warm_.end();
  if (!warm) {
    const uint64_t held = used_ + warm_bytes_;
    if (held + bytes > bytes_max_) GiveBack(held + bytes - bytes_max_);
    it = cold_.lower_bound({bytes, 0});
    if (it == cold_.end()) return no_room();
  }
  const auto [size, offset] = *it;
  EraseGap(gaps_.find(offset));
  if (size > bytes) AddFree(offset + bytes, size - bytes, warm);
  used_ += bytes;
  return std::make_unique<Extent>(this, data_ + offset, asked);
}

void ExtentHeap::Free(std::byte* data, uint64_t bytes) {
  MutexLock lock(&mu_);
  used_ -= bytes;
  AddFree(static_cast<uint64_t>(data - data_), bytes, true);
}

uint64_t ExtentHeap::bytes_used() const {
  MutexLock lock(&mu_);
  return used_;
}

uint64_t ExtentHeap::bytes_held() const {
  MutexLock lock(&mu_);
  return used_ + warm_bytes_;
}

}  // namespace baton
