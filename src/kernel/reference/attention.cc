#include "kernel/reference/functions-inl.h"
#include "kernel/reference/lanes-inl.h"
#include "kernel/reference/reference.h"

namespace baton::kernel::BATON_REFERENCE_NS {
namespace {

// Softmax numerator, its sum and maximum, and the weighted values, over one split.
struct Split {
  float max;
  float sum;
  float out[kMaxAttentionDim];
};

// Tokens [begin, end) of one query, all in one split.
void RunSplit(const AttentionArgs& a, const float* q, int64_t begin, int64_t end, Split* s) {
  float p[kAttentionSplit] = {};
  for (int64_t t = begin; t < end; ++t) {
    const float* k = a.blocks[t / kLanes] + a.k_offset + t % kLanes;
    float dot = 0.0f;
    for (int64_t d = 0; d < a.head_dim; ++d) dot = Fma(q[d], k[d * kLanes], dot);
    p[t - begin] = dot * a.scale;
  }
  s->max = p[0];
  for (int64_t t = begin; t < end; ++t) s->max = p[t - begin] > s->max ? p[t - begin] : s->max;
  Lanes sum;
  for (int64_t t = begin; t < end; ++t) {
    p[t - begin] = ExpOf(p[t - begin] - s->max);
    sum.l[t % kLanes] += p[t - begin];
  }
  s->sum = sum.Sum();
  for (int64_t d = 0; d < a.head_dim; ++d) s->out[d] = 0.0f;
  for (int64_t t = begin; t < end; ++t) {
    const float* v = a.blocks[t / kLanes] + a.v_offset + (t % kLanes) * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; ++d) s->out[d] = Fma(p[t - begin], v[d], s->out[d]);
  }
}

void Merge(const Split& s, int64_t head_dim, Split* total) {
  const float max = s.max > total->max ? s.max : total->max;
  const float keep = ExpOf(total->max - max);
  const float add = ExpOf(s.max - max);
  total->max = max;
  total->sum = Fma(s.sum, add, total->sum * keep);
  for (int64_t d = 0; d < head_dim; ++d) total->out[d] = Fma(s.out[d], add, total->out[d] * keep);
}

}  // namespace

void Attention(const AttentionArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t len = a.first_len + r;
    for (int64_t g = 0; g < a.group; ++g) {
      const float* q = a.q + r * a.ldq + g * a.head_dim;
      float* out = a.out + r * a.ldo + g * a.head_dim;
      const int64_t start = a.window > 0 && len > a.window ? len - a.window : 0;
      Split total;
      for (int64_t begin = start; begin < len;) {
        const int64_t next = (begin / kAttentionSplit + 1) * kAttentionSplit;
        const int64_t end = next < len ? next : len;
        if (begin == start) {
          RunSplit(a, q, begin, end, &total);
        } else {
          Split s;
          RunSplit(a, q, begin, end, &s);
          Merge(s, a.head_dim, &total);
        }
        begin = end;
      }
      const float inv = 1.0f / total.sum;
      for (int64_t d = 0; d < a.head_dim; ++d) out[d] = total.out[d] * inv;
    }
  }
}

}  // namespace baton::kernel::BATON_REFERENCE_NS
