// The numerics tag: fixed pseudo-random inputs through every kernel and every scalar function, the
// output bits digested. Shapes are small, but cross every boundary that could change a bit: rows
// past one register tile, an odd K, a partial panel, more than one attention split, a partial last
// block, subnormal results. It runs in a few milliseconds.
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "base/sha256.h"
#include "kernel/functions.h"
#include "kernel/kernels.h"

namespace baton::kernel {
namespace {

class Inputs {
 public:
  // Uniform in [lo, hi): a product and a sum in double, one rounding to f32.
  std::vector<float> Uniform(int64_t n, double lo, double hi) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng_.Uniform());
    return v;
  }

 private:
  SplitMix64 rng_{0x6261746f6e};
};

void TagMatmul(const Kernels& k, DType dtype, Inputs* in, Sha256Hasher* hash) {
  constexpr int64_t kRows = 19, kOut = 37, kDepth = 301;
  const std::vector<float> w = in->Uniform(kOut * kDepth, -0.5, 0.5);
  const std::vector<float> x = in->Uniform(kRows * kDepth, -2, 2);
  std::vector<float> y = in->Uniform(kRows * kOut, -1, 1);
  // Bit patterns of small f16 numbers come from the same draw: sign and fraction, fixed exponent.
  std::vector<uint16_t> half(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    half[i] = dtype == DType::kBF16
                  ? ToBF16(w[i])
                  : static_cast<uint16_t>((w[i] < 0 ? 0x8000 : 0) | 0x3000 |
                                          static_cast<int>((w[i] < 0 ? -w[i] : w[i]) * 2047));
  }
  const void* src = dtype == DType::kF32 ? static_cast<const void*>(w.data()) : half.data();
  StatusOr<PackedMatrix> m = PackedMatrix::Pack(src, dtype, kOut, kDepth, kDepth, nullptr);
  BATON_CHECK(m.ok());
  for (bool accumulate : {false, true}) {
    k.matmul({.x = x.data(),
              .ldx = kDepth,
              .rows = kRows,
              .w = &*m,
              .panel_begin = 0,
              .panel_end = m->panels(),
              .y = y.data(),
              .ldy = kOut,
              .accumulate = accumulate});
    hash->Update(AsBytes(y));
  }
}

void TagAttention(const Kernels& k, Inputs* in, Sha256Hasher* hash) {
  constexpr int64_t kDim = 24, kGroup = 2, kRows = 5, kFirst = 531;
  constexpr int64_t kBlocks = (kFirst + kRows + kLanes - 1) / kLanes;
  const std::vector<float> kv = in->Uniform(kBlocks * 2 * kDim * kLanes, -1, 1);
  std::vector<const float*> blocks;
  for (int64_t b = 0; b < kBlocks; ++b) blocks.push_back(kv.data() + b * 2 * kDim * kLanes);
  const std::vector<float> q = in->Uniform(kRows * kGroup * kDim, -3, 3);
  std::vector<float> out(q.size());
  k.attention({.blocks = blocks.data(),
               .k_offset = 0,
               .v_offset = kDim * kLanes,
               .head_dim = kDim,
               .group = kGroup,
               .rows = kRows,
               .first_len = kFirst,
               .scale = 0.3f,
               .q = q.data(),
               .ldq = kGroup * kDim,
               .out = out.data(),
               .ldo = kGroup * kDim});
  hash->Update(AsBytes(out));
}

