#include "model/decoder.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/model_layout.h"
#include "model/state_form.h"

namespace baton::model {
namespace {

// Rows whose logits are computed at once: bounds the scratch of a whole prompt's logits.
constexpr int64_t kLogitRowsMax = 64;
// Far above any step a scheduler forms; keeps sizes in range.
constexpr int64_t kStepRowsMax = int64_t{1} << 20;

size_t BytesOf(const Linear& l) { return l.w.bytes() + l.bias.size() * sizeof(float); }
size_t BytesOf(const MlpWeights& m) { return BytesOf(m.gate) + BytesOf(m.up) + BytesOf(m.down); }
size_t BytesOf(std::initializer_list<const std::vector<float>*> vectors) {
  size_t n = 0;
  for (const std::vector<float>* v : vectors) n += v->size() * sizeof(float);
  return n;
}

}  // namespace

size_t WeightBytes(const DecoderWeights& w) {
  size_t n = BytesOf(w.embedding) + BytesOf(w.lm_head) + BytesOf({&w.final_norm});
  for (const LayerWeights& l : w.layers) {
    n += BytesOf({&l.mixer_norm, &l.ffn_norm});
    if (l.attention.has_value()) {
      n += BytesOf(l.attention->q) + BytesOf(l.attention->k) + BytesOf(l.attention->v) +
           BytesOf(l.attention->o);
    }
    if (l.mamba2.has_value()) {
      const Mamba2Weights& m = *l.mamba2;
      n += BytesOf(m.in) + BytesOf(m.out) +
           BytesOf({&m.conv_w, &m.conv_b, &m.dt_bias, &m.a, &m.d, &m.norm});
    }
    if (l.mamba1.has_value()) {
      const Mamba1Weights& m = *l.mamba1;
      n +=
          BytesOf(m.in) + BytesOf(m.x) + BytesOf(m.dt) + BytesOf(m.out) +
          BytesOf({&m.conv_w, &m.conv_b, &m.dt_norm, &m.b_norm, &m.c_norm, &m.dt_bias, &m.a, &m.d});
    }
    if (l.mlp.has_value()) n += BytesOf(*l.mlp);
    if (l.moe.has_value()) {
      n += BytesOf(l.moe->router);
      for (const MlpWeights& e : l.moe->experts) n += BytesOf(e);
    }
  }
  return n;
}

Decoder::Decoder(Parts parts) : parts_(std::move(parts)) {
  const ModelConfig& c = parts_.config;
  if (c.attention.has_value() && c.attention->rope.has_value())
    rope_frequencies_ = RopeFrequencies(*c.attention->rope);
  size_t ordinal = 0;
  uint64_t tail = parts_.layout.slot_bytes();
  for (uint32_t i = 0; i < c.layers.size(); ++i) {
    const LayerWeights& w = parts_.weights.layers[i];
    LayerRuntime& layer = layers_.emplace_back();
    if (c.layers[i].mixer == Mixer::kAttention) {
      layer.attention =
          AttentionLayer{&*c.attention, &*w.attention, &parts_.layout.groups()[0], ordinal++};
      continue;
    }
    const StatePart& conv = parts_.layout.parts()[*parts_.layout.FindPart(i, kConvComponent)];
    const StatePart& ssm = parts_.layout.parts()[*parts_.layout.FindPart(i, kSsmComponent)];
    if (c.layers[i].mixer == Mixer::kMamba2) {
      layer.mamba2 = Mamba2Layer{&*c.mamba2, &*w.mamba2, c.rms_norm_eps, conv.offset, ssm.offset};
      if (parts_.state_dtype != kernel::StateDType::kF32) {
        const auto scale = parts_.layout.FindPart(i, kScaleComponent);
        layer.mamba2->narrow =
            NarrowMamba2{parts_.state_dtype, RoundingOf(parts_.state_dtype), i,
                         scale.has_value() ? parts_.layout.parts()[*scale].offset : 0, tail};
        tail += LayerTailBytes(*c.mamba2);
      }
    } else {
      layer.mamba1 = Mamba1Layer{&*c.mamba1, &*w.mamba1, c.rms_norm_eps, conv.offset, ssm.offset};
    }
  }
  weight_bytes_ = WeightBytes(parts_.weights);
  slot_tail_bytes_ = SlotTailBytes(c, parts_.state_dtype);
  BATON_CHECK(tail == parts_.layout.slot_bytes() + slot_tail_bytes_);
}

Status Decoder::Validate(std::span<const BatchItem> batch, Workspace::Impl* work) const {
  int64_t rows = 0;
  work->slots.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchItem& item = batch[i];
    const auto bad = [i](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("batch item ", i, ": ", what));
    };
    const int64_t n = static_cast<int64_t>(item.tokens.size());
    rows += n;
    if (n == 0 || rows > kStepRowsMax)
      return bad(absl::StrCat(n, " tokens; 1 or more, and at most ", kStepRowsMax, " in a batch"));
    if (item.position < 0 || item.position > parts_.max_model_len - n) {
      return bad(absl::StrCat(n, " tokens from position ", item.position,
                              " do not fit the model's context of ", parts_.max_model_len));
    }
    for (const TokenId token : item.tokens) {
      if (static_cast<int64_t>(token) >= parts_.config.vocab_size)
        return bad(absl::StrCat("token ", token, " is outside the vocabulary of ",
                                parts_.config.vocab_size));
    }
    if ((item.slot != nullptr) != parts_.layout.has_state())
      return bad(item.slot == nullptr ? "no state slot given" : "this model has no state slot");
    if (item.slot != nullptr) work->slots.push_back(item.slot);
    if (item.blocks.size() != parts_.layout.groups().size()) {
      return bad(absl::StrCat(item.blocks.size(), " block tables, the layout has ",
                              parts_.layout.groups().size(), " groups"));
    }
    const int64_t blocks = BlocksFor(item.position + n);
    for (const auto& table : item.blocks) {
      if (static_cast<int64_t>(table.size()) < blocks)
        return bad(absl::StrCat(table.size(), " KV blocks given, ", blocks, " needed"));
      for (int64_t b = 0; b < blocks; ++b)
        if (table[b] == nullptr) return bad(absl::StrCat("KV block ", b, " is null"));
    }
    if (item.logits_mode != LogitsMode::kNone && item.logits == nullptr)
      return bad("logits are asked, but there is no place for them");
  }
  // Two sequences in one slot would be silent and wrong.
  std::sort(work->slots.begin(), work->slots.end());
  if (std::adjacent_find(work->slots.begin(), work->slots.end()) != work->slots.end())
    return absl::InvalidArgumentError("two batch items share one state slot");
  return absl::OkStatus();
}

