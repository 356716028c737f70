#include "cases.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/rng.h"

namespace baton::bench {
namespace {

using kernel::DType;
using kernel::Kernels;
using kernel::PackedMatrix;

Floats Uniform(int64_t n, double lo = -1, double hi = 1) {
  static SplitMix64 rng(7);
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng.Uniform());
  return v;
}

template <class T>
std::shared_ptr<T> Share(T v) {
  return std::make_shared<T>(std::move(v));
}

PackedMatrix Weights(DType dtype, int64_t rows, int64_t cols, ThreadPool* pool) {
  const Floats w = Uniform(rows * cols);
  std::vector<uint16_t> half;
  if (dtype != DType::kF32) {
    for (float v : w)
      half.push_back(dtype == DType::kBF16
                         ? kernel::ToBF16(v)
                         : static_cast<uint16_t>((v < 0 ? 0xb000 : 0x3000) | int(v * v * 1023)));
  }
  const void* src = dtype == DType::kF32 ? static_cast<const void*>(w.data()) : half.data();
  auto m = PackedMatrix::Pack(src, dtype, rows, cols, cols, pool);
  BATON_CHECK(m.ok());
  return *std::move(m);
}

constexpr const char* kDTypeName[] = {"f32", "bf16", "f16"};

Case MatmulCase(DType dtype, int64_t rows, int64_t out, int64_t depth, ThreadPool* pool) {
  auto w = Share(Weights(dtype, out, depth, pool));
  auto x = Share(Uniform(rows * depth));
  auto y = Share(Floats(static_cast<size_t>(rows * out)));
  const int64_t chunk = pool->threads() > 1 ? 16 : w->panels();
  Case c;
  c.name = "matmul " + std::string(kDTypeName[int(dtype)]) + " " + std::to_string(rows) + "x" +
           std::to_string(out) + "x" + std::to_string(depth);
  c.bound = rows == 1 ? Bound::kRead : Bound::kFma;
  c.work = rows == 1 ? double(w->bytes()) : 2.0 * rows * out * depth;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor((w->panels() + chunk - 1) / chunk, [&](int64_t i) {
      k.matmul({.x = x->data(),
                .ldx = depth,
                .rows = rows,
                .w = w.get(),
                .panel_begin = i * chunk,
                .panel_end = std::min((i + 1) * chunk, w->panels()),
                .y = y->data(),
                .ldy = out});
    });
  };
  c.out = [=] { return *y; };
  return c;
}

Case Mamba2Case(int64_t tokens, int64_t heads, ThreadPool* pool) {
  constexpr int64_t kP = 64, kN = 128;
  const int64_t ldx = std::min<int64_t>(heads, 24) * kP + 2 * kN;
  const int64_t wrap = std::min<int64_t>(heads, 24);  // heads beyond these are other sequences
  auto start = Share(Uniform(heads * kP * kN));
  auto state = Share(*start);
  auto x = Share(Uniform(tokens * ldx));
  auto dt = Share(Uniform(tokens * wrap, 0.001, 0.1));
  auto decay = Share(Uniform(tokens * wrap, 0.9, 1));
  auto y = Share(Floats(static_cast<size_t>(tokens * wrap * kP)));
  Case c;
  c.name = "mamba2 " + std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads";
  c.bound = tokens == 1 ? Bound::kUpdate : Bound::kFma;
  c.work = tokens == 1 ? 8.0 * heads * kP * kN : 5.0 * tokens * heads * kP * kN;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor(wrap, [&](int64_t h0) {
      for (int64_t h = h0; h < heads; h += wrap)
        k.mamba2({.state = state->data() + h * kP * kN,
                  .n_state = kN,
                  .head_dim = kP,
                  .tokens = tokens,
                  .x = x->data() + h0 * kP,
                  .ldx = ldx,
                  .b = x->data() + wrap * kP,
                  .c = x->data() + wrap * kP + kN,
                  .ldbc = ldx,
                  .dt = dt->data() + h0,
                  .decay = decay->data() + h0,
                  .lddt = wrap,
                  .d = 0.5f,
                  .y = y->data() + h0 * kP,
                  .ldy = wrap * kP});
    });
  };
  c.out = [=] {
    Floats all = *y;
    all.insert(all.end(), state->begin(), state->end());
    return all;
  };
  c.reset = [=] { *state = *start; };
  return c;
}

