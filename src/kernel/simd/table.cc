// One Kernels table per compiled target, and the choice between them.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/table.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernel/simd/target-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernel::HWY_NAMESPACE {

// Null where the target runs the reference.
const Kernels* Table() {
#if BATON_SIMD
  static const Kernels kTable = {
      .name = HWY_TARGET == HWY_AVX2   ? "avx2"
              : HWY_TARGET == HWY_AVX3 ? "avx512"
                                       : "simd",
      .matmul = Matmul,
      .attention = Attention,
      .conv = Conv,
      .mamba2 = Mamba2,
      .mamba1 = Mamba1,
      .gated_delta = GatedDelta,
      .rg_lru = RgLru,
      .mamba2_narrow = Mamba2Narrow,
      .gated_delta_narrow = GatedDeltaNarrow,
      .narrow = Narrow,
      .widen = Widen,
      .dots = Dots,
      .rms_norm = RmsNorm,
      .gated_rms_norm = GatedRmsNorm,
      .silu_mul = SiluMul,
      .sigmoid_mul = SigmoidMul,
      .multiply = Multiply,
      .apply_mul = ApplyMul,
      .add_scaled = AddScaled,
      .scale = Scale,
      .softplus_bias = SoftplusBias,
      .exp_mul = ExpMul,
      .rope = Rope,
      .softmax = Softmax,
      .apply = Apply,
  };
  return &kTable;
#else
  return nullptr;
#endif
}

}  // namespace baton::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>

namespace baton::kernel {

HWY_EXPORT(Table);

const Kernels& SimdKernels() {
  const Kernels* table = HWY_DYNAMIC_DISPATCH(Table)();
  return table != nullptr ? *table : ReferenceKernels();
}

namespace {

struct List {
  std::array<const Kernels*, 4> items = {};
  size_t count = 0;
  void Add(const Kernels* k) {
    if (k != nullptr) items[count++] = k;
  }
};

List MakeList() {
  List list;
  list.Add(&ReferenceKernels());
  [[maybe_unused]] const int64_t supported = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) list.Add(N_AVX2::Table());
#endif
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) list.Add(N_AVX3::Table());
#endif
#if !HWY_ARCH_X86
  list.Add(HWY_DYNAMIC_DISPATCH(Table)());
#endif
  return list;
}

}  // namespace

std::span<const Kernels* const> SupportedKernels() {
  static const List list = MakeList();
  return {list.items.data(), list.count};
}

}  // namespace baton::kernel
#endif  // HWY_ONCE
