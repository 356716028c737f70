#include "model/mamba2_narrow.h"

#include <algorithm>
#include <cstring>

#include "model/state_form.h"

namespace baton::model {
namespace {

// Where the inputs of one grid step lie: in the tail or in this call's rows.
struct StepInputs {
  const float* dx[kBlockTokens];
  const float* b[kBlockTokens];
  const float* decay[kBlockTokens];
};

class Advance {
 public:
  Advance(const Step& step, const Mamba2Layer& layer, const Mamba2Rows& rows, Rows cb)
      : step_(step), layer_(layer), c_(*layer.config), rows_(rows), cb_(cb) {}

  // dt * x, and C . B of each token with those of its step up to itself.
  void Prepare() const {
    const int64_t cost = c_.inner() / 8 + c_.groups * kBlockTokens * c_.state / 16;
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
    step_.For(n_items, TailRow(c_), [&](int64_t begin, int64_t end) {
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
    return item.State(layer_.narrow->tail_offset) + token % kBlockTokens * TailRow(c_);
  }

  // Tokens [begin, end) of the sequence, `begin` on the grid.
  StepInputs Inputs(const StepItem& item, int64_t begin, int64_t end) const {
    StepInputs in;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t j = t - begin;
      if (t < item.position) {
        const float* row = TailOf(item, t);
        in.dx[j] = row;
        in.b[j] = row + c_.inner();
        in.decay[j] = in.b[j] + c_.groups * c_.state;
      } else {
        const int64_t r = item.row0 + t - item.position;
        in.dx[j] = rows_.dx[r];
        in.b[j] = rows_.conv[r] + c_.inner();
        in.decay[j] = rows_.decay[r];
      }
    }
    return in;
  }

  void PrepareRow(const StepItem& item, int64_t r) const {
    for (int64_t h = 0; h < c_.heads; ++h) {
      step_.kernels().scale(rows_.conv[r] + h * c_.head_dim, rows_.dt[r][h], c_.head_dim,
                            rows_.dx[r] + h * c_.head_dim);
    }
    const int64_t token = item.position + r - item.row0;
    const int64_t begin = FloorToGrid(token);
    const StepInputs in = Inputs(item, begin, token + 1);
    const float* c = rows_.conv[r] + c_.inner() + c_.groups * c_.state;
    for (int64_t g = 0; g < c_.groups; ++g) {
      step_.kernels().dots(c + g * c_.state, in.b, g * c_.state, token + 1 - begin, c_.state,
                           cb_[r] + g * kBlockTokens);
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
    const NarrowMamba2& n = *layer_.narrow;
    const int64_t group = head / (c_.heads / c_.groups);
    const int64_t r = item.row0 + p.at - item.position;
    const int64_t elements = c_.state * c_.head_dim;
    std::byte* base = item.slot + layer_.ssm_offset +
                      static_cast<uint64_t>(head * elements) * kernel::StateElementBytes(n.dtype);
    uint16_t* scales = nullptr;
    if (n.dtype == kernel::StateDType::kF8E4M3)
      scales = reinterpret_cast<uint16_t*>(item.slot + n.scale_offset) + head * c_.state;
    const bool folds = p.stop == p.begin + kBlockTokens;
    step_.kernels().mamba2_narrow(
        {.dtype = n.dtype,
         .rounding = n.rounding,
         .base = base,
         .scales = scales,
         .n_state = c_.state,
         .head_dim = c_.head_dim,
         .first = p.at - p.begin,
         .tokens = p.stop - p.at,
         .dx = in.dx,
         .dx_offset = head * c_.head_dim,
         .b = in.b,
         .b_offset = group * c_.state,
         .decay = in.decay,
         .decay_offset = head,
         .c = rows_.conv[r] + c_.inner() + (c_.groups + group) * c_.state,
         .ldc = rows_.conv.stride,
         .cb = cb_[r] + group * kBlockTokens,
         .ldcb = cb_.stride,
         .x = rows_.conv[r] + head * c_.head_dim,
         .ldx = rows_.conv.stride,
         .d = layer_.weights->d[static_cast<size_t>(head)],
         .y = rows_.y[r] + head * c_.head_dim,
         .ldy = rows_.y.stride,
         .key = folds ? kernel::RoundingKey(n.layer, static_cast<uint32_t>(head),
                                            static_cast<uint64_t>(p.stop))
                      : 0});
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
      put(rows_.dx[r], c_.inner());
      put(rows_.conv[r] + c_.inner(), c_.groups * c_.state);
      put(rows_.decay[r], c_.heads);
    }
  }

  const Step& step_;
  const Mamba2Layer& layer_;
  const Mamba2Config& c_;
  const Mamba2Rows& rows_;
  Rows cb_;
};

}  // namespace

int64_t NarrowScratch(const Mamba2Config& c, int64_t rows) {
  return Arena::Rounded(rows * c.groups * kBlockTokens);
}

void AdvanceNarrow(const Step& step, const Mamba2Layer& layer, const Mamba2Rows& rows) {
  const int64_t width = layer.config->groups * kBlockTokens;
  const Rows cb{step.arena().Take(rows.rows * width), width};
  const Advance advance(step, layer, rows, cb);
  advance.Prepare();
  advance.Heads();
  advance.KeepTails();
}

}  // namespace baton::model
