#include "model/model_layout.h"

#include <utility>

namespace baton::model {
namespace {

StatePart ConvPart(uint32_t layer, int64_t width, int64_t channels) {
  StatePart part;
  part.layer = layer;
  part.component = kConvComponent;
  part.shape = {width - 1, channels};
  part.axes = "tap-oldest-first,channel";
  return part;
}

StatePart SsmPart(uint32_t layer, std::vector<int64_t> shape, const char* axes) {
  StatePart part;
  part.layer = layer;
  part.component = kSsmComponent;
  part.shape = std::move(shape);
  part.axes = axes;
  return part;
}

}  // namespace

StatusOr<Layout> BuildLayout(const ModelConfig& config, const Sha256& numerics_tag) {
  LayoutSpec spec;
  spec.numerics_tag = numerics_tag;
  spec.extra = "tp=0/1";
  KvGroup group;
  group.name = "full";
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    switch (config.layers[i].mixer) {
      case Mixer::kAttention:
        group.layers.push_back(i);
        break;
      case Mixer::kMamba2: {
        const Mamba2Config& m = *config.mamba2;
        spec.parts.push_back(ConvPart(i, m.conv_width, m.conv_channels()));
        spec.parts.push_back(SsmPart(i, {m.heads, m.state, m.head_dim}, "H,N,P"));
        break;
      }
      case Mixer::kMamba1: {
        const Mamba1Config& m = *config.mamba1;
        spec.parts.push_back(ConvPart(i, m.conv_width, m.inner));
        spec.parts.push_back(SsmPart(i, {m.state, m.inner}, "N,I"));
        break;
      }
    }
  }
  if (!group.layers.empty()) {
    group.kv_heads = static_cast<uint32_t>(config.attention->kv_heads);
    group.head_dim = static_cast<uint32_t>(config.attention->head_dim);
    spec.groups.push_back(std::move(group));
  }
  return Layout::Build(std::move(spec));
}

}  // namespace baton::model
