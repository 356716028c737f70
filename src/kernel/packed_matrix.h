// A weight matrix [rows N][cols K] re-ordered once at load into panels of 16 rows:
// panel p, k, lane j holds W[16p + j][k] at ((p * K) + k) * 16 + j, rows past N zero. The vector
// axis is the output, so a row's sum over k needs no horizontal reduction and its order is fixed.
// Elements keep their stored dtype. Thread rule: immutable after Pack.
#ifndef BATON_KERNEL_PACKED_MATRIX_H_
#define BATON_KERNEL_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/thread_pool.h"

namespace baton::kernel {

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2 };
constexpr size_t DTypeSize(DType t) { return t == DType::kF32 ? 4 : 2; }

class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) noexcept = default;
  PackedMatrix& operator=(PackedMatrix&&) noexcept = default;

  // Packs `rows` x `cols` elements, row i at src + i * row_stride elements (unaligned is fine).
  // `pool` may be null. Fails with kInvalidArgument for a null source, an empty shape or a stride
  // below `cols`, and with kResourceExhausted if memory cannot be had.
  static StatusOr<PackedMatrix> Pack(const void* src,
                                     DType dtype,
                                     int64_t rows,
                                     int64_t cols,
                                     int64_t row_stride,
                                     ThreadPool* pool);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t panels() const { return (rows_ + 15) / 16; }
  DType dtype() const { return dtype_; }
  const void* data() const { return data_.get(); }
  size_t bytes() const { return static_cast<size_t>(panels()) * cols_ * 16 * DTypeSize(dtype_); }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;  // 64-byte aligned
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  DType dtype_ = DType::kF32;
};

// Widening conversions, exact: f32 value of element i of `src`.
float LoadElement(const void* src, DType dtype, int64_t i);
// Round-to-nearest-even narrowing of an f32 to bf16 bits.
uint16_t ToBF16(float v);

// f32 bits of an IEEE half, exact; a NaN comes out quiet, as conversion instructions give it.
// Static on purpose: the kernels compile it once per instruction set.
static inline constexpr uint32_t F16ToF32Bits(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 31u;
  uint32_t man = h & 0x3ffu;
  if (exp == 31) return sign | 0x7f800000u | (man != 0 ? 0x00400000u | (man << 13) : 0u);
  if (exp != 0) return sign | ((exp + 112) << 23) | (man << 13);
  if (man == 0) return sign;
  uint32_t e = 113;  // subnormal half: normalise
  while ((man & 0x400u) == 0) {
    man <<= 1;
    --e;
  }
  return sign | (e << 23) | ((man & 0x3ffu) << 13);
}

}  // namespace baton::kernel

#endif  // BATON_KERNEL_PACKED_MATRIX_H_
