// Sums over 16 virtual lanes, the only horizontal reduction there is (docs/numerics.md).
#ifndef BATON_KERNEL_REFERENCE_LANES_INL_H_
#define BATON_KERNEL_REFERENCE_LANES_INL_H_

#include "kernel/kernels.h"
#include "kernel/reference/functions-inl.h"

namespace baton::kernel::BATON_REFERENCE_NS {

struct Lanes {
  float l[kLanes] = {};

  // Combines 8, 4, 2, 1 apart.
  float Sum() const {
    float s[kLanes];
    for (int j = 0; j < kLanes; ++j) s[j] = l[j];
    for (int step = kLanes / 2; step > 0; step /= 2)
      for (int j = 0; j < step; ++j) s[j] = s[j] + s[j + step];
    return s[0];
  }
};

}  // namespace baton::kernel::BATON_REFERENCE_NS

#endif  // BATON_KERNEL_REFERENCE_LANES_INL_H_