void Decoder::Plan(std::span<const BatchItem> batch, Workspace::Impl* work) const {
  work->items.clear();
  work->blocks.clear();
  work->logit_rows.clear();
  work->logit_out.clear();
  int64_t row = 0;
  for (const BatchItem& item : batch) {
    StepItem& s = work->items.emplace_back();
    s.row0 = row;
    s.tokens = static_cast<int64_t>(item.tokens.size());
    s.position = item.position;
    s.slot = item.slot;
    if (!item.blocks.empty()) {
      for (int64_t b = 0; b < BlocksFor(s.position + s.tokens); ++b)
        work->blocks.push_back(reinterpret_cast<float*>(item.blocks[0][b]));
    }
    const int64_t wanted = item.logits_mode == LogitsMode::kNone   ? 0
                           : item.logits_mode == LogitsMode::kLast ? 1
                                                                   : s.tokens;
    for (int64_t i = 0; i < wanted; ++i) {
      work->logit_rows.push_back(row + s.tokens - wanted + i);
      work->logit_out.push_back(item.logits + i * parts_.config.vocab_size);
    }
    row += s.tokens;
  }
  // The table has stopped growing: its addresses are final.
  float* const* next = work->blocks.data();
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].blocks.empty()) continue;
    work->items[i].blocks = next;
    next += BlocksFor(work->items[i].position + work->items[i].tokens);
  }
  PlanAttention(work);
}

Status Decoder::ReserveScratch(Workspace::Impl* work, int64_t rows) const {
  const ModelConfig& c = parts_.config;
  int64_t block = std::min<int64_t>(kLogitRowsMax, rows) * c.vocab_size;
  if (c.attention.has_value()) block = std::max(block, AttentionScratch(*c.attention, rows));
  if (c.mamba2.has_value()) block = std::max(block, Mamba2Scratch(*c.mamba2, rows));
  if (c.mamba1.has_value()) block = std::max(block, Mamba1Scratch(*c.mamba1, rows));
  if (c.mlp.has_value()) block = std::max(block, MlpScratch(*c.mlp, rows));
  if (c.moe.has_value()) block = std::max(block, MoeScratch(*c.moe, c.hidden_size, rows));
  const int64_t rope = c.attention.has_value() ? RopeScratch(*c.attention, rows) : 0;
  return work->arena.Reserve(3 * Arena::Rounded(rows * c.hidden_size) + rope +
                             Arena::Rounded(block));
}

void Decoder::Embed(const Step& step,
                    std::span<const BatchItem> batch,
                    const Hidden& hidden) const {
  const ModelConfig& c = parts_.config;
  for (size_t i = 0; i < batch.size(); ++i) {
    const StepItem& item = step.items()[i];
    step.For(item.tokens, c.hidden_size, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        LoadRow(parts_.weights.embedding.w, batch[i].tokens[t], c.embedding_multiplier,
                hidden.h[item.row0 + t]);
      }
    });
  }
}

