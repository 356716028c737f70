#include "kernel/reference/functions-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {

void Conv(const ConvArgs& a) {
  const int64_t history = a.width - 1;
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t c = a.begin; c < a.end; ++c) {
      float* s = a.state + c;
      const float* w = a.weight + c;
      const float x = a.x[t * a.ldx + c];
      float y = a.bias != nullptr ? a.bias[c] : 0.0f;
      for (int64_t j = 0; j < history; ++j) y = Fma(w[j * a.channels], s[j * a.channels], y);
      y = Fma(w[history * a.channels], x, y);
      a.y[t * a.ldy + c] = a.silu ? SiluOf(y) : y;
      for (int64_t j = 0; j + 1 < history; ++j) s[j * a.channels] = s[(j + 1) * a.channels];
      s[(history - 1) * a.channels] = x;
    }
  }
}

void Mamba2(const Mamba2Args& a) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* x = a.x + t * a.ldx;
    const float* b = a.b + t * a.ldbc;
    const float* c = a.c + t * a.ldbc;
    const float dt = a.dt[t * a.lddt];
    const float decay = a.decay[t * a.lddt];
    for (int64_t p = 0; p < a.head_dim; ++p) {
      const float dx = dt * x[p];
      float y = 0.0f;
      for (int64_t n = 0; n < a.n_state; ++n) {
        float& s = a.state[n * a.head_dim + p];
        s = Fma(b[n], dx, decay * s);
        y = Fma(c[n], s, y);
      }
      a.y[t * a.ldy + p] = Fma(a.d, x[p], y);
    }
  }
}

void Mamba1(const Mamba1Args& a) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* b = a.b + t * a.ldbc;
    const float* c = a.c + t * a.ldbc;
    for (int64_t i = a.begin; i < a.end; ++i) {
      const float x = a.x[t * a.ldx + i];
      const float dt = a.dt[t * a.lddt + i];
      const float dx = dt * x;
      float y = 0.0f;
      for (int64_t n = 0; n < a.n_state; ++n) {
        float& s = a.state[n * a.channels + i];
        s = Fma(dx, b[n], ExpOf(dt * a.a[n * a.channels + i]) * s);
        y = Fma(s, c[n], y);
      }
      a.y[t * a.ldy + i] = Fma(a.d[i], x, y);
    }
  }
}

void RgLru(const RgLruArgs& a) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t c = a.begin; c < a.end; ++c) {
      const float l = SigmoidOf(a.decay_gate[t * a.ldg + c]) * a.rate[c];
      const float v = SigmoidOf(a.input_gate[t * a.ldg + c]) * a.x[t * a.ldx + c];
      const float share = __builtin_sqrtf(-Expm1Of(l + l));
      float& s = a.state[c];
      s = a.from_start && t == 0 ? v : Fma(ExpOf(l), s, share * v);
      a.y[t * a.ldy + c] = s;
    }
  }
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
