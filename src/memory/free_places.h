// The places of a pool that can be given out, lowest first, so that what is in use stays packed at
// one end and the border to the other pool can move. One bit per place.
// Thread rule: none of its own; guarded by its pool's mutex.
#ifndef BATON_MEMORY_FREE_PLACES_H_
#define BATON_MEMORY_FREE_PLACES_H_

#include <bit>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace baton::memory_internal {

class FreePlaces {
 public:
  explicit FreePlaces(uint32_t places) : words_((uint64_t{places} + 63) / 64, 0) {}

  // `place` must not be in the set.
  void Insert(uint32_t place) {
    BATON_CHECK(!Contains(place));
    words_[place / 64] |= uint64_t{1} << (place % 64);
    if (place / 64 < first_) first_ = place / 64;
    ++count_;
  }
  // `place` must be in the set.
  void Erase(uint32_t place) {
    BATON_CHECK(Contains(place));
    words_[place / 64] &= ~(uint64_t{1} << (place % 64));
    --count_;
  }
  bool Contains(uint32_t place) const { return (words_[place / 64] >> (place % 64)) & 1; }
  // The set must not be empty.
  uint32_t Lowest() {
    BATON_CHECK(count_ != 0);
    while (words_[first_] == 0) ++first_;
    return first_ * 64 + static_cast<uint32_t>(std::countr_zero(words_[first_]));
  }
  uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  std::vector<uint64_t> words_;
  uint32_t first_ = 0;  // words below it are zero
  uint32_t count_ = 0;
};

}  // namespace baton::memory_internal

#endif  // BATON_MEMORY_FREE_PLACES_H_