void Decoder::AddAndNorm(const Step& step,
                         const std::vector<float>& norm,
                         bool add,
                         const Hidden& hidden) const {
  const ModelConfig& c = parts_.config;
  step.For(hidden.rows, c.hidden_size / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (add)
        step.kernels().add_scaled(hidden.y[r], c.residual_multiplier, c.hidden_size, hidden.h[r]);
      step.kernels().rms_norm(hidden.h[r], norm.data(), c.hidden_size, c.rms_norm_eps, hidden.x[r]);
    }
  });
}

void Decoder::RunMixer(const Step& step,
                       size_t layer,
                       const RopeTable& rope,
                       const Hidden& hidden) const {
  const LayerRuntime& l = layers_[layer];
  if (l.attention.has_value()) {
    RunAttention(step, *l.attention, rope, hidden.x, hidden.y, hidden.rows);
  } else if (l.mamba2.has_value()) {
    RunMamba2(step, *l.mamba2, hidden.x, hidden.y, hidden.rows);
  } else {
    RunMamba1(step, *l.mamba1, hidden.x, hidden.y, hidden.rows);
  }
}

void Decoder::RunFfn(const Step& step, size_t layer, const Hidden& hidden) const {
  const LayerWeights& w = parts_.weights.layers[layer];
  if (w.mlp.has_value()) {
    RunMlp(step, *w.mlp, hidden.x, hidden.y, hidden.rows);
  } else {
    for (int64_t r = 0; r < hidden.rows; ++r)
      std::fill_n(hidden.y[r], parts_.config.hidden_size, 0.0f);
  }
  if (w.moe.has_value()) AddMoe(step, *parts_.config.moe, *w.moe, hidden.x, hidden.y, hidden.rows);
}

void Decoder::KeepLogitRows(const Step& step, Hidden* hidden) const {
  const std::vector<int64_t>& kept = step.work().logit_rows;
  const size_t bytes = static_cast<size_t>(parts_.config.hidden_size) * sizeof(float);
  for (size_t i = 0; i < kept.size(); ++i) {
    const int64_t to = static_cast<int64_t>(i);
    if (kept[i] == to) continue;  // ascending: a row never moves back
    std::memcpy(hidden->h[to], hidden->h[kept[i]], bytes);
    std::memcpy(hidden->y[to], hidden->y[kept[i]], bytes);
  }
  hidden->rows = static_cast<int64_t>(kept.size());
}

void Decoder::RunLayers(const Step& step, const RopeTable& rope, Hidden* hidden) const {
  const size_t n = layers_.size();
  for (size_t i = 0; i < n; ++i) {
    const LayerWeights& w = parts_.weights.layers[i];
    AddAndNorm(step, w.mixer_norm, i > 0, *hidden);
    RunMixer(step, i, rope, *hidden);
    // After the last mixer, rows without logits influence nothing any more.
    if (i + 1 == n) KeepLogitRows(step, hidden);
    if (hidden->rows == 0) return;
    AddAndNorm(step, w.ffn_norm, true, *hidden);
    RunFfn(step, i, *hidden);
  }
  AddAndNorm(step, parts_.weights.final_norm, true, *hidden);
}

void Decoder::Logits(const Step& step, const Hidden& hidden) const {
  const ModelConfig& c = parts_.config;
  const Linear& head = c.tie_word_embeddings ? parts_.weights.embedding : parts_.weights.lm_head;
  const float scale = 1.0f / c.logits_divisor;
  const std::vector<float*>& out = step.work().logit_out;
  for (int64_t first = 0; first < hidden.rows; first += kLogitRowsMax) {
    const int64_t rows = std::min(kLogitRowsMax, hidden.rows - first);
    const ArenaScope scope(&step.arena());
    const Rows y{step.arena().Take(rows * c.vocab_size), c.vocab_size};
    RunLinear(step, {&head, Rows{hidden.x[first], hidden.x.stride}, rows, y});
    step.For(rows, c.vocab_size / 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        step.kernels().scale(y[r], scale, c.vocab_size, out[first + r]);
    });
  }
}

Status Decoder::Forward(std::span<const BatchItem> batch,
                        Workspace* workspace,
                        ThreadPool* pool) const {
  if (batch.empty()) return absl::OkStatus();
  Workspace::Impl* work = workspace->impl();
  BATON_RETURN_IF_ERROR(Validate(batch, work));
  Plan(batch, work);
  const StepItem& last = work->items.back();
  const int64_t rows = last.row0 + last.tokens, width = parts_.config.hidden_size;
  BATON_RETURN_IF_ERROR(ReserveScratch(work, rows));

  const Step step(*parts_.kernels, pool, work);
  Hidden hidden;
  hidden.rows = rows;
  for (Rows* r : {&hidden.h, &hidden.x, &hidden.y})
    *r = Rows{work->arena.Take(rows * width), width};
  Embed(step, batch, hidden);
  const RopeTable rope = BuildRopeTable(step, rope_frequencies_, rows);
  RunLayers(step, rope, &hidden);
  Logits(step, hidden);
  return absl::OkStatus();
}

}  // namespace baton::model
