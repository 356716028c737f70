// Routed experts: each row picks its experts; rows are then gathered expert by expert, so that
// every expert's weights are read once per step, and the results are summed per row in ascending
// expert id, whatever the order in which experts ran.
#include <array>
#include <cstring>
#include <limits>

#include "model/linear.h"
#include "model/mlp.h"

namespace baton::model {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A NaN never wins against a number.
float Key(float score) { return score == score ? score : kLowest; }

// The top_k largest of `scores`, ties to the lower id, as ascending ids. One pass with a short
// sorted list: hundreds of experts with ten chosen are common.
void ChooseLargest(const float* scores, int64_t n, int64_t top_k, int32_t* chosen) {
  for (int64_t e = 0; e < n; ++e) {
    const float key = Key(scores[e]);
    int64_t at = std::min(e, top_k);
    if (at == top_k && !(key > Key(scores[chosen[--at]]))) continue;
    for (; at > 0 && key > Key(scores[chosen[at - 1]]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<int32_t>(e);
  }
  std::sort(chosen, chosen + top_k);
}

// Sets the scores of all but the best groups to the lowest.
void KeepBestGroups(const MoeConfig& c, float* scores) {
  const int64_t size = c.experts / c.groups;
  std::array<float, kExpertGroupsMax> sums;
  std::array<int32_t, kExpertGroupsMax> kept;
  for (int64_t g = 0; g < c.groups; ++g) {
    float best = kLowest, second = kLowest;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float key = Key(scores[e]);
      second = std::max(second, std::min(best, key));
      best = std::max(best, key);
    }
    sums[g] = size == 1 ? best : best + second;
  }
  ChooseLargest(sums.data(), c.groups, c.top_groups, kept.data());
  for (int64_t g = 0, next = 0; g < c.groups; ++g) {
    if (next < c.top_groups && kept[next] == g) {
      ++next;
    } else {
      std::fill_n(scores + g * size, size, kLowest);
    }
  }
}

// Of all rows: scratch [rows][experts] twice, shares [rows][top_k].
struct Routing {
  Rows logits, scores, shares;
};

// Fills work.chosen and the shares.
void Route(const Step& step,
           const MoeConfig& c,
           const MoeWeights& weights,
           const Routing& r,
           int64_t rows) {
  std::vector<int32_t>& chosen = step.work().chosen;
  chosen.resize(rows * c.top_k);
  step.For(rows, c.experts * 4 + c.top_k * c.top_k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      RouteRow(step.kernels(), c, weights,
               {r.logits[i], r.scores[i], &chosen[i * c.top_k], r.shares[i]});
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

MlpForm FormOf(const MoeConfig& c) {
  return c.gated ? MlpForm{} : MlpForm{.act = Activation::kRelu2, .gated = false};
}

// The input of the pairs and what is made of it, sorted by expert.
struct Pairs {
  Rows in, gate, up, out;
  int64_t count;
};

void RunExperts(const Step& step, const MoeConfig& c, const MoeWeights& weights, const Pairs& p) {
  const kernel::Kernels& k = step.kernels();
  const MlpForm form = FormOf(c);
  ForExpertTiles(step, weights, &MlpWeights::up, [&](const ExpertTile& t) {
    const MlpWeights& expert = weights.experts[t.expert];
    if (c.gated) RunTile(k, {&expert.gate, p.in, p.count, p.gate}, t.tile);
    RunTile(k, {&expert.up, p.in, p.count, p.up}, t.tile);
    CombineTile(k, p.gate, p.up, t.tile, form);
  });
  ForExpertTiles(step, weights, &MlpWeights::down, [&](const ExpertTile& t) {
    RunTile(k, {&weights.experts[t.expert].down, p.gate, p.count, p.out}, t.tile);
  });
}

// y += share * shared expert(x).
void AddShared(
    const Step& step, const MoeConfig& c, const MoeWeights& weights, Rows x, Rows y, int64_t rows) {
  const ArenaScope scope(&step.arena());
  const int64_t hidden = weights.router.w.cols();
  const Rows out{step.arena().Take(rows * hidden), hidden};
  const Rows share{step.arena().Take(rows), 1};
  RunMlp(step, *weights.shared, x, out, rows, FormOf(c));
  if (c.shared_gate) {
    RunLinear(step, {&weights.shared_gate, x, rows, share});
    step.kernels().apply(kernel::Function::kSigmoid, share.data, rows, share.data);
  } else {
    std::fill_n(share.data, rows, 1.0f);
  }
  step.For(rows, hidden / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().add_scaled(out[r], *share[r], hidden, y[r]);
  });
}

// y += the routed experts of x, both of the experts' width.
void AddRouted(const Step& step,
               const MoeConfig& c,
               const MoeWeights& weights,
               Rows shares,
               Rows x,
               Rows y,
               int64_t rows) {
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  const Workspace::Impl& work = step.work();
  const int64_t width = weights.experts[0].up.w.cols(), pairs = rows * c.top_k;
  Pairs p;
  p.count = pairs;
  for (Rows* r : {&p.in, &p.out}) *r = Rows{arena.Take(pairs * width), width};
  for (Rows* r : {&p.gate, &p.up}) *r = Rows{arena.Take(pairs * c.width), c.width};
  step.For(pairs, width / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(p.in[i], x[work.gathered_row[i]], static_cast<size_t>(width) * sizeof(float));
  });
  RunExperts(step, c, weights, p);
  step.For(rows, c.top_k * width / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t k = 0; k < c.top_k; ++k)
        step.kernels().add_scaled(p.out[work.row_slot[r * c.top_k + k]], shares[r][k], width, y[r]);
  });
}