// `heads` value heads, two to a key head.
Case GatedDeltaCase(int64_t tokens, int64_t heads, int64_t dim, ThreadPool* pool) {
  const int64_t wrap = std::min<int64_t>(heads, 32);  // heads beyond these are other sequences
  auto start = Share(Uniform(heads * dim * dim, -0.1, 0.1));
  auto state = Share(*start);
  auto qk = Share(Uniform(tokens * wrap * dim, -0.1, 0.1));  // q of wrap / 2 heads, then k
  auto v = Share(Uniform(tokens * wrap * dim));
  auto gates = Share(Uniform(tokens * 2 * wrap, 0.9, 1));
  auto y = Share(Floats(v->size()));
  Case c;
  c.name = "gated delta " + std::to_string(tokens) + " tokens, " + std::to_string(heads) +
           " heads of " + std::to_string(dim);
  c.bound = tokens == 1 ? Bound::kUpdate : Bound::kFma;
  c.work = (tokens == 1 ? 8.0 : 7.0 * tokens) * heads * dim * dim;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor(wrap, [&](int64_t h0) {
      const int64_t each = heads / wrap;
      for (int64_t h = h0 * each; h < (h0 + 1) * each; ++h)
        k.gated_delta({.state = state->data() + h * dim * dim,
                       .k_dim = dim,
                       .v_dim = dim,
                       .tokens = tokens,
                       .q = qk->data() + h0 / 2 * dim,
                       .k = qk->data() + (wrap + h0) / 2 * dim,
                       .ldqk = wrap * dim,
                       .v = v->data() + h0 * dim,
                       .ldv = wrap * dim,
                       .beta = gates->data() + h0,
                       .decay = gates->data() + wrap + h0,
                       .ldg = 2 * wrap,
                       .y = y->data() + h0 * dim,
                       .ldy = wrap * dim});
    });
  };
  c.out = [=] {
    Floats all = *y;
    all.insert(all.end(), state->begin(), state->end());
    return all;
  };
  c.reset = [=] { *state = *start; };
  return c;
}

Case Mamba1Case(int64_t tokens, int64_t channels) {
  constexpr int64_t kN = 16;
  auto start = Share(Uniform(channels * kN));
  auto state = Share(*start);
  auto x = Share(Uniform(tokens * channels));
  auto bc = Share(Uniform(tokens * 2 * kN));
  auto dt = Share(Uniform(tokens * channels, 0.001, 0.1));
  auto a = Share(Uniform(kN * channels, -4, 0));
  auto d = Share(Uniform(channels));
  auto y = Share(Floats(static_cast<size_t>(tokens * channels)));
  Case c;
  c.name = "mamba1 " + std::to_string(tokens) + " tokens, " + std::to_string(channels) + " ch";
  c.bound = Bound::kFma;
  c.work = 24.0 * tokens * channels * kN;  // exp: 17, the rest: 7
  c.run = [=](const Kernels& k) {
    k.mamba1({.state = state->data(),
              .n_state = kN,
              .channels = channels,
              .begin = 0,
              .end = channels,
              .tokens = tokens,
              .x = x->data(),
              .ldx = channels,
              .b = bc->data(),
              .c = bc->data() + kN,
              .ldbc = 2 * kN,
              .dt = dt->data(),
              .lddt = channels,
              .a = a->data(),
              .d = d->data(),
              .y = y->data(),
              .ldy = channels});
  };
  c.out = [=] {
    Floats all = *y;
    all.insert(all.end(), state->begin(), state->end());
    return all;
  };
  c.reset = [=] { *state = *start; };
  return c;
}

// `heads` KV heads, each with its own blocks.
Case AttentionCase(
    int64_t rows, int64_t context, int64_t dim, int64_t group, int64_t heads, ThreadPool* pool) {
  const int64_t blocks = (context + 15) / 16;
  const int64_t block = 2 * dim * 16;
  auto kv = Share(Uniform(heads * blocks * block));
  std::vector<const float*> pointers;
  for (int64_t b = 0; b < heads * blocks; ++b) pointers.push_back(kv->data() + b * block);
  auto table = Share(std::make_pair(std::move(pointers), kv));  // keeps the blocks alive
  auto q = Share(Uniform(rows * heads * group * dim));
  auto y = Share(Floats(q->size()));
  const int64_t first = context - rows + 1;
  const double keys = double(rows) * (first + context) / 2;
  Case c;
  c.name = "attention " + std::to_string(rows) + " rows, context " + std::to_string(context) +
           ", D" + std::to_string(dim) + " group " + std::to_string(group) + " heads " +
           std::to_string(heads);
  c.bound = rows == 1 ? Bound::kRead : Bound::kFma;
  c.work = rows == 1 ? 4.0 * heads * blocks * block : 4.0 * dim * keys * group * heads;
  c.run = [=](const Kernels& k) {
    pool->ParallelFor(heads, [&](int64_t h) {
      k.attention({.blocks = table->first.data() + h * blocks,
                   .k_offset = 0,
                   .v_offset = dim * 16,
                   .head_dim = dim,
                   .group = group,
                   .rows = rows,
                   .first_len = first,
                   .scale = 0.125f,
                   .q = q->data() + h * group * dim,
                   .ldq = heads * group * dim,
                   .out = y->data() + h * group * dim,
                   .ldo = heads * group * dim});
    });
  };
  c.out = [=] { return *y; };
  return c;
}

