// A model without numerics: its state is a rolling hash of the tokens, its KV the hash at each
// position, its logits a function of both. Any lost, stale or foreign byte of state or KV changes
// the text. It runs thousands of tokens a millisecond, for tests of everything around a model.
#ifndef BATON_TEST_SUPPORT_FAKE_MODEL_H_
#define BATON_TEST_SUPPORT_FAKE_MODEL_H_

#include <cstring>
#include <memory>

#include "base/sha256.h"
#include "model/model.h"

namespace baton::testing {

struct FakeModelOptions {
  int64_t vocab = 97;
  int64_t max_model_len = 4096;
  uint64_t weights = 1;  // another value is another model
  bool with_state = true;
  bool with_kv = true;
  std::string axes = "H,N,P";
};

class FakeModel final : public model::Model {
 public:
  explicit FakeModel(FakeModelOptions options = {}) : options_(options) {
    LayoutSpec spec;
    if (options.with_state) {
      for (uint32_t layer : {0u, 2u}) {
        spec.parts.push_back(
            {layer, "conv", ElementType::kF32, {3, 8}, "tap-oldest-first,channel", 0, 0});
        spec.parts.push_back({layer, "ssm", ElementType::kF32, {2, 4, 8}, options.axes, 0, 0});
      }
    }
    if (options.with_kv) {
      KvGroup group;
      group.name = "full";
      group.layers = {1};
      group.kv_heads = 1;
      group.head_dim = 4;
      spec.groups.push_back(group);
    }
    layout_ = Layout::Build(std::move(spec)).value();
    ByteWriter w;
    w.Put(options.weights);
    fingerprint_ = Sha256Of(AsBytes(w.data()));
  }

  const model::ModelConfig& config() const override { return config_; }
  const Layout& layout() const override { return layout_; }
  const Sha256& fingerprint() const override { return fingerprint_; }
  int64_t vocab_size() const override { return options_.vocab; }
  int64_t max_model_len() const override { return options_.max_model_len; }
  size_t weight_bytes() const override { return 0; }

  Status Forward(std::span<const model::BatchItem> batch,
                 model::Workspace*,
                 ThreadPool*) const override {
    for (const model::BatchItem& item : batch) Run(item);
    return absl::OkStatus();
  }

 private:
  static uint32_t Mix(uint64_t a, uint64_t b) {
    uint64_t z =
        (a + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull ^ (b + 1) * 0x94D049BB133111EBull;
    z ^= z >> 29;
    z *= 0xD6E8FEB86659FD93ull;
    return static_cast<uint32_t>(z >> 41);  // 23 bits: exact in f32
  }

  void Run(const model::BatchItem& item) const {
    for (size_t t = 0; t < item.tokens.size(); ++t) {
      const auto position = static_cast<size_t>(item.position) + t;
      const TokenId token = item.tokens[t];
      uint64_t all = options_.weights * 77 + token;
      for (const StatePart& part : layout_.parts()) {
        auto* s = reinterpret_cast<float*>(item.slot + part.offset);
        for (size_t i = 0; i < part.bytes / 4; ++i) {
          s[i] = static_cast<float>(
              Mix(static_cast<uint64_t>(s[i]) * 131 + i, token + (part.offset << 20)));
          all = all * 1099511628211ull + static_cast<uint64_t>(s[i]);
        }
      }
      if (options_.with_kv) {
        auto at = [&](size_t p) {
          return reinterpret_cast<float*>(item.blocks[0][p / 16]) + p % 16;
        };
        *at(position) = static_cast<float>(Mix(token, position));
        for (size_t p = 0; p <= position; ++p)
          all = all * 1099511628211ull + static_cast<uint64_t>(*at(p));
      }
      const bool last = t + 1 == item.tokens.size();
      float* logits = nullptr;
      if (item.logits_mode == model::LogitsMode::kAll)
        logits = item.logits + t * static_cast<size_t>(options_.vocab);
      if (item.logits_mode == model::LogitsMode::kLast && last) logits = item.logits;
      if (logits == nullptr) continue;
      for (int64_t v = 0; v < options_.vocab; ++v)
        logits[v] = static_cast<float>(Mix(all, static_cast<uint64_t>(v))) * 1e-6f;
    }
  }

  FakeModelOptions options_;
  model::ModelConfig config_;
  Layout layout_;
  Sha256 fingerprint_;
};

}  // namespace baton::testing

#endif  // BATON_TEST_SUPPORT_FAKE_MODEL_H_
