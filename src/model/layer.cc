#include "model/layer.h"

namespace baton::model {

void AddAndNorm(const Step& step, NormRef norm, Hidden* hidden) {
  const int64_t width = hidden->width;
  step.For(hidden->rows, width / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (hidden->pending)
        step.kernels().add_scaled(hidden->y[r], hidden->pending_scale, width, hidden->h[r]);
      step.kernels().rms_norm(hidden->h[r], norm.weight->data(), width, norm.eps, hidden->x[r]);
    }
  });
  hidden->pending = false;
}

void AddPending(const Step& step, Hidden* hidden) {
  if (!hidden->pending) return;
  const int64_t width = hidden->width;
  step.For(hidden->rows, width / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().add_scaled(hidden->y[r], hidden->pending_scale, width, hidden->h[r]);
  });
  hidden->pending = false;
}

}  // namespace baton::model