// Window attention that begins and ends inside blocks, over two splits; RG-LRU from the start and
// in two calls; and the products beside them.
void TagWindowAndRgLru(const Kernels& k, Sha256Hasher* hash) {
  Inputs in;
  constexpr int64_t kDim = 24, kGroup = 3, kRows = 3, kFirst = 275, kWindow = 41;
  constexpr int64_t kBlocks = (kFirst + kRows + kLanes - 1) / kLanes;
  const std::vector<float> kv = in.Uniform(kBlocks * 2 * kDim * kLanes, -1, 1);
  std::vector<const float*> blocks;
  for (int64_t b = 0; b < kBlocks; ++b) blocks.push_back(kv.data() + b * 2 * kDim * kLanes);
  const std::vector<float> q = in.Uniform(kRows * kGroup * kDim, -3, 3);
  std::vector<float> out(q.size());
  k.attention({.blocks = blocks.data(),
               .k_offset = 0,
               .v_offset = kDim * kLanes,
               .head_dim = kDim,
               .group = kGroup,
               .rows = kRows,
               .first_len = kFirst,
               .scale = 0.3f,
               .q = q.data(),
               .ldq = kGroup * kDim,
               .out = out.data(),
               .ldo = kGroup * kDim,
               .window = kWindow});
  hash->Update(AsBytes(out));

  constexpr int64_t kTokens = 5, kChannels = 21;
  const std::vector<float> x = in.Uniform(kTokens * kChannels, -2, 2);
  const std::vector<float> gates = in.Uniform(2 * kTokens * kChannels, -6, 6);
  const std::vector<float> rate = in.Uniform(kChannels, -8, 0);
  std::vector<float> state(kChannels), y(x.size());
  for (const bool from_start : {true, false}) {
    k.rg_lru({.state = state.data(),
              .begin = 0,
              .end = kChannels,
              .tokens = kTokens,
              .from_start = from_start,
              .x = x.data(),
              .ldx = kChannels,
              .input_gate = gates.data(),
              .decay_gate = gates.data() + kTokens * kChannels,
              .ldg = kChannels,
              .rate = rate.data(),
              .y = y.data(),
              .ldy = kChannels});
    hash->Update(AsBytes(state));
    hash->Update(AsBytes(y));
  }
  const int64_t n = kTokens * kChannels;
  k.sigmoid_mul(gates.data(), x.data(), n, y.data());
  hash->Update(AsBytes(y));
  k.multiply(gates.data(), x.data(), n, y.data());
  hash->Update(AsBytes(y));
  k.apply(Function::kExpm1, gates.data(), n, y.data());
  hash->Update(AsBytes(y));
}

// The gated delta rule in two calls, over whole and partial vectors of columns.
void TagGatedDelta(const Kernels& k, Sha256Hasher* hash) {
  Inputs in;
  constexpr int64_t kTokens = 6, kCut = 5, kK = 11, kV = 85;
  const std::vector<float> q = in.Uniform(kTokens * kK, -1, 1);
  const std::vector<float> keys = in.Uniform(kTokens * kK, -1, 1);
  const std::vector<float> v = in.Uniform(kTokens * kV, -2, 2);
  const std::vector<float> beta = in.Uniform(kTokens, 0, 2);
  const std::vector<float> decay = in.Uniform(kTokens, 0.5, 1);
  std::vector<float> state = in.Uniform(kK * kV, -1, 1), y(v.size());
  for (const int64_t t : {int64_t{0}, kCut}) {
    k.gated_delta({.state = state.data(),
                   .k_dim = kK,
                   .v_dim = kV,
                   .tokens = t == 0 ? kCut : kTokens - kCut,
                   .q = q.data() + t * kK,
                   .k = keys.data() + t * kK,
                   .ldqk = kK,
                   .v = v.data() + t * kV,
                   .ldv = kV,
                   .beta = beta.data() + t,
                   .decay = decay.data() + t,
                   .ldg = 1,
                   .y = y.data() + t * kV,
                   .ldy = kV});
  }
  hash->Update(AsBytes(state));
  hash->Update(AsBytes(y));
}

