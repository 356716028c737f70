// The numeric kernels, as one table of functions with two implementations behind it:
// ReferenceKernels() is plain C++ with std::fma, one obvious loop each; SimdKernels() is Highway
// with run-time dispatch. Both give the same bits on every target with FMA (docs/numerics.md):
//
//   * a matrix row's result is one accumulator per output, fma'd in ascending k, whatever the
//     number of rows, their place, the threads;
//   * recurrences of f32 state run in step form, token after token, in place; those of narrow state
//     read a base of the last grid boundary and the inputs since, and round once per 16 tokens;
//   * reductions over a vector (norms, softmax sums) use 16 virtual lanes: element i goes to lane
//     i % 16 in ascending i, then lanes are combined 8, 4, 2, 1 apart: l[j] += l[j + 8], ...;
//   * attention uses absolute splits of kAttentionSplit tokens merged in ascending order;
//   * elementary functions are ours (functions.h), no libm.
//
// All pointers are f32 row-major unless said, aligned to 4 bytes. No function allocates, throws or
// starts threads; callers split the work (a kernel call covers a range) and the split never changes
// a bit. Element-wise kernels may write over an input of the same index. NaN stays NaN, but which
// NaN is not fixed. Thread rule: the tables are constant; calls touch only their arguments.
//
// Speed: a matmul of more than 4 rows copies its rows once per call and 32 panels, so give it many
// panels; conv, mamba1 and attention of one head are fine pieces of work for a thread.
#ifndef BATON_KERNEL_KERNELS_H_
#define BATON_KERNEL_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernel/packed_matrix.h"
#include "kernel/state_dtype.h"

