// Page-aligned extents out of one reserved range of address space. Pages that have been touched are
// kept for the next object, since a fresh page costs more than a copy into it: the kernel clears it
// first. At most `bytes_max` are held in all; what lies free is given back before that is exceeded.
// The range is a multiple of bytes_max, so that a heap that is not full in bytes practically always
// finds a gap; where it does not, Allocate says so. Best fit, neighbours merged.
// Thread rule: thread-safe; an extent is a plain object and ends before its heap.
#ifndef BATON_TIER_HOST_EXTENT_HEAP_H_
#define BATON_TIER_HOST_EXTENT_HEAP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"

namespace baton {

class ExtentHeap;

class Extent {
 public:
  Extent(ExtentHeap* heap, std::byte* data, uint64_t bytes)
      : heap_(*heap), data_(data), bytes_(bytes) {}
  ~Extent();
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;
  MutableByteSpan bytes() { return {data_, bytes_}; }
  ByteSpan bytes() const { return {data_, bytes_}; }

 private:
  ExtentHeap& heap_;
  std::byte* const data_;
  const uint64_t bytes_;  // as asked for
};

class ExtentHeap {
 public:
  static constexpr uint64_t kAlign = 4096;

  // kResourceExhausted with the kernel's reason if the range cannot be reserved.
  static StatusOr<std::unique_ptr<ExtentHeap>> Create(uint64_t bytes_max);
  ~ExtentHeap();
  ExtentHeap(const ExtentHeap&) = delete;
  ExtentHeap& operator=(const ExtentHeap&) = delete;

  // Not cleared. kNoCapacity beyond bytes_max.
  StatusOr<std::unique_ptr<Extent>> Allocate(uint64_t bytes);

  uint64_t bytes_used() const;
  // Used, and free but still backed by pages.
  uint64_t bytes_held() const;

 private:
  friend class Extent;
  ExtentHeap(std::byte* data, uint64_t range, uint64_t bytes_max);
  void Free(std::byte* data, uint64_t bytes);
  void AddFree(uint64_t offset, uint64_t bytes, bool warm) BATON_REQUIRES(mu_);
  using Gaps = std::map<uint64_t, std::pair<uint64_t, bool>>;  // offset: bytes, backed by pages
  void EraseGap(Gaps::iterator it) BATON_REQUIRES(mu_);
  void GiveBack(uint64_t bytes) BATON_REQUIRES(mu_);

  std::byte* const data_;
  const uint64_t range_;
  const uint64_t bytes_max_;
  mutable Mutex mu_;
  // Neighbours are merged if both are warm or both cold.
  Gaps gaps_ BATON_GUARDED_BY(mu_);
  std::set<std::pair<uint64_t, uint64_t>> warm_ BATON_GUARDED_BY(mu_);  // bytes, offset
  std::set<std::pair<uint64_t, uint64_t>> cold_ BATON_GUARDED_BY(mu_);
  uint64_t used_ BATON_GUARDED_BY(mu_) = 0;
  uint64_t warm_bytes_ BATON_GUARDED_BY(mu_) = 0;
};

}  // namespace baton

#endif  // BATON_TIER_HOST_EXTENT_HEAP_H_
