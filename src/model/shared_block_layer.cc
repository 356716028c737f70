#include "model/shared_block_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/linear.h"
#include "model/mlp.h"

namespace baton::model {

SharedBlockLayer::SharedBlockLayer(const ModelConfig& config,
                                   const Weights& weights,
                                   std::unique_ptr<MixerBlock> attention,
                                   std::unique_ptr<MixerBlock> mixer)
    : config_(*config.shared_block),
      weights_(weights),
      attention_(std::move(attention)),
      mixer_(std::move(mixer)),
      eps_(config.rms_norm_eps),
      width_(config.hidden_size) {}

int64_t SharedBlockLayer::MlpFloats(int64_t rows) const {
  return MlpScratch(config_.mlp, rows) + Arena::Rounded(rows * config_.mlp_rank);
}

int64_t SharedBlockLayer::Scratch(int64_t rows) const {
  const int64_t wide = Arena::Rounded(rows * 2 * width_);
  return std::max(wide + std::max(attention_->Scratch(rows), MlpFloats(rows)),
                  mixer_->Scratch(rows));
}

void SharedBlockLayer::Concatenate(const Step& step, const Hidden& hidden, Rows wide) const {
  const size_t bytes = static_cast<size_t>(width_) * sizeof(float);
  const float* norm = weights_.block->input_norm.data();
  step.For(hidden.rows, width_ / 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(wide[r], hidden.h[r], bytes);
      std::memcpy(wide[r] + width_, hidden.embedded[r], bytes);
      step.kernels().rms_norm(wide[r], norm, 2 * width_, eps_, wide[r]);
    }
  });
}

void SharedBlockLayer::RunBlockMlp(const Step& step, Rows x, Rows y, int64_t rows) const {
  const MlpWeights& w = weights_.block->mlp;
  const MlpForm& form = config_.mlp.form;
  const auto& added = weights_.layer->shared->gate_up;
  if (!added.has_value()) return RunMlp(step, w, x, y, rows, form);
  const ArenaScope scope(&step.arena());
  const int64_t width = config_.mlp.width;
  const Rows gate{step.arena().Take(rows * width), width};
  const Rows up{step.arena().Take(rows * width), width};
  const Rows low{step.arena().Take(rows * config_.mlp_rank), config_.mlp_rank};
  const LinearJob base[] = {
      {&w.gate, x, rows, gate}, {&w.up, x, rows, up}, {&added->a, x, rows, low}};
  RunLinears(step, base);
  const LinearJob more[] = {{&added->b[0], low, rows, gate, true},
                            {&added->b[1], low, rows, up, true}};
  RunLinears(step, more);
  step.For(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      step.kernels().apply_mul(FunctionOf(form.act), gate[r], up[r], width, gate[r]);
  });
  RunLinear(step, {&w.down, gate, rows, y});
}

void SharedBlockLayer::Mix(const Step& step, Hidden* hidden) const {
  const LayerWeights& w = *weights_.layer;
  const int64_t rows = hidden->rows;
  AddPending(step, hidden);
  {
    const ArenaScope scope(&step.arena());
    const Rows wide{step.arena().Take(rows * 2 * width_), 2 * width_};
    Concatenate(step, *hidden, wide);
    attention_->Run(step, wide, hidden->y, rows);
    step.For(rows, width_ / 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        step.kernels().rms_norm(hidden->y[r], weights_.block->ffn_norm.data(), width_, eps_,
                                hidden->x[r]);
      }
    });
    RunBlockMlp(step, hidden->x, hidden->y, rows);
  }
  RunLinear(step, {&w.shared->linear, hidden->y, rows, hidden->x});
  step.For(rows, width_ / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      step.kernels().add_scaled(hidden->h[r], 1.0f, width_, hidden->x[r]);
      step.kernels().rms_norm(hidden->x[r], w.mixer_norm.data(), width_, eps_, hidden->x[r]);
    }
  });
  mixer_->Run(step, hidden->x, hidden->y, rows);
  hidden->Leave(1);
}

}  // namespace baton::model