int64_t SharedScratch(const MoeConfig& c, int64_t hidden, int64_t rows) {
  if (c.shared_width == 0) return 0;
  return Arena::Rounded(rows * hidden) + Arena::Rounded(rows) +
         2 * Arena::Rounded(rows * c.shared_width);
}

}  // namespace

void RouteRow(const kernel::Kernels& kernels,
              const MoeConfig& c,
              const MoeWeights& weights,
              const RowRoute& row) {
  float *logits = row.logits, *scores = row.scores, *shares = row.shares;
  const int32_t* chosen = row.chosen;
  const float* by = logits;
  if (c.router == Router::kSoftmax) kernels.softmax(logits, c.experts);
  if (c.router == Router::kSigmoid) {
    kernels.apply(kernel::Function::kSigmoid, logits, c.experts, logits);
    std::copy_n(logits, c.experts, scores);
    if (c.correction)
      for (int64_t e = 0; e < c.experts; ++e) scores[e] += weights.correction[e];
    by = scores;
  }
  if (c.groups > 1) {
    if (by == logits) std::copy_n(logits, c.experts, scores);
    KeepBestGroups(c, scores);
    by = scores;
  }
  ChooseLargest(by, c.experts, c.top_k, row.chosen);
  for (int64_t k = 0; k < c.top_k; ++k) shares[k] = logits[chosen[k]];
  if (c.router == Router::kTopKSoftmax) kernels.softmax(shares, c.top_k);
  if (c.renormalise) {
    float sum = 0;
    for (int64_t k = 0; k < c.top_k; ++k) sum += shares[k];
    sum += c.renormalise_eps;
    for (int64_t k = 0; k < c.top_k; ++k) shares[k] = shares[k] / sum;
  }
  for (int64_t k = 0; k < c.top_k; ++k) shares[k] *= c.scale;
}

int64_t MoeScratch(const MoeConfig& c, int64_t hidden, int64_t rows) {
  const int64_t pairs = rows * c.top_k;
  const int64_t routed = 2 * Arena::Rounded(rows * c.experts) + Arena::Rounded(pairs) +
                         2 * Arena::Rounded(pairs * (c.latent > 0 ? c.latent : hidden)) +
                         2 * Arena::Rounded(pairs * c.width);
  const int64_t latent =
      c.latent > 0 ? 2 * Arena::Rounded(rows * c.latent) + Arena::Rounded(rows * hidden) : 0;
  return std::max(routed + latent, SharedScratch(c, hidden, rows));
}

void AddMoe(
    const Step& step, const MoeConfig& c, const MoeWeights& weights, Rows x, Rows y, int64_t rows) {
  if (c.shared_width > 0) AddShared(step, c, weights, x, y, rows);
  const ArenaScope scope(&step.arena());
  Arena& arena = step.arena();
  const Routing r{Rows{arena.Take(rows * c.experts), c.experts},
                  Rows{arena.Take(rows * c.experts), c.experts},
                  Rows{arena.Take(rows * c.top_k), c.top_k}};
  RunLinear(step, {&weights.router, x, rows, r.logits});
  Route(step, c, weights, r, rows);
  Gather(&step.work(), c, rows);
  if (c.latent == 0) return AddRouted(step, c, weights, r.shares, x, y, rows);

  const Rows in{arena.Take(rows * c.latent), c.latent};
  const Rows sum{arena.Take(rows * c.latent), c.latent};
  const int64_t hidden = weights.router.w.cols();
  const Rows out{arena.Take(rows * hidden), hidden};
  RunLinear(step, {&weights.latent_in, x, rows, in});
  std::fill_n(sum.data, rows * c.latent, 0.0f);
  AddRouted(step, c, weights, r.shares, in, sum, rows);
  RunLinear(step, {&weights.latent_out, sum, rows, out});
  step.For(rows, hidden / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) step.kernels().add_scaled(out[r], 1.0f, hidden, y[r]);
  });
}

}  // namespace baton::model