void TagRecurrences(const Kernels& k, Inputs* in, Sha256Hasher* hash) {
  constexpr int64_t kTokens = 9, kN = 13, kP = 40;
  const std::vector<float> x = in->Uniform(kTokens * kP, -2, 2);
  const std::vector<float> b = in->Uniform(kTokens * kN, -1, 1);
  const std::vector<float> c = in->Uniform(kTokens * kN, -1, 1);
  const std::vector<float> dt = in->Uniform(kTokens * kP, 0.001, 1);
  const std::vector<float> decay = in->Uniform(kTokens, 0.5, 1);
  const std::vector<float> a = in->Uniform(kN * kP, -4, 0);
  const std::vector<float> d = in->Uniform(kP, -1, 1);
  std::vector<float> state = in->Uniform(kN * kP, -1, 1);
  std::vector<float> y(x.size());
  k.mamba2({.state = state.data(),
            .n_state = kN,
            .head_dim = kP,
            .tokens = kTokens,
            .x = x.data(),
            .ldx = kP,
            .b = b.data(),
            .c = c.data(),
            .ldbc = kN,
            .dt = dt.data(),
            .decay = decay.data(),
            .lddt = 1,
            .d = d[0],
            .y = y.data(),
            .ldy = kP});
  hash->Update(AsBytes(state));
  hash->Update(AsBytes(y));
  k.mamba1({.state = state.data(),
            .n_state = kN,
            .channels = kP,
            .begin = 0,
            .end = kP,
            .tokens = kTokens,
            .x = x.data(),
            .ldx = kP,
            .b = b.data(),
            .c = c.data(),
            .ldbc = kN,
            .dt = dt.data(),
            .lddt = kP,
            .a = a.data(),
            .d = d.data(),
            .y = y.data(),
            .ldy = kP});
  hash->Update(AsBytes(state));
  hash->Update(AsBytes(y));
  constexpr int64_t kWidth = 4;
  const std::vector<float> w = in->Uniform(kWidth * kP, -1, 1);
  for (bool silu : {false, true}) {
    k.conv({.state = state.data(),
            .channels = kP,
            .begin = 0,
            .end = kP,
            .width = kWidth,
            .weight = w.data(),
            .bias = silu ? d.data() : nullptr,
            .tokens = kTokens,
            .x = x.data(),
            .ldx = kP,
            .y = y.data(),
            .ldy = kP,
            .silu = silu});
    hash->Update(AsBytes(state));
    hash->Update(AsBytes(y));
  }
}

// From 1 down to where narrow formats have no normal numbers any more.
void SpreadFirstRow(int64_t width, std::vector<float>* state) {
  for (int64_t i = 0; i < width; ++i)
    (*state)[i] = std::ldexp((*state)[i], -static_cast<int>(26 * i / width));
}

