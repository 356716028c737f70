#include "kernel/reference/functions-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {

void GatedDelta(const GatedDeltaArgs& a) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.ldqk;
    const float* q = a.q + t * a.ldqk;
    const float decay = a.decay[t * a.ldg];
    for (int64_t p = 0; p < a.v_dim; ++p) {
      float read = 0.0f;
      for (int64_t i = 0; i < a.k_dim; ++i) read = Fma(k[i], a.state[i * a.v_dim + p], read);
      const float u = a.beta[t * a.ldg] * Fma(-decay, read, a.v[t * a.ldv + p]);
      float y = 0.0f;
      for (int64_t i = 0; i < a.k_dim; ++i) {
        float& s = a.state[i * a.v_dim + p];
        s = Fma(k[i], u, decay * s);
        y = Fma(q[i], s, y);
      }
      a.y[t * a.ldy + p] = y;
    }
  }
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
