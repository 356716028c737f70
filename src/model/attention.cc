#include "model/attention.h"

#include <array>
#include <numbers>

#include "kernel/functions.h"
#include "model/linear.h"

namespace baton::model {
namespace {

struct AttentionLayer {
  const AttentionConfig* config;
  const AttentionWeights* weights;
  const std::vector<LowRank>* added;  // to q, k, v; null or empty: nothing
  const KvGroup* group;
  size_t table;    // of the group among the layout's
  size_t ordinal;  // of this layer in the group
  float norm_eps;  // of queries and keys
};

// Query rows of one kernel call: enough to reuse a KV block from cache, few enough to share work.
constexpr int64_t kTileRows = 32;

// Stores one token's K and V of all heads into its block.
void StoreToken(
    const AttentionLayer& layer, float* block, int64_t lane, const float* k, const float* v) {
  const int64_t dim = layer.config->head_dim;
  for (int64_t head = 0; head < layer.config->kv_heads; ++head) {
    float* k_to = block + layer.group->KOffset(layer.ordinal, head);
    float* v_to = block + layer.group->VOffset(layer.ordinal, head) + lane * dim;
    for (int64_t d = 0; d < dim; ++d) k_to[d * kBlockTokens + lane] = k[head * dim + d];
    std::copy(v + head * dim, v + (head + 1) * dim, v_to);
  }
}

// In place, the heads of one row.
void NormHeads(const Step& step,
               const AttentionLayer& layer,
               const std::vector<float>& weight,
               int64_t heads,
               float* row) {
  if (layer.config->qk_norm == QkNorm::kNone) return;
  const bool all = layer.config->qk_norm == QkNorm::kAllHeads;
  const int64_t dim = layer.config->head_dim * (all ? heads : 1);
  for (int64_t h = 0; h < (all ? 1 : heads); ++h)
    step.kernels().rms_norm(row + h * dim, weight.data(), dim, layer.norm_eps, row + h * dim);
}

void RotateAndStore(const Step& step, const AttentionLayer& layer, Rows q, Rows k, Rows v) {
  const AttentionConfig& c = *layer.config;
  const RopeTable& rope = step.rope();
  const int64_t cost = (c.heads + 3 * c.kv_heads) * c.head_dim / 2;
  for (const StepItem& item : step.items()) {
    step.For(item.tokens, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = item.row0 + t, position = item.position + t;
        NormHeads(step, layer, layer.weights->q_norm, c.heads, q[row]);
        NormHeads(step, layer, layer.weights->k_norm, c.kv_heads, k[row]);
        if (c.key_multiplier != 1.0f) {
          const int64_t width = c.kv_heads * c.head_dim;
          step.kernels().scale(k[row], c.key_multiplier, width, k[row]);
        }
        if (rope.dims > 0) {
          for (int64_t h = 0; h < c.heads; ++h)
            step.kernels().rope(q[row] + h * c.head_dim, rope.cos[row], rope.sin[row], rope.dims);
          for (int64_t h = 0; h < c.kv_heads; ++h)
            step.kernels().rope(k[row] + h * c.head_dim, rope.cos[row], rope.sin[row], rope.dims);
        }
        StoreToken(layer, item.Blocks(layer.table)[position / kBlockTokens],
                   position % kBlockTokens, k[row], v[row]);
      }
    });
  }
}

// q, k, v += B A x.
void AddLowRank(const Step& step,
                const AttentionLayer& layer,
                Rows x,
                const std::array<Rows, 3>& to,
                int64_t rows) {
  if (layer.added == nullptr || layer.added->empty()) return;
  const ArenaScope scope(&step.arena());
  std::array<LinearJob, 3> in, out;
  for (size_t i = 0; i < 3; ++i) {
    const LowRank& l = (*layer.added)[i];
    const Rows mid{step.arena().Take(rows * l.a.w.rows()), l.a.w.rows()};
    in[i] = LinearJob{&l.a, x, rows, mid};
    out[i] = LinearJob{&l.b[0], mid, rows, to[i], true};
  }
  RunLinears(step, in);
  RunLinears(step, out);
}

int64_t AttentionScratch(const AttentionLayer& layer, int64_t rows) {
  const AttentionConfig& c = *layer.config;
  int64_t added = 0;
  if (layer.added != nullptr)
    for (const LowRank& l : *layer.added) added += Arena::Rounded(rows * l.a.w.rows());
  return added + (c.output_gate ? 3 : 2) * Arena::Rounded(rows * c.heads * c.head_dim) +
         2 * Arena::Rounded(rows * c.kv_heads * c.head_dim);
}