// Two calls over one grid step: the second one sees a tail and folds. One token is computed in
// another way than many (decode); a row of 85 is whole vectors, pairs of them, and a part.
void TagNarrow(
    const Kernels& k, StateDType dtype, Rounding rounding, Inputs* in, Sha256Hasher* hash) {
  constexpr int64_t kN = 13, kP = 85, kStep = kBlockTokens, kCut = 1;
  std::vector<float> state = in->Uniform(kN * kP, -1, 1);
  SpreadFirstRow(kP, &state);
  const std::vector<float> x = in->Uniform(kStep * kP, -2, 2);
  const std::vector<float> b = in->Uniform(kStep * kN, -1, 1);
  const std::vector<float> c = in->Uniform(kStep * kN, -1, 1);
  const std::vector<float> decay = in->Uniform(kStep, 0.5, 1);
  std::vector<uint8_t> base(kN * kP * StateElementBytes(dtype));
  std::vector<uint16_t> scales(kN);
  std::vector<float> y(kStep * kP), cb(kStep * kStep);
  const float *dx_at[kStep], *b_at[kStep], *decay_at[kStep];
  for (int64_t j = 0; j < kStep; ++j) {
    dx_at[j] = x.data() + j * kP;
    b_at[j] = b.data() + j * kN;
    decay_at[j] = decay.data() + j;
    k.dots(c.data() + j * kN, b_at, 0, j + 1, kN, cb.data() + j * kStep);
  }
  const bool scaled = dtype == StateDType::kF8E4M3;
  const NarrowArgs rows = {.dtype = dtype,
                           .rounding = rounding,
                           .key = RoundingKey(1, 2, 48),
                           .rows = kN,
                           .width = kP,
                           .wide = state.data(),
                           .narrow = base.data(),
                           .scales = scaled ? scales.data() : nullptr};
  k.narrow(rows);
  for (const int64_t first : {int64_t{0}, kCut}) {
    k.mamba2_narrow({.dtype = dtype,
                     .rounding = rounding,
                     .base = base.data(),
                     .scales = rows.scales,
                     .n_state = kN,
                     .head_dim = kP,
                     .first = first,
                     .tokens = first == 0 ? kCut : kStep - kCut,
                     .dx = dx_at,
                     .dx_offset = 0,
                     .b = b_at,
                     .b_offset = 0,
                     .decay = decay_at,
                     .decay_offset = 0,
                     .c = c.data() + first * kN,
                     .ldc = kN,
                     .cb = cb.data() + first * kStep,
                     .ldcb = kStep,
                     .x = x.data() + first * kP,
                     .ldx = kP,
                     .d = 0.3f,
                     .y = y.data() + first * kP,
                     .ldy = kP,
                     .key = RoundingKey(1, 2, 64)});
  }
  k.widen(rows);
  for (const auto& v : {state, y, cb}) hash->Update(AsBytes(v));
  hash->Update(AsBytes(base));
  hash->Update(AsBytes(scales));
}

// The same for the gated delta rule, one token alone and then the rest.
void TagDeltaNarrow(const Kernels& k, StateDType dtype, Rounding rounding, Sha256Hasher* hash) {
  Inputs in;
  constexpr int64_t kK = 13, kV = 85, kStep = kBlockTokens, kCut = 1;
  std::vector<float> state = in.Uniform(kK * kV, -1, 1);
  SpreadFirstRow(kV, &state);
  const std::vector<float> q = in.Uniform(kStep * kK, -1, 1);
  const std::vector<float> keys = in.Uniform(kStep * kK, -0.4, 0.4);
  const std::vector<float> v = in.Uniform(kStep * kV, -2, 2);
  const std::vector<float> beta = in.Uniform(kStep, 0, 2);
  const std::vector<float> decay = in.Uniform(kStep, 0.5, 1);
  std::vector<uint8_t> base(kK * kV * StateElementBytes(dtype));
  std::vector<uint16_t> scales(kK);
  std::vector<float> u(kStep * kV), y(kStep * kV), kk(kStep * kStep), qk(kStep * kStep);
  const float *u_at[kStep], *k_at[kStep], *decay_at[kStep];
  for (int64_t j = 0; j < kStep; ++j) {
    u_at[j] = u.data() + j * kV;
    k_at[j] = keys.data() + j * kK;
    decay_at[j] = decay.data() + j;
    k.dots(keys.data() + j * kK, k_at, 0, j, kK, kk.data() + j * kStep);
    k.dots(q.data() + j * kK, k_at, 0, j + 1, kK, qk.data() + j * kStep);
  }
  const NarrowArgs rows = {.dtype = dtype,
                           .rounding = rounding,
                           .key = RoundingKey(3, 2, 48),
                           .rows = kK,
                           .width = kV,
                           .wide = state.data(),
                           .narrow = base.data(),
                           .scales = dtype == StateDType::kF8E4M3 ? scales.data() : nullptr};
  k.narrow(rows);
  for (const int64_t first : {int64_t{0}, kCut}) {
    k.gated_delta_narrow({.step = {.dtype = dtype,
                                   .rounding = rounding,
                                   .base = base.data(),
                                   .scales = rows.scales,
                                   .n_state = kK,
                                   .head_dim = kV,
                                   .first = first,
                                   .tokens = first == 0 ? kCut : kStep - kCut,
                                   .dx = u_at,
                                   .dx_offset = 0,
                                   .b = k_at,
                                   .b_offset = 0,
                                   .decay = decay_at,
                                   .decay_offset = 0,
                                   .c = q.data() + first * kK,
                                   .ldc = kK,
                                   .cb = qk.data() + first * kStep,
                                   .ldcb = kStep,
                                   .y = y.data() + first * kV,
                                   .ldy = kV,
                                   .key = RoundingKey(3, 2, 64)},
                          .u = u.data() + first * kV,
                          .ldu = kV,
                          .kk = kk.data() + first * kStep,
                          .ldkk = kStep,
                          .v = v.data() + first * kV,
                          .ldv = kV,
                          .beta = beta.data() + first,
                          .ldbeta = 1});
  }
  k.widen(rows);
  for (const auto& values : {state, u, y}) hash->Update(AsBytes(values));
  hash->Update(AsBytes(base));
  hash->Update(AsBytes(scales));
}

