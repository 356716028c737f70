#include "model/gated_delta.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "model/linear.h"
#include "model/model_layout.h"
#include "model/narrow_state.h"
#include "model/recurrent.h"

namespace baton::model {
namespace {

// Of the sum of squares under the root of a key's or query's length.
constexpr double kLengthEps = 1e-6;

class GatedDeltaBlock final : public MixerBlock {
 public:
  GatedDeltaBlock(const MixerPlace& place, const GatedDeltaWeights& weights)
      : c_(*place.config->gated_delta),
        w_(weights),
        conv_{&weights.conv_w, &no_bias_, c_.conv_channels(), c_.conv_width,
              place.Part(kConvComponent)},
        state_offset_(place.Part(kSsmComponent)),
        narrow_(NarrowLayerAt(place, ShapeOf(c_))) {
    // x / sqrt(sum x^2 + eps) as the mean's norm: rms(x, eps / n) / sqrt(n). Queries take the scale
    // of the scores, n^-1/2, along.
    const double n = static_cast<double>(c_.key_dim);
    length_eps_ = static_cast<float>(kLengthEps / n);
    key_scale_.assign(c_.key_dim, static_cast<float>(1 / std::sqrt(n)));
    query_scale_.assign(c_.key_dim, static_cast<float>(1 / n));
  }

  int64_t Scratch(int64_t rows) const override {
    const int64_t floats =
        Arena::Rounded(rows * c_.in_proj()) + Arena::Rounded(rows * c_.conv_channels()) +
        Arena::Rounded(rows * 2 * c_.value_heads) + Arena::Rounded(rows * c_.values());
    if (!narrow_.has_value()) return floats;
    return floats + Arena::Rounded(rows * c_.values()) + NarrowScratch(narrow_->shape, rows, true);
  }

  void Run(const Step& step, Rows x, Rows y, int64_t rows) const override {
    const ArenaScope scope(&step.arena());
    Arena& arena = step.arena();
    const Rows proj{arena.Take(rows * c_.in_proj()), c_.in_proj()};
    const Rows conv{arena.Take(rows * c_.conv_channels()), c_.conv_channels()};
    const Rows gates{arena.Take(rows * 2 * c_.value_heads), 2 * c_.value_heads};  // beta | decay
    const Rows mixed{arena.Take(rows * c_.values()), c_.values()};
    Project(step, x, proj, rows);
    RunConv(step, conv_, proj, conv);
    Prepare(step, proj, conv, gates, rows);
    if (narrow_.has_value()) {
      AdvanceNarrowState(step, conv, gates, mixed, rows);
    } else {
      AdvanceState(step, conv, gates, mixed);
    }
    NormAndGate(step, proj, mixed, rows);
    RunLinear(step, {&w_.out, mixed, rows, y});
  }

 private:
  // q | k | v | z | b | a.
  void Project(const Step& step, Rows x, Rows proj, int64_t rows) const {
    std::array<LinearJob, kLinearJobsMax> jobs;
    BATON_CHECK(w_.in.size() <= jobs.size());
    int64_t column = 0;
    for (size_t i = 0; i < w_.in.size(); ++i) {
      jobs[i] = LinearJob{&w_.in[i], x, rows, Rows{proj.data + column, proj.stride}};
      column += w_.in[i].w.rows();
    }
    RunLinears(step, std::span(jobs).first(w_.in.size()));
  }