void RunAttention(const Step& step, const AttentionLayer& layer, Rows x, Rows y, int64_t rows) {
  const AttentionConfig& c = *layer.config;
  const AttentionWeights& w = *layer.weights;
  const ArenaScope scope(&step.arena());
  const int64_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  const Rows q{step.arena().Take(rows * q_width), q_width};
  const Rows out{step.arena().Take(rows * q_width), q_width};
  const Rows k{step.arena().Take(rows * kv_width), kv_width};
  const Rows v{step.arena().Take(rows * kv_width), kv_width};
  const Rows gate{c.output_gate ? step.arena().Take(rows * q_width) : nullptr, q_width};
  const LinearJob jobs[] = {
      {&w.q, x, rows, q}, {&w.k, x, rows, k}, {&w.v, x, rows, v}, {&w.gate, x, rows, gate}};
  RunLinears(step, std::span(jobs).first(c.output_gate ? 4 : 3));
  AddLowRank(step, layer, x, {q, k, v}, rows);
  RotateAndStore(step, layer, q, k, v);

  const int64_t group = c.heads / c.kv_heads;
  const std::vector<RowTile>& tiles = step.work().tiles;
  int64_t work = 0;
  for (const StepItem& item : step.items())
    work += item.tokens * (item.position + item.tokens) * q_width / 16;
  step.ForEach(static_cast<int64_t>(tiles.size()) * c.kv_heads, work, [&](int64_t i) {
    const RowTile& tile = tiles[i / c.kv_heads];
    const int64_t head = i % c.kv_heads;
    const StepItem& item = step.items()[tile.item];
    const int64_t row = item.row0 + tile.begin;
    step.kernels().attention(kernel::AttentionArgs{
        .blocks = item.Blocks(layer.table),
        .k_offset = static_cast<int64_t>(layer.group->KOffset(layer.ordinal, head)),
        .v_offset = static_cast<int64_t>(layer.group->VOffset(layer.ordinal, head)),
        .head_dim = c.head_dim,
        .group = group,
        .rows = tile.rows,
        .first_len = item.position + tile.begin + 1,
        .scale = c.scale,
        .q = q[row] + head * group * c.head_dim,
        .ldq = q_width,
        .out = out[row] + head * group * c.head_dim,
        .ldo = q_width,
        .window = c.window});
  });
  if (c.output_gate) {
    step.For(rows, q_width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().sigmoid_mul(gate[r], out[r], q_width, out[r]);
    });
  }
  RunLinear(step, {&w.o, out, rows, y});
}

class AttentionBlock final : public MixerBlock {
 public:
  explicit AttentionBlock(const AttentionLayer& layer) : layer_(layer) {}
  int64_t Scratch(int64_t rows) const override { return AttentionScratch(layer_, rows); }
  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    RunAttention(step, layer_, x, y, rows);
  }

 private:
  AttentionLayer layer_;
};

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope) {
  std::vector<float> out;
  for (int64_t i = 0; i < rope.dims / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.dims);
    double f = 1.0 / kernel::PowPositive(rope.theta, exponent);
    if (rope.scaling == RopeScaling::kLinear) f /= rope.factor;
    if (rope.scaling == RopeScaling::kLlama3) {
      // Wavelengths beyond the training context are stretched by `factor`, short ones are kept,
      // those between are blended.
      const double wavelength = 2 * std::numbers::pi / f;
      const double long_wave = rope.original_max_position / rope.low_freq_factor;
      const double short_wave = rope.original_max_position / rope.high_freq_factor;
      if (wavelength > long_wave) {
        f /= rope.factor;
      } else if (wavelength > short_wave) {
        const double kept = (rope.original_max_position / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
        f = (1 - kept) * f / rope.factor + kept * f;
      }
    }
    out.push_back(static_cast<float>(f));
  }
  return out;
}

int64_t RopeScratch(const AttentionConfig& config, int64_t rows) {
  return config.rope.has_value() ? 2 * Arena::Rounded(rows * config.rope->dims / 2) : 0;
}

RopeTable BuildRopeTable(const Step& step, const std::vector<float>& frequencies, int64_t rows) {
  RopeTable table;
  if (frequencies.empty()) return table;
  const int64_t half = static_cast<int64_t>(frequencies.size());
  table.dims = 2 * half;
  table.cos = Rows{step.arena().Take(rows * half), half};
  table.sin = Rows{step.arena().Take(rows * half), half};
  for (const StepItem& item : step.items()) {
    step.For(item.tokens, half * 20, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = item.row0 + t;
        const float position = static_cast<float>(item.position + t);
        // The angle is rounded to f32 as in training.
        for (int64_t i = 0; i < half; ++i)
          kernel::SinCos(position * frequencies[i], table.sin[row] + i, table.cos[row] + i);
      }
    });
  }
  return table;
}

void PlanAttention(Workspace::Impl* work) {
  work->tiles.clear();
  for (size_t i = 0; i < work->items.size(); ++i) {
    // Later rows see more tokens: the longest runs first, so that none is left for the end.
    const int64_t tokens = work->items[i].tokens;
    for (int64_t end = tokens; end > 0; end -= kTileRows) {
      const int64_t begin = std::max<int64_t>(0, end - kTileRows);
      work->tiles.push_back(RowTile{static_cast<int32_t>(i), static_cast<int32_t>(begin),
                                    static_cast<int32_t>(end - begin)});
    }
  }
}

std::unique_ptr<MixerBlock> MakeAttention(const MixerPlace& place,
                                          const AttentionWeights& weights,
                                          const std::vector<LowRank>* added) {
  const std::vector<KvGroup>& groups = place.layout->groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& layers = groups[g].layers;
    const auto it = std::find(layers.begin(), layers.end(), place.layer);
    if (it == layers.end()) continue;
    const size_t ordinal = static_cast<size_t>(it - layers.begin());
    return std::make_unique<AttentionBlock>(AttentionLayer{&*place.config->attention, &weights,
                                                           added, &groups[g], g, ordinal,
                                                           place.config->rms_norm_eps});
  }
  BATON_CHECK(false);  // the layout was built from this config
  return nullptr;
}

MixerCost AttentionCost(const AttentionConfig& c, int64_t hidden) {
  MixerCost cost;
  const int64_t in = c.input > 0 ? c.input : hidden, q = c.heads * c.head_dim;
  cost.per_token =
      2 * (Product(in, q) + 2 * Product(in, c.kv_heads * c.head_dim) + Product(q, hidden));
  if (c.output_gate) cost.per_token += 2 * Product(in, q);
  // Scores and values, each 2 per head element, over n / 2 keys on average, or over a window.
  if (c.window > 0) {
    cost.per_token += 4 * Product(q, c.window);
  } else {
    cost.per_token_pair = 2 * Product(c.heads, c.head_dim);
  }
  return cost;
}

}  // namespace baton::model