Case ConvCase(int64_t tokens, int64_t channels) {
  auto start = Share(Uniform(3 * channels));
  auto state = Share(*start);
  auto w = Share(Uniform(4 * channels));
  auto x = Share(Uniform(tokens * channels));
  auto y = Share(Floats(x->size()));
  Case c;
  c.name = "conv+silu " + std::to_string(tokens) + " tokens, " + std::to_string(channels) + " ch";
  c.bound = Bound::kFma;
  c.work = 29.0 * tokens * channels;  // 4 fma and a silu of about 21
  c.run = [=](const Kernels& k) {
    k.conv({.state = state->data(),
            .channels = channels,
            .begin = 0,
            .end = channels,
            .width = 4,
            .weight = w->data(),
            .bias = w->data(),
            .tokens = tokens,
            .x = x->data(),
            .ldx = channels,
            .y = y->data(),
            .ldy = channels,
            .silu = true});
  };
  c.out = [=] { return *y; };
  c.reset = [=] { *state = *start; };
  return c;
}

Case VectorCase(const char* name,
                double flops,
                void (*run)(const Kernels&, const float*, const float*, float*, int64_t)) {
  constexpr int64_t kN = 8192;
  auto x = Share(Uniform(kN, -8, 8));
  auto w = Share(Uniform(kN));
  auto y = Share(Floats(kN));
  Case c;
  c.name = std::string(name) + " " + std::to_string(kN);
  c.bound = Bound::kFma;
  c.work = flops * kN * 32;
  c.run = [=](const Kernels& k) {
    for (int i = 0; i < 32; ++i) run(k, x->data(), w->data(), y->data(), kN);
  };
  c.out = [=] { return *y; };
  return c;
}

}  // namespace

std::vector<Case> MakeCases(ThreadPool* pool, ThreadPool* one) {
  std::vector<Case> cases;
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    cases.push_back(MatmulCase(t, 1, 32768, 768, pool));
  for (int64_t rows : {2, 4, 8, 16, 64, 512})
    cases.push_back(MatmulCase(DType::kF32, rows, 2048, 768, one));
  for (int64_t rows : {16, 512}) {
    cases.push_back(MatmulCase(DType::kBF16, rows, 2048, 768, one));
    cases.push_back(MatmulCase(DType::kF16, rows, 2048, 768, one));
  }
  cases.push_back(MatmulCase(DType::kF32, 512, 768, 4096, one));
  cases.push_back(Mamba2Case(512, 24, one));
  cases.push_back(Mamba2Case(16, 24, one));
  cases.push_back(Mamba2Case(1, 24 * 96, pool));
  cases.push_back(GatedDeltaCase(512, 32, 128, one));
  cases.push_back(GatedDeltaCase(16, 32, 128, one));
  cases.push_back(GatedDeltaCase(1, 32 * 48, 128, pool));
  cases.push_back(Mamba1Case(128, 1536));
  cases.push_back(AttentionCase(512, 512, 64, 1, 4, one));
  cases.push_back(AttentionCase(512, 512, 128, 4, 1, one));
  cases.push_back(AttentionCase(1, 4096, 64, 1, 32, pool));
  cases.push_back(AttentionCase(1, 4096, 128, 4, 16, pool));
  cases.push_back(ConvCase(512, 1792));
  cases.push_back(VectorCase(
      "rms_norm", 4, [](const Kernels& k, const float* x, const float* w, float* y, int64_t n) {
        k.rms_norm(x, w, n, 1e-5f, y);
      }));
  cases.push_back(VectorCase(
      "silu_mul", 22, [](const Kernels& k, const float* x, const float* w, float* y, int64_t n) {
        k.silu_mul(x, w, n, y);
      }));
  return cases;
}

}  // namespace baton::bench
