#include "probe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "probe.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace baton::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
double FmaOn(D d) {
  using V = hn::Vec<D>;
  constexpr int kChains = 12;
  constexpr int64_t kRounds = int64_t{1} << 17;
  const V b = hn::Set(d, 0.999f);
  const V c = hn::Set(d, 1e-3f);
  V a[kChains];
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) a[i] = hn::Set(d, 0.1f * static_cast<float>(i));
  for (int64_t r = 0; r < kRounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) a[i] = hn::MulAdd(a[i], b, c);
  }
  V sum = a[0];
  HWY_UNROLL(12)
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, a[i]);
  volatile float sink = hn::GetLane(sum);
  (void)sink;
  return 2.0 * kChains * kRounds * static_cast<double>(hn::Lanes(d));
}

double Fma(bool narrow) {
  return narrow ? FmaOn(hn::CappedTag<float, 8>()) : FmaOn(hn::CappedTag<float, 16>());
}

float Read(const float* p, int64_t n) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kW = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = 64 / kW;
  V a[kVectors];
  HWY_UNROLL(16)
  for (int i = 0; i < kVectors; ++i) a[i] = hn::Zero(d);
  for (int64_t k = 0; k < n; k += 64) {
    for (int i = 0; i < 4; ++i) hwy::Prefetch(p + k + 512 + i * 16);
    HWY_UNROLL(16)
    for (int i = 0; i < kVectors; ++i) a[i] = hn::Add(a[i], hn::LoadU(d, p + k + i * kW));
  }
  V sum = a[0];
  for (int i = 1; i < kVectors; ++i) sum = hn::Add(sum, a[i]);
  return hn::GetLane(sum);
}

void Update(float* p, int64_t n) {
  const hn::CappedTag<float, 16> d;
  const auto m = hn::Set(d, 0.9999f);
  constexpr int kW = static_cast<int>(hn::MaxLanes(d));
  for (int64_t k = 0; k < n; k += 64) {
    for (int i = 0; i < 4; ++i) hwy::Prefetch(p + k + 512 + i * 16);
    HWY_UNROLL(16)
    for (int i = 0; i < 64; i += kW) hn::StoreU(hn::Mul(m, hn::LoadU(d, p + k + i)), d, p + k + i);
  }
}

}  // namespace baton::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::bench {
HWY_EXPORT(Fma);
HWY_EXPORT(Read);
HWY_EXPORT(Update);
double RunFma(bool narrow) { return HWY_DYNAMIC_DISPATCH(Fma)(narrow); }
float ReadAll(const float* p, int64_t n) { return HWY_DYNAMIC_DISPATCH(Read)(p, n); }
void UpdateAll(float* p, int64_t n) { HWY_DYNAMIC_DISPATCH(Update)(p, n); }
}  // namespace baton::bench
#endif
