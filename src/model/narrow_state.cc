#include "model/narrow_state.h"

#include <algorithm>
#include <cstring>

#include "model/model_layout.h"

namespace baton::model {
namespace {

// Where the inputs of one grid step lie: in the tail or in this call's rows.
struct StepInputs {
  const float* input[kBlockTokens];
  const float* key[kBlockTokens];
  const float* decay[kBlockTokens];
};

class Advance {
 public:
  // `qk` and `kk`: scratch, [groups * kBlockTokens]; kk of the delta rule only.
  Advance(const Step& step, const NarrowLayer& layer, const NarrowRows& rows, Rows qk, Rows kk)
      : step_(step), layer_(layer), c_(layer.shape), rows_(rows), qk_(qk), kk_(kk) {}

  // dt * x; each token's query, and key, with the keys of its step up to itself.
  void Prepare() const {
    const int64_t cost = c_.inputs() / 8 + c_.keys() * (rows_.delta_rule() ? 2 : 1);
    step_.For(rows_.rows, cost, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) PrepareRow(ItemOf(r), r);
    });
  }

  // All heads of all sequences.
  void Heads() const {
    const int64_t n_items = static_cast<int64_t>(step_.items().size());
    int64_t longest = 0;
    for (const StepItem& item : step_.items()) longest = std::max(longest, item.tokens);
    const int64_t cost = c_.state * c_.head_dim * (longest + 1) / 12;
    step_.For(n_items * c_.heads, cost, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t i = begin / c_.heads, head = begin % c_.heads;
        const int64_t count = std::min(c_.heads - head, end - begin);
        HeadsOf(step_.items()[static_cast<size_t>(i)], head, head + count);
        begin += count;
      }
    });
  }

  // What the tokens since the last boundary leave behind, once all heads have read the old tail.
  void KeepTails() const {
    const int64_t n_items = static_cast<int64_t>(step_.items().size());
    step_.For(n_items, c_.TailRow(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) KeepTail(step_.items()[static_cast<size_t>(i)]);
    });
  }

 private:
  const StepItem& ItemOf(int64_t row) const {
    const auto after =
        std::upper_bound(step_.items().begin(), step_.items().end(), row,
                         [](int64_t r, const StepItem& item) { return r < item.row0; });
    return *(after - 1);
  }

  float* TailOf(const StepItem& item, int64_t token) const {
    return item.State(layer_.tail_offset) + token % kBlockTokens * c_.TailRow();
  }

  // Tokens [begin, end) of the sequence, `begin` on the grid.
  StepInputs Inputs(const StepItem& item, int64_t begin, int64_t end) const {
    StepInputs in;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t j = t - begin;
      if (t < item.position) {
        in.input[j] = TailOf(item, t);
        in.key[j] = in.input[j] + c_.inputs();
        in.decay[j] = in.key[j] + c_.keys();
      } else {
        const int64_t r = item.row0 + t - item.position;
        in.input[j] = rows_.input[r];
        in.key[j] = rows_.key[r];
        in.decay[j] = rows_.decay + r * rows_.decay_stride;
      }
    }
    return in;
  }

  void PrepareRow(const StepItem& item, int64_t r) const {
    if (rows_.d != nullptr) {
      for (int64_t h = 0; h < c_.heads; ++h) {
        const int64_t at = h * c_.head_dim;
        step_.kernels().scale(rows_.x[r] + at, rows_.dt[r][h], c_.head_dim, rows_.input[r] + at);
      }
    }
    const int64_t token = item.position + r - item.row0;
    const int64_t begin = FloorToGrid(token), before = token - begin;
    const StepInputs in = Inputs(item, begin, token + 1);
    for (int64_t g = 0; g < c_.groups; ++g) {
      const int64_t at = g * c_.state, to = g * kBlockTokens;
      step_.kernels().dots(rows_.query[r] + at, in.key, at, before + 1, c_.state, qk_[r] + to);
      if (rows_.delta_rule())
        step_.kernels().dots(rows_.key[r] + at, in.key, at, before, c_.state, kk_[r] + to);
    }
  }

  // Heads [first, last): each over all grid steps of the call, so that its base stays in cache.
  void HeadsOf(const StepItem& item, int64_t first, int64_t last) const {
    const int64_t end = item.position + item.tokens;
    const int64_t steps = BlocksFor(end) - item.position / kBlockTokens;
    StepInputs in;
    for (int64_t head = first; head < last; ++head) {
      int64_t at = item.position;
      for (int64_t s = 0; s < steps; ++s) {
        const int64_t begin = FloorToGrid(at);
        const int64_t stop = std::min(begin + kBlockTokens, end);
        if (steps > 1 || head == first) in = Inputs(item, begin, stop);
        RunHead(item, head, in, {begin, at, stop});
        at = stop;
      }
    }
  }

  // Tokens [at, stop) of the grid step at `begin`.
  struct Piece {
    int64_t begin, at, stop;
  };

  void RunHead(const StepItem& item, int64_t head, const StepInputs& in, const Piece& p) const {
    const int64_t r = item.row0 + p.at - item.position;
    const int64_t group = head / (c_.heads / c_.groups), column = head * c_.head_dim;
    kernel::Mamba2NarrowArgs args = ArgsOf(item, head, in, p);
    if (rows_.delta_rule()) {
      step_.kernels().gated_delta_narrow({.step = args,
                                          .u = rows_.input[r] + column,
                                          .ldu = rows_.input.stride,
                                          .kk = kk_[r] + group * kBlockTokens,
                                          .ldkk = kk_.stride,
                                          .v = rows_.value[r] + column,
                                          .ldv = rows_.value.stride,
                                          .beta = rows_.share[r] + head,
                                          .ldbeta = rows_.share.stride});
      return;
    }
    if (rows_.d != nullptr) {
      args.x = rows_.x[r] + column;
      args.ldx = rows_.x.stride;
      args.d = rows_.d[head];
    }
    step_.kernels().mamba2_narrow(args);
  }

  kernel::Mamba2NarrowArgs ArgsOf(const StepItem& item,
                                  int64_t head,
                                  const StepInputs& in,
                                  const Piece& p) const {
    const int64_t group = head / (c_.heads / c_.groups), column = head * c_.head_dim;
    const int64_t r = item.row0 + p.at - item.position;
    const uint64_t element = static_cast<uint64_t>(column * c_.state);
    uint16_t* scales = nullptr;
    if (layer_.dtype == kernel::StateDType::kF8E4M3)
      scales = reinterpret_cast<uint16_t*>(item.slot + layer_.scale_offset) + head * c_.state;
    const bool folds = p.stop == p.begin + kBlockTokens;
    return {
        .dtype = layer_.dtype,
        .rounding = layer_.rounding,
        .base = item.slot + layer_.base_offset + element * kernel::StateElementBytes(layer_.dtype),
        .scales = scales,
        .n_state = c_.state,
        .head_dim = c_.head_dim,
        .first = p.at - p.begin,
        .tokens = p.stop - p.at,
        .dx = in.input,
        .dx_offset = column,
        .b = in.key,
        .b_offset = group * c_.state,
        .decay = in.decay,
        .decay_offset = head,
        .c = rows_.query[r] + group * c_.state,
        .ldc = rows_.query.stride,
        .cb = qk_[r] + group * kBlockTokens,
        .ldcb = qk_.stride,
        .y = rows_.y[r] + column,
        .ldy = rows_.y.stride,
        .key = folds ? kernel::RoundingKey(layer_.layer, static_cast<uint32_t>(head),
                                           static_cast<uint64_t>(p.stop))
                     : 0};
  }

  void KeepTail(const StepItem& item) const {
    const int64_t end = item.position + item.tokens;
    for (int64_t t = std::max(FloorToGrid(end), item.position); t < end; ++t) {
      const int64_t r = item.row0 + t - item.position;
      float* to = TailOf(item, t);
      const auto put = [&to](const float* from, int64_t n) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
        to += n;
      };
      put(rows_.input[r], c_.inputs());
      put(rows_.key[r], c_.keys());
      put(rows_.decay + r * rows_.decay_stride, c_.heads);
    }
  }

  const Step& step_;
  const NarrowLayer& layer_;
  const NarrowShape& c_;
  const NarrowRows& rows_;
  Rows qk_, kk_;
};

}  // namespace

