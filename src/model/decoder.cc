#include "model/decoder.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/attention.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/mixer.h"
#include "model/normed_residual_layer.h"
#include "model/parallel_layer.h"
#include "model/residual_layer.h"
#include "model/shared_block_layer.h"

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

size_t BytesOf(const AttentionWeights& a) {
  return BytesOf(a.q) + BytesOf(a.k) + BytesOf(a.v) + BytesOf(a.o) + BytesOf(a.gate) +
         BytesOf({&a.q_norm, &a.k_norm});
}
size_t BytesOf(const std::vector<Linear>& linears) {
  size_t n = 0;
  for (const Linear& l : linears) n += BytesOf(l);
  return n;
}
size_t BytesOf(const LowRank& l) { return BytesOf(l.a) + BytesOf(l.b); }
size_t BytesOf(const SharedUseWeights& s) {
  size_t n = BytesOf(s.linear);
  for (const LowRank& l : s.qkv) n += BytesOf(l);
  if (s.gate_up.has_value()) n += BytesOf(*s.gate_up);
  return n;
}

// How the blocks of a layer are wired.
std::unique_ptr<Layer> MakeLayer(const MixerPlace& place, const DecoderWeights& weights) {
  const ModelConfig& config = *place.config;
  const LayerWeights& w = weights.layers[place.layer];
  const LayerConfig& layer = config.layers[place.layer];
  std::unique_ptr<MixerBlock> mixer = MakeMixer(layer.mixer, place, w);
  if (w.shared.has_value()) {
    const SharedBlockWeights& block = weights.shared_blocks[w.shared->block];
    return std::make_unique<SharedBlockLayer>(config, SharedBlockLayer::Weights{&block, &w},
                                              MakeAttention(place, block.attention, &w.shared->qkv),
                                              std::move(mixer));
  }
  if (layer.attention) {
    return std::make_unique<ParallelLayer>(config, w, std::move(mixer),
                                           MakeMixer(Mixer::kAttention, place, w));
  }
  if (config.normed_residual.has_value())
    return std::make_unique<NormedResidualLayer>(config, w, layer.mixer, std::move(mixer));
  return std::make_unique<ResidualLayer>(config, w, std::move(mixer));
}

}  // namespace

size_t WeightBytes(const DecoderWeights& w) {
  size_t n = BytesOf(w.embedding) + BytesOf(w.lm_head) + BytesOf({&w.final_norm});
  for (const SharedBlockWeights& s : w.shared_blocks)
    n += BytesOf({&s.input_norm, &s.ffn_norm}) + BytesOf(s.attention) + BytesOf(s.mlp);
  for (const LayerWeights& l : w.layers) {
    n += BytesOf({&l.mixer_norm, &l.ffn_norm});
    if (l.attention.has_value()) n += BytesOf(*l.attention);
    if (l.shared.has_value()) n += BytesOf(*l.shared);
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
    if (l.lightning.has_value()) {
      const LightningWeights& a = *l.lightning;
      n += BytesOf(a.qkv) + BytesOf(a.gate) + BytesOf(a.out) + BytesOf({&a.norm});
    }
    if (l.rg_lru.has_value()) {
      const RgLruWeights& g = *l.rg_lru;
      n += BytesOf(g.x) + BytesOf(g.y) + BytesOf(g.out) + BytesOf({&g.conv_w, &g.conv_b, &g.rate});
      for (const auto* gate : {&g.input_gate, &g.decay_gate})
        for (const Linear& block : *gate) n += BytesOf(block);
    }
    if (l.short_conv.has_value()) {
      const ShortConvWeights& s = *l.short_conv;
      n += BytesOf(s.in) + BytesOf(s.out) + BytesOf({&s.conv_w, &s.conv_b});
    }
    if (l.gated_delta.has_value()) {
      const GatedDeltaWeights& g = *l.gated_delta;
      for (const Linear& in : g.in) n += BytesOf(in);
      n += BytesOf(g.out) + BytesOf({&g.conv_w, &g.dt_bias, &g.a, &g.norm});
    }
    if (l.mlp.has_value()) n += BytesOf(*l.mlp);
    if (l.moe.has_value()) {
      n += BytesOf(l.moe->router) + BytesOf(l.moe->shared_gate) + BytesOf(l.moe->latent_in) +
           BytesOf(l.moe->latent_out) + BytesOf({&l.moe->correction});
      if (l.moe->shared.has_value()) n += BytesOf(*l.moe->shared);
      for (const MlpWeights& e : l.moe->experts) n += BytesOf(e);
    }
  }
  return n;
}

