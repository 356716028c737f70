// A layer that runs a shared block before its mixer (models: zamba, zamba2):
// a = attention(norm(h | embeddings)); e = linear(mlp(norm(a))); h += mixer(norm(h + e)).
// The block has no residual of its own, and e enters only the mixer's input.
// Thread rule: as Layer.
#ifndef BATON_MODEL_SHARED_BLOCK_LAYER_H_
#define BATON_MODEL_SHARED_BLOCK_LAYER_H_

#include <cstdint>
#include <memory>

#include "model/config.h"
#include "model/layer.h"
#include "model/mixer.h"
#include "model/weights.h"

namespace baton::model {

class SharedBlockLayer final : public Layer {
 public:
  struct Weights {
    const SharedBlockWeights* block;  // of all layers that use it
    const LayerWeights* layer;        // with `shared`
  };
  // `config.shared_block` is set; config and weights outlive the layer. `attention` reads rows of
  // twice the hidden size.
  SharedBlockLayer(const ModelConfig& config,
                   const Weights& weights,
                   std::unique_ptr<MixerBlock> attention,
                   std::unique_ptr<MixerBlock> mixer);

  int64_t Scratch(int64_t rows) const override;
  // Needs hidden->embedded.
  void Mix(const Step& step, Hidden* hidden) const override;
  void Feed(const Step&, Hidden*) const override {}

 private:
  int64_t MlpFloats(int64_t rows) const;
  // wide = norm(h | embeddings), rows of twice the width.
  void Concatenate(const Step& step, const Hidden& hidden, Rows wide) const;
  void RunBlockMlp(const Step& step, Rows x, Rows y, int64_t rows) const;

  const SharedBlockConfig& config_;
  Weights weights_;
  std::unique_ptr<MixerBlock> attention_, mixer_;
  float eps_;
  int64_t width_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_SHARED_BLOCK_LAYER_H_