std::optional<NarrowLayer> NarrowLayerAt(const MixerPlace& place, const NarrowShape& shape) {
  if (place.state_dtype == kernel::StateDType::kF32) return std::nullopt;
  const bool scaled = place.state_dtype == kernel::StateDType::kF8E4M3;
  return NarrowLayer{shape,
                     place.state_dtype,
                     RoundingOf(place.state_dtype),
                     place.layer,
                     place.Part(kSsmComponent),
                     scaled ? place.Part(kScaleComponent) : 0,
                     place.tail_offset};
}

int64_t NarrowScratch(const NarrowShape& shape, int64_t rows, bool delta_rule) {
  return Arena::Rounded(rows * shape.groups * kBlockTokens) * (delta_rule ? 2 : 1);
}

void AdvanceNarrow(const Step& step, const NarrowLayer& layer, const NarrowRows& rows) {
  const int64_t width = layer.shape.groups * kBlockTokens;
  const ArenaScope scope(&step.arena());
  const Rows qk{step.arena().Take(rows.rows * width), width};
  Rows kk{nullptr, width};
  if (rows.delta_rule()) kk.data = step.arena().Take(rows.rows * width);
  const Advance advance(step, layer, rows, qk, kk);
  advance.Prepare();
  advance.Heads();
  advance.KeepTails();
}

}  // namespace baton::model
