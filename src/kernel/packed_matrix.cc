#include "kernel/packed_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

constexpr size_t kCacheLine = 64;
// From here on ask for huge pages: a matrix read once per token is otherwise bound by TLB misses.
constexpr size_t kHugePage = size_t{2} << 20;

template <class T>
void PackPanel(
    const uint8_t* src, int64_t rows, int64_t cols, int64_t row_stride, int64_t panel, T* dst) {
  const int64_t begin = panel * kLanes;
  const int64_t width = std::min<int64_t>(kLanes, rows - begin);
  for (int64_t k = 0; k < cols; ++k) {
    T lane[kLanes] = {};
    for (int64_t j = 0; j < width; ++j)
      std::memcpy(&lane[j], src + ((begin + j) * row_stride + k) * sizeof(T), sizeof(T));
    std::memcpy(dst + k * kLanes, lane, sizeof(lane));
  }
}

}  // namespace

void PackedMatrix::Free::operator()(void* p) const { std::free(p); }

StatusOr<PackedMatrix> PackedMatrix::Pack(const void* src,
                                          DType dtype,
                                          int64_t rows,
                                          int64_t cols,
                                          int64_t row_stride,
                                          ThreadPool* pool) {
  if (src == nullptr || rows <= 0 || cols <= 0 || row_stride < cols) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot pack a ", rows, " x ", cols, " matrix with row stride ", row_stride,
                     ": rows and columns must be positive and the stride at least the columns"));
  }
  const int64_t panels = rows / kLanes + (rows % kLanes != 0 ? 1 : 0);
  const int64_t panel_bytes_max = std::numeric_limits<int64_t>::max() / 2 / panels;
  if (cols > panel_bytes_max / kLanes / 4) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a ", rows, " x ", cols, " weight matrix does not fit in memory"));
  }
  PackedMatrix m;
  m.rows_ = rows;
  m.cols_ = cols;
  m.dtype_ = dtype;
  const size_t bytes = m.bytes();
  const size_t align = bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t size = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  void* data = nullptr;
  if (posix_memalign(&data, align, size) != 0 || data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory for a weight matrix of ", bytes,
                                                     " bytes (", rows, " x ", cols, ")"));
  }
  m.data_.reset(data);
  if (align == kHugePage) madvise(data, size, MADV_HUGEPAGE);  // advice: failure costs only speed

  const auto* bytes_in = static_cast<const uint8_t*>(src);
  const auto pack = [&](int64_t p) {
    if (dtype == DType::kF32) {
      PackPanel(bytes_in, rows, cols, row_stride, p,
                static_cast<uint32_t*>(data) + p * cols * kLanes);
    } else {
      PackPanel(bytes_in, rows, cols, row_stride, p,
                static_cast<uint16_t*>(data) + p * cols * kLanes);
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(panels, pack);
  } else {
    for (int64_t p = 0; p < panels; ++p) pack(p);
  }
  return m;
}

float LoadElement(const void* src, DType dtype, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(src) + i * static_cast<int64_t>(DTypeSize(dtype));
  uint32_t bits = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&bits, bytes, 4);
  } else {
    uint16_t half;
    std::memcpy(&half, bytes, 2);
    bits = dtype == DType::kBF16 ? static_cast<uint32_t>(half) << 16 : F16ToF32Bits(half);
  }
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

uint16_t ToBF16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace baton::kernel
