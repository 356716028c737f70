#include "decode.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernel/kernels.h"

namespace baton::bench {
namespace {

using kernel::StateDType;

constexpr int64_t kHeads = 128, kN = 128, kP = 64, kSequences = 8;
constexpr int64_t kInner = kHeads * kP, kTailRow = kInner + kN + kHeads;
constexpr int64_t kPrefill = 256;

double Seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Inputs of kPrefill tokens; decode takes the first sixteen.
struct Inputs {
  Inputs() {
    SplitMix64 rng(1);
    const auto fill = [&rng](std::vector<float>* v, int64_t n, double lo, double hi) {
      v->resize(static_cast<size_t>(n));
      for (float& x : *v) x = static_cast<float>(lo + (hi - lo) * rng.Uniform());
    };
    fill(&x, kPrefill * kInner, -1, 1);
    fill(&b, kPrefill * kN, -1, 1);
    fill(&c, kPrefill * kN, -1, 1);
    fill(&dt, kPrefill * kHeads, 0.01, 0.1);
    fill(&decay, kPrefill * kHeads, 0.9, 1);
    y.resize(static_cast<size_t>(kPrefill * kInner));
  }
  std::vector<float> x, b, c, dt, decay, y;
};

void RunF32(const kernel::Kernels& k, Inputs* in, float* state, int64_t t, int64_t tokens) {
  for (int64_t h = 0; h < kHeads; ++h) {
    k.mamba2({.state = state + h * kN * kP,
              .n_state = kN,
              .head_dim = kP,
              .tokens = tokens,
              .x = in->x.data() + t * kInner + h * kP,
              .ldx = kInner,
              .b = in->b.data() + t * kN,
              .c = in->c.data() + t * kN,
              .ldbc = kN,
              .dt = in->dt.data() + t * kHeads + h,
              .decay = in->decay.data() + t * kHeads + h,
              .lddt = kHeads,
              .d = 0.5f,
              .y = in->y.data() + t * kInner + h * kP,
              .ldy = kInner});
  }
}

// One sequence's narrow state of the layer and its tail.
struct Narrow {
  explicit Narrow(StateDType d)
      : dtype(d),
        base(kHeads * kN * kP * kernel::StateElementBytes(d)),
        scales(kHeads * kN),
        tail(kBlockTokens * kTailRow) {}
  StateDType dtype;
  std::vector<uint8_t> base;
  std::vector<uint16_t> scales;
  std::vector<float> tail;
};

// Tokens [t, t + tokens) of one grid step, as a layer does it: dt * x, C . B, all heads, the tail.
void RunNarrow(const kernel::Kernels& k, Inputs* in, Narrow* s, int64_t t, int64_t tokens) {
  const int64_t first = t % kBlockTokens, end = first + tokens;
  const float *dx[kBlockTokens], *b[kBlockTokens], *decay[kBlockTokens];
  float cb[kBlockTokens * kBlockTokens];
  for (int64_t j = 0; j < end; ++j) {
    float* row = s->tail.data() + j * kTailRow;
    dx[j] = row;
    b[j] = row + kInner;
    decay[j] = row + kInner + kN;
    if (j < first) continue;
    const int64_t at = t + j - first;
    for (int64_t h = 0; h < kHeads; ++h)
      k.scale(in->x.data() + at * kInner + h * kP, in->dt[at * kHeads + h], kP, row + h * kP);
    std::memcpy(row + kInner, in->b.data() + at * kN, kN * sizeof(float));
    std::memcpy(row + kInner + kN, in->decay.data() + at * kHeads, kHeads * sizeof(float));
    k.dots(in->c.data() + at * kN, b, 0, j + 1, kN, cb + (j - first) * kBlockTokens);
  }
  const bool fp8 = s->dtype == StateDType::kF8E4M3;
  for (int64_t h = 0; h < kHeads; ++h) {
    const size_t at = static_cast<size_t>(h * kN * kP) * kernel::StateElementBytes(s->dtype);
    k.mamba2_narrow(
        {.dtype = s->dtype,
         .rounding = s->dtype == kernel::StateDType::kF16 ? kernel::Rounding::kNearest
                                                          : kernel::Rounding::kStochastic,
         .base = s->base.data() + at,
         .scales = fp8 ? s->scales.data() + h * kN : nullptr,
         .n_state = kN,
         .head_dim = kP,
         .first = first,
         .tokens = tokens,
         .dx = dx,
         .dx_offset = h * kP,
         .b = b,
         .b_offset = 0,
         .decay = decay,
         .decay_offset = h,
         .c = in->c.data() + t * kN,
         .ldc = kN,
         .cb = cb,
         .ldcb = kBlockTokens,
         .x = in->x.data() + t * kInner + h * kP,
         .ldx = kInner,
         .d = 0.5f,
         .y = in->y.data() + t * kInner + h * kP,
         .ldy = kInner,
         .key = kernel::RoundingKey(0, static_cast<uint32_t>(h), static_cast<uint64_t>(t))});
  }
}

struct Series {
  std::vector<double> ratios;
  void Print(const char* what, const std::string& name) {
    std::sort(ratios.begin(), ratios.end());
    std::printf("  %-10s %-9s %.2f (%.2f to %.2f) of the time of f32\n", what, name.c_str(),
                ratios[ratios.size() / 2], ratios.front(), ratios.back());
  }
};

}  // namespace

void RunDecode(int rounds) {
  const kernel::Kernels& k = kernel::SimdKernels();
  Inputs in;
  std::vector<std::vector<float>> f32(kSequences, std::vector<float>(kHeads * kN * kP));
  const StateDType types[] = {StateDType::kBF16, StateDType::kF16, StateDType::kF8E4M3};
  std::vector<std::vector<Narrow>> narrow;
  for (const StateDType d : types) narrow.emplace_back(kSequences, Narrow(d));
  Series decode[3], prefill[3];
  double decode_f32 = 1e30;
  for (int round = 0; round <= rounds; ++round) {  // the first one touches the memory
    double start = Seconds();
    for (int64_t t = 0; t < kBlockTokens; ++t)
      for (auto& state : f32) RunF32(k, &in, state.data(), t, 1);
    const double f32_decode = Seconds() - start;
    start = Seconds();
    RunF32(k, &in, f32[0].data(), 0, kPrefill);
    const double f32_prefill = Seconds() - start;
    for (size_t i = 0; i < 3; ++i) {
      start = Seconds();
      for (int64_t t = 0; t < kBlockTokens; ++t)
        for (Narrow& s : narrow[i]) RunNarrow(k, &in, &s, t, 1);
      const double mine = Seconds() - start;
      start = Seconds();
      for (int64_t t = 0; t < kPrefill; t += kBlockTokens)
        RunNarrow(k, &in, &narrow[i][0], t, kBlockTokens);
      const double mine_prefill = Seconds() - start;
      if (round == 0) continue;
      decode[i].ratios.push_back(mine / f32_decode);
      prefill[i].ratios.push_back(mine_prefill / f32_prefill);
    }
    if (round > 0) decode_f32 = std::min(decode_f32, f32_decode);
  }
  std::printf("\nstate advance, %lld heads of %lld x %lld, %s; f32 decode %.0f us a layer\n",
              static_cast<long long>(kHeads), static_cast<long long>(kN),
              static_cast<long long>(kP), k.name, decode_f32 * 1e6 / (kBlockTokens * kSequences));
  for (size_t i = 0; i < 3; ++i) {
    const std::string name(kernel::StateDTypeName(types[i]));
    decode[i].Print("decode", name);
    prefill[i].Print("prefill", name);
  }
}

}  // namespace baton::bench
