// Any text as a config.json: never a crash, and an accepted config has a layout, unless it exceeds
// the bounds of one, and (up to kPartsMax) a binding. Tensors are described; none is read or made
// room for.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/model_layout.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {
namespace {

// What describes a part (an expert, a head's matrices) takes up to 9 KB and 0.1 ms under the
// sanitisers: 35 MB. The largest published models have eight times as many parts and are not bound
// here; they differ from small ones in number only.
constexpr int64_t kPartsMax = int64_t{1} << 12;

int64_t Parts(const ModelConfig& config) {
  int64_t per_layer = 1;
  if (config.moe.has_value()) per_layer += config.moe->experts;
  if (config.mamba1.has_value()) per_layer += config.mamba1->heads;
  if (config.rg_lru.has_value()) per_layer += config.rg_lru->blocks;
  if (config.shared_block.has_value()) per_layer += config.shared_block->blocks;
  return per_layer * static_cast<int64_t>(config.layers.size());
}

void CheckLayout(const ModelConfig& config) {
  const StatusOr<Layout> layout = BuildLayout(config, Sha256());
  if (!layout.ok()) {
    BATON_CHECK(!layout.status().message().empty());
    return;
  }
  // Something is kept of a sequence wherever a layer mixes tokens.
  uint64_t kv_layers = 0;
  for (const KvGroup& group : layout->groups()) kv_layers += group.layers.size();
  BATON_CHECK(kv_layers == static_cast<uint64_t>(config.CountMixers(Mixer::kAttention)));
  for (const StatePart& part : layout->parts()) {
    BATON_CHECK(part.bytes > 0 && part.offset + part.bytes <= layout->slot_bytes());
    BATON_CHECK(part.layer < config.layers.size());
  }
}

void CheckBinding(const ModelConfig& config) {
  if (Parts(config) > kPartsMax) return;
  DecoderWeights weights;
  weights.layers.resize(config.layers.size());
  WeightBinder binder;
  FindArchitecture(config.model_type)->bind(config, &binder, &weights);
  BATON_CHECK(!binder.requests().empty());
  for (const TensorRequest& request : binder.requests()) {
    BATON_CHECK(!request.name.empty() && !request.shape.empty() && !request.consumers.empty());
    for (const int64_t extent : request.shape) BATON_CHECK(extent > 0);
  }
}

}  // namespace
}  // namespace baton::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto json = ParseJsonLenient({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const auto config = model::ParseConfig(*json);
  if (!config.ok()) return 0;
  model::CheckLayout(*config);
  model::CheckBinding(*config);
  (void)model::CanonicalText(*config);
  return 0;
}
