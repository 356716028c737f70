// Routing: each row picks its experts; rows are then gathered expert by expert, so that every
// expert's weights are read once per step, and the results are summed per row in ascending expert
// id, whatever the order in which experts ran.
#include <cstring>

#include "model/linear.h"
#include "model/mlp.h"

namespace baton::model {
namespace {

// The top_k largest of `logits`, ties to the lower id, as ascending ids.
void ChooseExperts(const float* logits, int64_t experts, int64_t top_k, int32_t* chosen) {
  for (int64_t k = 0; k < top_k; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      bool taken = false;
      for (int64_t j = 0; j < k; ++j) taken |= chosen[j] == e;
      // Written so that a NaN never wins against a number and never repeats.
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    chosen[k] = static_cast<int32_t>(best);
  }
  std::sort(chosen, chosen + top_k);
}

// Fills work.chosen and the weights [rows][top_k].
void Route(const Step& step, const MoeConfig& c, Rows logits, Rows weights, int64_t rows) {
  std::vector<int32_t>& chosen = step.work().chosen;
  chosen.resize(rows * c.top_k);
  step.For(rows, c.experts * (c.top_k + 4), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int32_t* picked = &chosen[r * c.top_k];
      if (!c.softmax_after_top_k) step.kernels().softmax(logits[r], c.experts);
      ChooseExperts(logits[r], c.experts, c.top_k, picked);
      for (int64_t k = 0; k < c.top_k; ++k) weights[r][k] = logits[r][picked[k]];
      if (c.softmax_after_top_k) step.kernels().softmax(weights[r], c.top_k);
    }
  });
}

// Sorts the (row, choice) pairs by expert: expert_begin, gathered_row, row_slot.
void Gather(Workspace::Impl* work, const MoeConfig& c, int64_t rows) {
  work->expert_begin.assign(c.experts + 1, 0);
  for (const int32_t e : work->chosen) ++work->expert_begin[e + 1];
  for (int64_t e = 0; e < c.experts; ++e) work->expert_begin[e + 1] += work->expert_begin[e];
  work->expert_next.assign(work->expert_begin.begin(), work->expert_begin.end());
  work->gathered_row.resize(rows * c.top_k);
  work->row_slot.resize(rows * c.top_k);
  for (int64_t i = 0; i < rows * c.top_k; ++i) {
    const int64_t slot = work->expert_next[work->chosen[i]]++;
    work->gathered_row[slot] = i / c.top_k;
    work->row_slot[i] = slot;
  }
}

// One tile of one expert's matrices; its rows count among the gathered ones.
struct ExpertTile {
  int64_t expert;
  Tile tile;
};

// Calls fn for every tile of every expert's matrix `member`, in one parallel loop.
template <class Fn>
void ForExpertTiles(const Step& step,
                    const MoeWeights& weights,
                    Linear MlpWeights::*member,
                    const Fn& fn) {
  Workspace::Impl& work = step.work();
  std::vector<int64_t>& first = work.expert_next;  // first tile of each expert
  int64_t tiles = 0, cost = 0;
  const int64_t experts = static_cast<int64_t>(weights.experts.size());
  const auto plan_of = [&](int64_t e) {
    const int64_t rows = work.expert_begin[e + 1] - work.expert_begin[e];
    TilePlan plan;
    if (rows > 0) plan = PlanTiles((weights.experts[e].*member).w, rows, step.threads());
    return plan;
  };
  for (int64_t e = 0; e < experts; ++e) {
    first[e] = tiles;
    const TilePlan plan = plan_of(e);
    tiles += plan.tiles();
    if (plan.tiles() > 0) {
      const kernel::PackedMatrix& w = (weights.experts[e].*member).w;
      cost += w.rows() * w.cols() / 8;
    }
  }
  first[experts] = tiles;
  step.ForEach(tiles, cost, [&](int64_t i) {
    const int64_t e =
        std::upper_bound(first.begin(), first.begin() + experts, i) - first.begin() - 1;
    ExpertTile t{e, plan_of(e).At(i - first[e])};
    t.tile.row_begin += work.expert_begin[e];
    t.tile.row_end += work.expert_begin[e];
    fn(t);
  });
}

}  // namespace

int64_t MoeScratch(const MoeConfig& c, int64_t hidden, int64_t rows) {
  const int64_t pairs = rows * c.top_k;
  return Arena::Rounded(rows * c.experts) + Arena::Rounded(pairs) +
         2 * Arena::Rounded(pairs * hidden) + 2 * Arena::Rounded(pairs * c.width);
}

void AddMoe(
    const Step& step, const MoeConfig& c, const MoeWeights& weights, Rows x, Rows y, int64_t rows) {
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  Workspace::Impl& work = step.work();
  const int64_t hidden = weights.router.w.cols(), pairs = rows * c.top_k;
  const Rows logits{arena.Take(rows * c.experts), c.experts};
  const Rows shares{arena.Take(pairs), c.top_k};
  const Rows in{arena.Take(pairs * hidden), hidden};
  const Rows out{arena.Take(pairs * hidden), hidden};
  const Rows gate{arena.Take(pairs * c.width), c.width};
  const Rows up{arena.Take(pairs * c.width), c.width};

  RunLinear(step, {&weights.router, x, rows, logits});
  Route(step, c, logits, shares, rows);
  Gather(&work, c, rows);
  step.For(pairs, hidden / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(in[i], x[work.gathered_row[i]], static_cast<size_t>(hidden) * sizeof(float));
  });
  ForExpertTiles(step, weights, &MlpWeights::gate, [&](const ExpertTile& t) {
    const MlpWeights& expert = weights.experts[t.expert];
    RunTile(step.kernels(), {&expert.gate, in, pairs, gate}, t.tile);
    RunTile(step.kernels(), {&expert.up, in, pairs, up}, t.tile);
    CombineTile(step.kernels(), gate, up, t.tile);
  });
  ForExpertTiles(step, weights, &MlpWeights::down, [&](const ExpertTile& t) {
    RunTile(step.kernels(), {&weights.experts[t.expert].down, gate, pairs, out}, t.tile);
  });
  step.For(rows, c.top_k * hidden / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t k = 0; k < c.top_k; ++k)
        step.kernels().add_scaled(out[work.row_slot[r * c.top_k + k]], shares[r][k], hidden, y[r]);
  });
}

}  // namespace baton::model