namespace baton::kernel {

inline constexpr int kLanes = 16;             // virtual lanes, panel width, tokens per KV block
inline constexpr int kAttentionSplit = 256;   // tokens per attention split, absolute positions
inline constexpr int kMaxHeadDim = 256;       // of a recurrent head in narrow state
inline constexpr int kMaxAttentionDim = 512;  // of an attention head

// The functions of functions.h that exist as kernels over a vector.
enum class Function : uint8_t {
  kExp,
  kLog1p,
  kSigmoid,
  kSilu,
  kSoftplus,
  kTanh,
  kGelu,
  kGeluTanh,
  kRelu2,
  kExpm1
};

// y[m][n] = sum_k x[m][k] * w[n][k], for panels [panel_begin, panel_end) of 16 outputs each.
// If `accumulate`, the sum starts from y[m][n] instead of 0.
struct MatmulArgs {
  const float* x;
  int64_t ldx;
  int64_t rows;
  const PackedMatrix* w;
  int64_t panel_begin;
  int64_t panel_end;
  float* y;
  int64_t ldy;
  bool accumulate = false;
};

// Causal attention of one sequence, one KV head, `rows` consecutive query rows (GQA: `group`
// query heads share the KV head). Row r attends to tokens [0, first_len + r), or with a window to
// the last `window` of them; blocks wholly before every row's window are not read and may be null.
// KV block b (tokens 16b..16b+15), for this layer and head: K at blocks[b] + k_offset as
// [head_dim][16] (token innermost), V at blocks[b] + v_offset as [16][head_dim].
// Tokens past the row's length or before its window are selected away, never multiplied: they may
// hold anything.
struct AttentionArgs {
  const float* const* blocks;
  int64_t k_offset;
  int64_t v_offset;
  int64_t head_dim;  // <= kMaxAttentionDim
  int64_t group;     // query heads per KV head
  int64_t rows;
  int64_t first_len;  // tokens visible to row 0, >= 1
  float scale;
  const float* q;  // row r, head g at q + r * ldq + g * head_dim
  int64_t ldq;
  float* out;  // same shape as q
  int64_t ldo;
  int64_t window = 0;  // tokens a row sees including itself; 0: all
};

// Depthwise causal convolution, tokens in order, channels [begin, end) of `channels`.
// y[t][c] = act(bias[c] + w[0][c]*s0 + ... + w[K-1][c]*x[t][c]), fma'd in that order starting from
// bias (0 if null); state[j][c], j < K-1, oldest first, is updated in place.
struct ConvArgs {
  float* state;  // [K-1][channels]
  int64_t channels;
  int64_t begin, end;
  int64_t width;        // K, 2..8
  const float* weight;  // [K][channels]; w[K-1] multiplies the newest input
  const float* bias;    // [channels] or null
  int64_t tokens;
  const float* x;  // row t at x + t * ldx
  int64_t ldx;
  float* y;  // row t at y + t * ldy; may not alias x
  int64_t ldy;
  bool silu;
};

// Mamba-2 state advance for one head (models: bamba, granitemoehybrid). S is [N][P], P innermost.
// Per token: dx = dt * x; S[n] = fma(B[n], dx, a * S[n]); y = sum_n fma(C[n], S[n]) from 0;
// y = fma(D, x, y).
struct Mamba2Args {
  float* state;  // [n_state][head_dim]
  int64_t n_state;
  int64_t head_dim;
  int64_t tokens;
  const float* x;  // [head_dim] at x + t * ldx
  int64_t ldx;
  const float* b;  // [n_state] at b + t * ldbc
  const float* c;
  int64_t ldbc;
  const float* dt;     // softplus'd and clamped step at dt[t * lddt]
  const float* decay;  // exp(-exp(A_log) * dt) at decay[t * lddt]
  int64_t lddt;
  float d;
  float* y;  // [head_dim] at y + t * ldy; may not alias x, b, c
  int64_t ldy;
};

// Mamba-1 selective scan for channels [begin, end) (models: jamba). S is [N][I], I innermost.
// Per token and n ascending: S = fma(dt * x, B[n], exp(dt * A[n]) * S); y = fma(S, C[n], y);
// then y = fma(D, x, y).
struct Mamba1Args {
  float* state;  // [n_state][channels]
  int64_t n_state;
  int64_t channels;
  int64_t begin, end;
  int64_t tokens;
  const float* x;  // [channels] at x + t * ldx
  int64_t ldx;
  const float* b;  // [n_state] at b + t * ldbc
  const float* c;
  int64_t ldbc;
  const float* dt;  // [channels] at dt + t * lddt
  int64_t lddt;
  const float* a;  // [n_state][channels], = -exp(A_log)
  const float* d;  // [channels]
  float* y;        // [channels] at y + t * ldy
  int64_t ldy;
};

// Gated delta rule for one value head (models: qwen3_next, qwen3_5, olmo_hybrid). S is [K][V], V
// innermost; columns are independent. Per token: r = sum_i fma(k[i], S[i]) from 0, i ascending;
// u = beta * fma(-decay, r, v); S[i] = fma(k[i], u, decay * S[i]); y = sum_i fma(q[i], S[i]) from
// 0.
struct GatedDeltaArgs {
  float* state;  // [k_dim][v_dim]
  int64_t k_dim;
  int64_t v_dim;
  int64_t tokens;
  const float* q;  // [k_dim] at q + t * ldqk, normalised and scaled
  const float* k;  // normalised
  int64_t ldqk;
  const float* v;  // [v_dim] at v + t * ldv
  int64_t ldv;
  const float* beta;   // share of the error that is written, at beta[t * ldg]
  const float* decay;  // of S before the token, at decay[t * ldg]
  int64_t ldg;
  float* y;  // [v_dim] at y + t * ldy; may not alias q, k, v
  int64_t ldy;
};

// RG-LRU for channels [begin, end) (models: recurrent_gemma). Per token and channel:
// l = sigmoid(decay_gate) * rate; v = sigmoid(input_gate) * x;
// S = fma(exp(l), S, sqrt(-expm1(2l)) * v), but S = v for the first token of a sequence; y = S.
struct RgLruArgs {
  float* state;  // [channels]
  int64_t begin, end;
  int64_t tokens;
  bool from_start;  // token 0 of the call is the sequence's first: the state is not read
  const float* x;   // [channels] at x + t * ldx
  int64_t ldx;
  const float* input_gate;  // [channels] at input_gate + t * ldg, before the sigmoid
  const float* decay_gate;
  int64_t ldg;
  const float* rate;  // [channels], -8 * softplus(recurrent_param)
  float* y;           // [channels] at y + t * ldy
  int64_t ldy;
};

// The second form of Mamba-2, for one head and (a piece of) one grid step: the state S0 at the
// step's first token is a read-only base in a narrow dtype, and token k of the step sees it through
// the inputs of tokens 0..k (tokens before `first` were computed by earlier calls: the tail).
//   w(k) = 1, w(j) = w(j+1) * decay[j+1] for j = k-1 .. 0;  g = w(0) * decay[0];
//   y0[p] = sum_n fma(C[n] * m[n], S0[n][p]) from 0, n ascending;  y = g * y0;
//   y = fma(cb[j] * w(j), dx[j][p], y), j = 0 .. k;  y = fma(D, x, y) if there is an x.
// With the 16th token of the step the base moves on, rounded once:
//   S[n][p] = (g * m[n]) * S0[n][p];  S = fma(w(j) * B[j][n], dx[j][p], S), j = 0 .. 15.
// m[n] is 1, or for e4m3 the row's scale * 256, S0 then being the element / 256 (an exact half).
struct Mamba2NarrowArgs {
  StateDType dtype;  // not kF32
  Rounding rounding;
  void* base;        // [n_state][head_dim]
  uint16_t* scales;  // [n_state] bf16; null unless kF8E4M3
  int64_t n_state;
  int64_t head_dim;  // <= kMaxHeadDim
  int64_t first;     // tokens of the step already computed
  int64_t tokens;    // to compute; first + tokens <= kBlockTokens
  // Of token j of the step, j < first + tokens, each at its pointer plus an offset:
  const float* const* dx;  // dt * x, [head_dim] at dx[j] + dx_offset
  int64_t dx_offset;
  const float* const* b;  // [n_state] at b[j] + b_offset
  int64_t b_offset;
  const float* const* decay;  // one value at decay[j] + decay_offset
  int64_t decay_offset;
  // Of token first + t:
  const float* c;  // [n_state] at c + t * ldc
  int64_t ldc;
  const float* cb;  // C . B[j] (dots) at cb + t * ldcb + j, j <= first + t
  int64_t ldcb;
  const float* x = nullptr;  // [head_dim] at x + t * ldx; null: no D either
  int64_t ldx = 0;
  float d = 0;
  float* y;  // [head_dim] at y + t * ldy; may alias no input
  int64_t ldy;
  uint64_t key;  // of the rounding at the step's end (RoundingKey); kStochastic only
};

// The second form of the gated delta rule, for one value head and (a piece of) one grid step. Once
// u(k), what token k writes along its key, is known, a history is what it is in Mamba-2: S of token
// k is g * S0 and the sum of w(j) * k[j] (x) u[j]. With w, g and m as there, for token k:
//   r0[p] = sum_n fma(k[n] * m[n], S0[n][p]) from 0, n ascending;  r = g * r0;
//   r = fma(kk[j] * w(j), u[j][p], r), j = 0 .. k-1;  u[k] = beta * (v - r);
//   y0[p] = sum_n fma(q[n] * m[n], S0[n][p]) from 0;  y = g * y0;
//   y = fma(qk[j] * w(j), u[j][p], y), j = 0 .. k;
// and the 16th token folds as there.
struct GatedDeltaNarrowArgs {
  // B is k, dx is u, C is q, cb is qk, and there is no x. u of tokens `first` on is written here.
  Mamba2NarrowArgs step;
  // Of token first + t:
  float* u;  // [head_dim] at u + t * ldu, which is step.dx[first + t] + step.dx_offset
  int64_t ldu;
  const float* kk;  // k . k[j] (dots) at kk + t * ldkk + j, j < first + t
  int64_t ldkk;
  const float* v;  // [head_dim] at v + t * ldv
  int64_t ldv;
  const float* beta;  // at beta[t * ldbeta]
  int64_t ldbeta;
};

// Rows of f32 to a narrow dtype and back. Element (r, i) draws RoundingBits(key, r * width + i).
struct NarrowArgs {
  StateDType dtype;  // not kF32
  Rounding rounding;
  uint64_t key;
  int64_t rows;
  int64_t width;
  float* wide;       // [rows][width]: narrow's input, widen's output
  void* narrow;      // [rows][width]
  uint16_t* scales;  // [rows] bf16; null unless kF8E4M3
};

struct Kernels {
  const char* name;  // "reference", "avx2", "avx512", ...

