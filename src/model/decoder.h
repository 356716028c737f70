// The forward pass all supported architectures share: embed, then layer after layer (layer.h), then
// norm and logits. What differs between architectures lies in config, weights and the kind of
// layer.
//
// Thread rule: immutable after construction; Forward on one thread per Workspace.
#ifndef BATON_MODEL_DECODER_H_
#define BATON_MODEL_DECODER_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/layer.h"
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
  Status Validate(std::span<const BatchItem> batch, Workspace::Impl* work) const;
  // Items, block tables and the rows whose logits are asked.
  void Plan(std::span<const BatchItem> batch, Workspace::Impl* work) const;
  Status ReserveScratch(Workspace::Impl* work, int64_t rows) const;
  void Embed(const Step& step, std::span<const BatchItem> batch, const Hidden& hidden) const;
  void RunLayers(const Step& step, Hidden* hidden) const;
  // Moves the rows whose logits are asked to the front.
  void KeepLogitRows(const Step& step, Hidden* hidden) const;
  void Logits(const Step& step, const Hidden& hidden) const;

  Parts parts_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<float> rope_frequencies_;
  size_t weight_bytes_ = 0;
  uint64_t slot_tail_bytes_ = 0;
};

// Bytes the weights occupy in memory.
size_t WeightBytes(const DecoderWeights& weights);

}  // namespace baton::model

#endif  // BATON_MODEL_DECODER_H_
