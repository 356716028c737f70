// The forward pass all supported architectures share: embed, then per layer
// h += m * mixer(norm(h)); h += m * ffn(norm(h)), then norm and logits. What differs between
// architectures is which blocks a layer has, and lies in config and weights.
//
// Thread rule: immutable after construction; Forward on one thread per Workspace.
#ifndef BATON_MODEL_DECODER_H_
#define BATON_MODEL_DECODER_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/attention.h"
#include "model/mamba1.h"
#include "model/mamba2.h"
#include "model/model.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

class Decoder final : public Model {
 public:
  struct Parts {
    ModelConfig config;
    Layout layout;
    Sha256 fingerprint;
    DecoderWeights weights;
    const kernel::Kernels* kernels = nullptr;
    int64_t max_model_len = 0;
    kernel::StateDType state_dtype = kernel::StateDType::kF32;
  };
  // `parts.weights` are complete and of the shapes of `parts.config`.
  explicit Decoder(Parts parts);

  const ModelConfig& config() const override { return parts_.config; }
  const Layout& layout() const override { return parts_.layout; }
  const Sha256& fingerprint() const override { return parts_.fingerprint; }
  int64_t vocab_size() const override { return parts_.config.vocab_size; }
  int64_t max_model_len() const override { return parts_.max_model_len; }
  size_t weight_bytes() const override { return weight_bytes_; }
  kernel::StateDType state_dtype() const override { return parts_.state_dtype; }
  uint64_t slot_tail_bytes() const override { return slot_tail_bytes_; }

  Status Forward(std::span<const BatchItem> batch,
                 Workspace* workspace,
                 ThreadPool* pool) const override;

 private:
  // One layer with what it needs to find its part of a sequence's memory.
  struct LayerRuntime {
    std::optional<AttentionLayer> attention;
    std::optional<Mamba2Layer> mamba2;
    std::optional<Mamba1Layer> mamba1;
  };
  // Hidden states of a step.
  struct Hidden {
    Rows h;  // residual stream
    Rows x;  // normed input of a block
    Rows y;  // output of a block, not yet added
    int64_t rows;
  };

  Status Validate(std::span<const BatchItem> batch, Workspace::Impl* work) const;
  // Items, block tables and the rows whose logits are asked.
  void Plan(std::span<const BatchItem> batch, Workspace::Impl* work) const;
  Status ReserveScratch(Workspace::Impl* work, int64_t rows) const;
  void Embed(const Step& step, std::span<const BatchItem> batch, const Hidden& hidden) const;
  void RunLayers(const Step& step, const RopeTable& rope, Hidden* hidden) const;
  void RunMixer(const Step& step, size_t layer, const RopeTable& rope, const Hidden& hidden) const;
  void RunFfn(const Step& step, size_t layer, const Hidden& hidden) const;
  // h += m * y, then x = norm(h).
  void AddAndNorm(const Step& step,
                  const std::vector<float>& norm,
                  bool add,
                  const Hidden& hidden) const;
  // Moves the rows whose logits are asked to the front.
  void KeepLogitRows(const Step& step, Hidden* hidden) const;
  void Logits(const Step& step, const Hidden& hidden) const;

  Parts parts_;
  std::vector<LayerRuntime> layers_;
  std::vector<float> rope_frequencies_;
  size_t weight_bytes_ = 0;
  uint64_t slot_tail_bytes_ = 0;
};

// Bytes the weights occupy in memory.
size_t WeightBytes(const DecoderWeights& weights);

}  // namespace baton::model

#endif  // BATON_MODEL_DECODER_H_