  void (*matmul)(const MatmulArgs&);
  void (*attention)(const AttentionArgs&);
  void (*conv)(const ConvArgs&);
  void (*mamba2)(const Mamba2Args&);
  void (*mamba1)(const Mamba1Args&);
  void (*gated_delta)(const GatedDeltaArgs&);
  void (*rg_lru)(const RgLruArgs&);
  void (*mamba2_narrow)(const Mamba2NarrowArgs&);
  void (*gated_delta_narrow)(const GatedDeltaNarrowArgs&);
  void (*narrow)(const NarrowArgs&);
  void (*widen)(const NarrowArgs&);
  // out[j] = sum_i a[i] * b[j][offset + i] on virtual lanes, j < count.
  void (*dots)(
      const float* a, const float* const* b, int64_t offset, int64_t count, int64_t n, float* out);

  // y = w * x / sqrt(mean(x^2) + eps): sum of squares on virtual lanes, y = (x * inv) * w.
  void (*rms_norm)(const float* x, const float* w, int64_t n, float eps, float* y);
  // Gate first: t = y * silu(z), then rms_norm per group of n / groups elements.
  void (*gated_rms_norm)(const float* y,
                         const float* z,
                         const float* w,
                         int64_t n,
                         int64_t groups,
                         float eps,
                         float* out);
  // out = silu(gate) * up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out = sigmoid(gate) * up.
  void (*sigmoid_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out = a * b.
  void (*multiply)(const float* a, const float* b, int64_t n, float* out);
  // out = f(gate) * up; kSilu gives the bits of silu_mul.
  void (*apply_mul)(Function f, const float* gate, const float* up, int64_t n, float* out);
  // h = fma(m, y, h).
  void (*add_scaled)(const float* y, float m, int64_t n, float* h);
  // y = x * m.
  void (*scale)(const float* x, float m, int64_t n, float* y);
  // out[i] = min(max(softplus(x[i] + bias[i]), lo), hi).
  void (*softplus_bias)(
      const float* x, const float* bias, int64_t n, float lo, float hi, float* out);
  // out[i] = exp(a[i] * x[i]).
  void (*exp_mul)(const float* a, const float* x, int64_t n, float* out);
  // Rotate-half on `rot` leading dims of one head vector: cos/sin hold rot/2 values for the
  // position. x1' = fma(x1, c, -(x2 * s)); x2' = fma(x2, c, x1 * s).
  void (*rope)(float* x, const float* cos, const float* sin, int64_t rot);
  // In place: x = exp(x - max) / sum, sum on virtual lanes.
  void (*softmax)(float* x, int64_t n);
  // y[i] = f(x[i]); y may be x.
  void (*apply)(Function f, const float* x, int64_t n, float* y);
};

const Kernels& ReferenceKernels();
// The best implementation for this CPU. Falls back to the reference on CPUs without FMA.
const Kernels& SimdKernels();
// Every implementation this CPU can run, the reference first: for tests and benchmarks.
std::span<const Kernels* const> SupportedKernels();

// Puts the calling thread into the mode the canonical numerics assume: subnormals kept (FTZ and DAZ
// off), round to nearest even, exceptions masked. Call first on every engine and pool thread.
void SetCanonicalFpMode();

// Digest of fixed inputs run through every function of `k`: the numerics tag of the layout. A
// narrow state adds its own kernels and rounding, so its tag differs.
Sha256 NumericsTag(const Kernels& k,
                   StateDType state = StateDType::kF32,
                   Rounding rounding = Rounding::kNearest);

}  // namespace baton::kernel

#endif  // BATON_KERNEL_KERNELS_H_
