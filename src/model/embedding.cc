#include "model/embedding.h"

#include <cstring>

#include "kernel/kernels.h"

namespace baton::model {

void LoadRow(const kernel::PackedMatrix& w, int64_t row, float multiplier, float* to) {
  const int64_t n = w.cols();
  const int64_t first = row / kernel::kLanes * n * kernel::kLanes + row % kernel::kLanes;
  switch (w.dtype()) {
    case kernel::DType::kF32: {
      const auto* p = static_cast<const float*>(w.data()) + first;
      for (int64_t k = 0; k < n; ++k) to[k] = p[k * kernel::kLanes] * multiplier;
      return;
    }
    case kernel::DType::kBF16: {
      const auto* p = static_cast<const uint16_t*>(w.data()) + first;
      for (int64_t k = 0; k < n; ++k) {
        const uint32_t bits = static_cast<uint32_t>(p[k * kernel::kLanes]) << 16;
        float v;
        std::memcpy(&v, &bits, sizeof(v));
        to[k] = v * multiplier;
      }
      return;
    }
    case kernel::DType::kF16:
      for (int64_t k = 0; k < n; ++k)
        to[k] = kernel::LoadElement(w.data(), w.dtype(), first + k * kernel::kLanes) * multiplier;
      return;
  }
}

}  // namespace baton::model