  // Lengths of keys and queries, shares and decays.
  void Prepare(const Step& step, Rows proj, Rows conv, Rows gates, int64_t rows) const {
    const kernel::Kernels& k = step.kernels();
    const int64_t b = c_.conv_channels() + c_.values(), heads = c_.value_heads;
    step.For(rows, c_.keys() + heads * 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t h = 0; h < c_.key_heads; ++h) {
          float* query = conv[r] + h * c_.key_dim;
          float* key = query + c_.keys();
          k.rms_norm(query, query_scale_.data(), c_.key_dim, length_eps_, query);
          k.rms_norm(key, key_scale_.data(), c_.key_dim, length_eps_, key);
        }
        float* beta = gates[r];
        float* decay = beta + heads;
        k.apply(kernel::Function::kSigmoid, proj[r] + b, heads, beta);
        if (c_.beta_scale != 1.0f) k.scale(beta, c_.beta_scale, heads, beta);
        k.softplus_bias(proj[r] + b + heads, w_.dt_bias.data(), heads, 0.0f,
                        std::numeric_limits<float>::infinity(), decay);
        k.exp_mul(w_.a.data(), decay, heads, decay);
      }
    });
  }

  // All value heads of all sequences; a head's tokens stay together and in order.
  void AdvanceState(const Step& step, Rows conv, Rows gates, Rows y) const {
    const int64_t heads = c_.value_heads, each = heads / c_.key_heads;
    const int64_t n_items = static_cast<int64_t>(step.items().size());
    int64_t longest = 0;
    for (const StepItem& item : step.items()) longest = std::max(longest, item.tokens);
    const int64_t cost = c_.key_dim * c_.value_dim * (longest + 1) / 10;
    step.For(n_items * heads, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const StepItem& item = step.items()[i / heads];
        const int64_t head = i % heads, row = item.row0;
        const float* query = conv[row] + head / each * c_.key_dim;
        step.kernels().gated_delta(kernel::GatedDeltaArgs{
            .state = item.State(state_offset_) + head * c_.key_dim * c_.value_dim,
            .k_dim = c_.key_dim,
            .v_dim = c_.value_dim,
            .tokens = item.tokens,
            .q = query,
            .k = query + c_.keys(),
            .ldqk = conv.stride,
            .v = conv[row] + 2 * c_.keys() + head * c_.value_dim,
            .ldv = conv.stride,
            .beta = gates[row] + head,
            .decay = gates[row] + heads + head,
            .ldg = gates.stride,
            .y = y[row] + head * c_.value_dim,
            .ldy = y.stride});
      }
    });
  }

  // The same in narrow form.
  void AdvanceNarrowState(const Step& step, Rows conv, Rows gates, Rows y, int64_t rows) const {
    const Rows u{step.arena().Take(rows * c_.values()), c_.values()};
    AdvanceNarrow(step, *narrow_,
                  {.input = u,
                   .key = {conv.data + c_.keys(), conv.stride},
                   .query = conv,
                   .decay = gates.data + c_.value_heads,
                   .decay_stride = gates.stride,
                   .y = y,
                   .rows = rows,
                   .value = {conv.data + 2 * c_.keys(), conv.stride},
                   .share = gates});
  }

  // y = w * rms(y) * silu(z), each head by itself.
  void NormAndGate(const Step& step, Rows proj, Rows y, int64_t rows) const {
    step.For(rows, c_.values(), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t h = 0; h < c_.value_heads; ++h) {
          float* head = y[r] + h * c_.value_dim;
          step.kernels().rms_norm(head, w_.norm.data(), c_.value_dim, c_.norm_eps, head);
        }
        step.kernels().silu_mul(proj[r] + c_.conv_channels(), y[r], c_.values(), y[r]);
      }
    });
  }

  const GatedDeltaConfig& c_;
  const GatedDeltaWeights& w_;
  const std::vector<float> no_bias_;
  ConvLayer conv_;
  uint64_t state_offset_;
  std::optional<NarrowLayer> narrow_;
  float length_eps_ = 0;
  std::vector<float> key_scale_, query_scale_;  // [key_dim], all alike
};

}  // namespace

std::unique_ptr<MixerBlock> MakeGatedDelta(const MixerPlace& place,
                                           const GatedDeltaWeights& weights) {
  return std::make_unique<GatedDeltaBlock>(place, weights);
}

void AddGatedDeltaParts(const GatedDeltaConfig& c,
                        uint32_t layer,
                        kernel::StateDType state,
                        LayoutSpec* spec) {
  spec->parts.push_back(ConvPart(layer, c.conv_width, c.conv_channels()));
  AddSsmParts(layer, {c.value_heads, c.key_dim, c.value_dim}, "H,K,V", state, spec);
}

double GatedDeltaCost(const GatedDeltaConfig& c, int64_t hidden) {
  const double matrices = Product(hidden, c.in_proj()) + Product(c.values(), hidden);
  const double conv = Product(c.conv_width, c.conv_channels());
  // Read with the key, decay, write, read with the query: 7 per element of the state.
  return 2 * (matrices + conv) + 7 * Product(c.values(), c.key_dim);
}

}  // namespace baton::model
