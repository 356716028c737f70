// The JSON header of a safetensors file, parsed without building a document: duplicate names and
// wrong types are errors here, not the last value winning. Private to safetensors.cc and its tests.
// Thread rule: free functions.
#ifndef BATON_MODEL_SAFETENSORS_HEADER_H_
#define BATON_MODEL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/safetensors.h"

namespace baton::model {

struct RawTensor {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offsets into the data that follows the header
  uint64_t end = 0;
};

struct RawHeader {
  std::vector<RawTensor> tensors;  // in the order of the text; names may still repeat
  std::map<std::string, std::string> metadata;
};

StatusOr<RawHeader> ParseRawHeader(std::string_view json);

}  // namespace baton::model

#endif  // BATON_MODEL_SAFETENSORS_HEADER_H_