void TagElementwise(const Kernels& k, Inputs* in, Sha256Hasher* hash) {
  constexpr int64_t kN = 102;
  const std::vector<float> x = in->Uniform(kN, -6, 6);
  const std::vector<float> z = in->Uniform(kN, -90, 90);
  const std::vector<float> w = in->Uniform(kN, 0.5, 1.5);
  std::vector<float> y(kN);
  const auto add = [&] { hash->Update(AsBytes(y)); };
  k.rms_norm(x.data(), w.data(), kN, 1e-5f, y.data()), add();
  k.gated_rms_norm(x.data(), z.data(), w.data(), kN, 3, 1e-5f, y.data()), add();
  k.silu_mul(z.data(), x.data(), kN, y.data()), add();
  k.add_scaled(x.data(), 0.22f, kN, y.data()), add();
  k.scale(x.data(), 12.3f, kN, y.data()), add();
  k.softplus_bias(z.data(), w.data(), kN, 0.001f, 60.0f, y.data()), add();
  k.exp_mul(x.data(), z.data(), kN, y.data()), add();
  y = x;
  k.rope(y.data(), w.data(), x.data(), 46), add();
  k.softmax(y.data(), kN), add();
  for (Function f :
       {Function::kExp, Function::kLog1p, Function::kSigmoid, Function::kSilu, Function::kSoftplus,
        Function::kTanh, Function::kGelu, Function::kGeluTanh, Function::kRelu2}) {
    const bool positive = f == Function::kLog1p;
    k.apply(f, positive ? w.data() : z.data(), kN, y.data()), add();
  }
  for (Function f : {Function::kGelu, Function::kGeluTanh, Function::kSigmoid})
    k.apply_mul(f, x.data(), w.data(), kN, y.data()), add();
}

void TagScalars(Inputs* in, Sha256Hasher* hash) {
  std::vector<float> out;
  for (float v : in->Uniform(64, 0, 50000)) {
    float s, c;
    SinCos(v, &s, &c);
    out.insert(out.end(), {s, c, Log(v), Exp(v * -1e-3f), Log1p(v), Tanh(v * 1e-4f)});
    out.push_back(static_cast<float>(PowPositive(10000.0, v * -1e-5)));
  }
  hash->Update(AsBytes(out));
}

}  // namespace

Sha256 NumericsTag(const Kernels& k, StateDType state, Rounding rounding) {
  Inputs in;
  Sha256Hasher hash;
  hash.Update("baton numerics 1");
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) TagMatmul(k, t, &in, &hash);
  TagAttention(k, &in, &hash);
  TagRecurrences(k, &in, &hash);
  TagElementwise(k, &in, &hash);
  TagScalars(&in, &hash);
  TagWindowAndRgLru(k, &hash);
  TagGatedDelta(k, &hash);
  if (state != StateDType::kF32) {
    TagNarrow(k, state, rounding, &in, &hash);
    TagDeltaNarrow(k, state, rounding, &hash);
  }
  return hash.Finish();
}

}  // namespace baton::kernel
