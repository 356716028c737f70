#include "rounding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::bench {
namespace {

using kernel::Mamba2Args;
using kernel::NarrowArgs;
using kernel::StateDType;

struct Current {
  Policy policy;
  int64_t position = 0;
  const std::byte* slot = nullptr;
} current;

// Narrow and back; the generator's key names the head by its place in the slot.
void RoundState(const Mamba2Args& a, int64_t boundary) {
  thread_local std::vector<uint16_t> codes, scales;
  codes.resize(static_cast<size_t>(a.n_state * a.head_dim));
  scales.resize(static_cast<size_t>(a.n_state));
  const auto place = reinterpret_cast<const std::byte*>(a.state) - current.slot;
  NarrowArgs n = {.dtype = current.policy.dtype,
                  .rounding = current.policy.rounding,
                  .key = kernel::RoundingKey(static_cast<uint32_t>(place / 64), 0,
                                             static_cast<uint64_t>(boundary)),
                  .rows = a.n_state,
                  .width = a.head_dim,
                  .wide = a.state,
                  .narrow = codes.data(),
                  .scales = current.policy.dtype == StateDType::kF8E4M3 ? scales.data() : nullptr};
  kernel::SimdKernels().narrow(n);
  kernel::SimdKernels().widen(n);
}

void RoundingMamba2(const Mamba2Args& a) {
  const int64_t every = current.policy.every;
  for (int64_t t = 0; t < a.tokens;) {
    const int64_t at = current.position + t;
    const int64_t n = every == 0 ? a.tokens : std::min(every - at % every, a.tokens - t);
    Mamba2Args piece = a;
    piece.tokens = n;
    piece.x += t * a.ldx;
    piece.b += t * a.ldbc;
    piece.c += t * a.ldbc;
    piece.dt += t * a.lddt;
    piece.decay += t * a.lddt;
    piece.y += t * a.ldy;
    kernel::SimdKernels().mamba2(piece);
    t += n;
    if (every != 0 && (at + n) % every == 0) RoundState(a, at + n);
  }
}

}  // namespace

std::string Name(const Policy& p) {
  if (p.every == 0) return "f32";
  return absl::StrCat(std::string(kernel::StateDTypeName(p.dtype)),
                      p.rounding == kernel::Rounding::kNearest ? " nearest" : " stochastic",
                      ", every ", p.every);
}

std::vector<Policy> AllPolicies(int64_t rest_every) {
  std::vector<Policy> all = {Policy()};
  for (const StateDType d : {StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3})
    for (const kernel::Rounding r : {kernel::Rounding::kNearest, kernel::Rounding::kStochastic})
      for (const int64_t every : {int64_t{1}, kBlockTokens, rest_every})
        all.push_back({d, r, every});
  return all;
}

const kernel::Kernels& RoundingKernels() {
  static const kernel::Kernels table = [] {
    kernel::Kernels k = kernel::SimdKernels();
    k.mamba2 = RoundingMamba2;
    return k;
  }();
  return table;
}

void BeginCall(const Policy& policy, int64_t position, const std::byte* slot) {
  current = {policy, position, slot};
}

}  // namespace baton::bench
