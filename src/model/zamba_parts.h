// What zamba and zamba2 share: a mixer in every layer, and in some layers before it a block of
// attention and MLP over (h, embeddings) whose weights those layers share. Thread rule: free
// functions.
#ifndef BATON_MODEL_ZAMBA_PARTS_H_
#define BATON_MODEL_ZAMBA_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/config.h"
#include "model/config_reader.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {

// A layer of the mixer alone, and one that uses a shared block too.
LayerConfig ZambaPlain(Mixer mixer);
LayerConfig ZambaHybrid(Mixer mixer);
// Gives layers their kind by layers_block_type or, in older files, hybrid_layer_ids. Whether either
// is there.
bool ParseZambaLayers(ConfigReader* reader, Mixer mixer, ModelConfig* config);
// What both types spell alike of the block, its attention included. `default_width` is of the MLP.
void ParseZambaBlock(ConfigReader* reader, int64_t default_width, ModelConfig* config);

// What differs between the types' tensors; a prefix ends in a dot.
struct ZambaTensors {
  std::string block;  // what the block is called inside a layer
  void (*mixer)(const ModelConfig& config,
                WeightBinder* binder,
                const std::string& prefix,
                LayerWeights* layer);
  void (*mlp)(const ModelConfig& config,
              WeightBinder* binder,
              const std::string& prefix,
              MlpWeights* w);
  // Those of the `use`-th use, stored with the block at `prefix`. Null: none.
  void (*additions)(const ModelConfig& config,
                    WeightBinder* binder,
                    const std::string& prefix,
                    size_t use,
                    SharedUseWeights* to) = nullptr;
};
// All tensors.
void BindZambaLayers(const ModelConfig& config,
                     WeightBinder* binder,
                     const ZambaTensors& tensors,
                     DecoderWeights* weights);

}  // namespace baton::model

#endif  // BATON_MODEL_ZAMBA_PARTS_H_