Decoder::Decoder(Parts parts) : parts_(std::move(parts)) {
  const ModelConfig& c = parts_.config;
  if (c.attention.has_value() && c.attention->rope.has_value())
    rope_frequencies_ = RopeFrequencies(*c.attention->rope);
  const uint64_t slot_bytes = parts_.layout.slot_bytes();
  MixerPlace place{&c, &parts_.layout, 0, parts_.state_dtype, slot_bytes};
  for (uint32_t i = 0; i < c.layers.size(); ++i) {
    place.layer = i;
    layers_.push_back(MakeLayer(place, parts_.weights));
    place.tail_offset += MixerTailBytes(c.layers[i].mixer, c, parts_.state_dtype);
  }
  weight_bytes_ = WeightBytes(parts_.weights);
  slot_tail_bytes_ = place.tail_offset - slot_bytes;
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
    for (size_t g = 0; g < item.blocks.size(); ++g) {
      const auto& table = item.blocks[g];
      const auto first =
          static_cast<int64_t>(parts_.layout.FirstBlock(g, static_cast<uint64_t>(item.position)));
      if (static_cast<int64_t>(table.size()) < blocks)
        return bad(absl::StrCat(table.size(), " KV blocks given, ", blocks, " needed"));
      for (int64_t b = first; b < blocks; ++b)
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
    for (const auto& table : item.blocks) {
      for (int64_t b = 0; b < BlocksFor(s.position + s.tokens); ++b)
        work->blocks.push_back(reinterpret_cast<float*>(table[b]));
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
  // The vectors have stopped growing: their addresses are final.
  const size_t groups = parts_.layout.groups().size();
  work->tables.resize(batch.size() * groups);
  float* const* next = work->blocks.data();
  for (size_t i = 0; i < batch.size(); ++i) {
    StepItem& s = work->items[i];
    s.tables = work->tables.data() + i * groups;
    for (size_t g = 0; g < groups; ++g) {
      work->tables[i * groups + g] = next;
      next += BlocksFor(s.position + s.tokens);
    }
  }
  PlanAttention(work);
}

Status Decoder::ReserveScratch(Workspace::Impl* work, int64_t rows) const {
  const ModelConfig& c = parts_.config;
  int64_t block = std::min<int64_t>(kLogitRowsMax, rows) * c.vocab_size;
  for (const auto& layer : layers_) block = std::max(block, layer->Scratch(rows));
  const int64_t rope = c.attention.has_value() ? RopeScratch(*c.attention, rows) : 0;
  const int64_t kept = c.shared_block.has_value() ? 4 : 3;
  return work->arena.Reserve(kept * Arena::Rounded(rows * c.hidden_size) + rope +
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

void Decoder::RunLayers(const Step& step, Hidden* hidden) const {
  const size_t n = layers_.size();
  for (size_t i = 0; i < n; ++i) {
    layers_[i]->Mix(step, hidden);
    // After the last mixer, rows without logits influence nothing any more.
    if (i + 1 == n) KeepLogitRows(step, hidden);
    if (hidden->rows == 0) return;
    layers_[i]->Feed(step, hidden);
  }
  AddAndNorm(step, NormRef{&parts_.weights.final_norm, parts_.config.rms_norm_eps}, hidden);
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
      for (int64_t r = begin; r < end; ++r) {
        float* to = out[first + r];
        step.kernels().scale(y[r], scale, c.vocab_size, to);
        if (c.logits_soft_cap <= 0) continue;
        step.kernels().scale(to, 1.0f / c.logits_soft_cap, c.vocab_size, to);
        step.kernels().apply(kernel::Function::kTanh, to, c.vocab_size, to);
        step.kernels().scale(to, c.logits_soft_cap, c.vocab_size, to);
      }
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
  hidden.width = width;
  for (Rows* r : {&hidden.h, &hidden.x, &hidden.y})
    *r = Rows{work->arena.Take(rows * width), width};
  Embed(step, batch, hidden);
  if (parts_.config.shared_block.has_value()) {
    hidden.embedded = Rows{work->arena.Take(rows * width), width};
    std::memcpy(hidden.embedded.data, hidden.h.data,
                static_cast<size_t>(rows * width) * sizeof(float));
  }
  work->rope = BuildRopeTable(step, rope_frequencies_, rows);
  RunLayers(step, &hidden);
  Logits(step, hidden);
  return absl::OkStatus();
}

}  // namespace baton::model
