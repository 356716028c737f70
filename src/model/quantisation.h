// Quantised checkpoints. One scheme loads: FP8 E4M3 matrices with one scale per block of rows x
// columns ("quant_method": "fp8" with "weight_block_size", as DeepSeek and Qwen publish them).
// Every other scheme is refused by its name, with what to do instead.
//
// What a block-scaled matrix means here, to the bit: each element is widened to f32 (exact),
// multiplied in f32 by its block's scale (widened to f32), and the product rounded to BF16, to
// nearest even. From there on it is a BF16 tensor: the model fingerprint covers those bytes.
// Thread rule: free functions.
#ifndef BATON_MODEL_QUANTISATION_H_
#define BATON_MODEL_QUANTISATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "model/safetensors.h"

namespace baton::model {

// Elements that share one scale.
struct ScaleBlock {
  int64_t rows = 128;
  int64_t cols = 128;

  friend bool operator==(const ScaleBlock&, const ScaleBlock&) = default;
};

// What config.json's "quantization_config" (top level or in text_config) asks for: nothing, or FP8
// in blocks. kUnimplemented, naming scheme and remedy, for everything else.
StatusOr<std::optional<ScaleBlock>> ReadQuantisation(const Json& config);

// Refuses `dir` if it holds a file by which a quantisation tool marks its output
// (hf_quant_config.json and others).
Status RefuseQuantisedDir(const std::string& dir);

// Name and shape of the scales of a matrix tensor: "X.weight" [n, k] -> "X.weight_scale_inv"
// [ceil(n / rows), ceil(k / cols)]; leading dimensions (stacked experts) are kept.
std::string ScaleName(const std::string& weight);
std::vector<int64_t> ScaleShape(const std::vector<int64_t>& weight, const ScaleBlock& block);

// The BF16 bytes of `weight` (F8_E4M3, at least two dimensions) under `scales` (F32 or BF16, of
// ScaleShape). kInvalidArgument for an element or scale that is not finite.
StatusOr<std::vector<std::byte>> DequantiseBlocks(const StoredTensor& weight,
                                                  const StoredTensor& scales,
                                                  const ScaleBlock& block);

}  // namespace baton::model

#endif  // BATON_MODEL_QUANTISATION_H_
