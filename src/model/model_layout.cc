#include "model/model_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "identity/element_f8.h"
#include "model/mixer.h"
#include "model/state_form.h"

namespace baton::model {
namespace {

// What else must agree between peers of a narrow state, and may not be guessed from its type.
std::string ExtraOf(kernel::StateDType state) {
  if (state == kernel::StateDType::kF32) return "tp=0/1";
  const bool nearest = RoundingOf(state) == kernel::Rounding::kNearest;
  return absl::StrCat("tp=0/1 state=", std::string(kernel::StateDTypeName(state)),
                      " rounded once per grid step, ", nearest ? "to nearest even" : "stochastic");
}

}  // namespace

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

namespace {

ElementType ElementOf(kernel::StateDType state) {
  switch (state) {
    case kernel::StateDType::kBF16:
      return ElementType::kBF16;
    case kernel::StateDType::kF16:
      return ElementType::kF16;
    case kernel::StateDType::kF8E4M3:
      return kElementF8E4M3;
    case kernel::StateDType::kF32:
      break;
  }
  return ElementType::kF32;
}

}  // namespace

void AddSsmParts(uint32_t layer,
                 std::vector<int64_t> shape,
                 const char* axes,
                 kernel::StateDType state,
                 LayoutSpec* spec) {
  StatePart& ssm = spec->parts.emplace_back(SsmPart(layer, std::move(shape), axes));
  ssm.dtype = ElementOf(state);
  if (state != kernel::StateDType::kF8E4M3) return;
  StatePart scale;
  scale.layer = layer;
  scale.component = kScaleComponent;
  scale.dtype = ElementType::kBF16;
  scale.shape.assign(ssm.shape.begin(), ssm.shape.end() - 1);
  scale.axes =
      absl::StrCat(ssm.axes.substr(0, ssm.axes.rfind(',')), ": ssm value = element * scale");
  spec->parts.push_back(std::move(scale));
}

StatusOr<Layout> BuildLayout(const ModelConfig& config,
                             const Sha256& numerics_tag,
                             kernel::StateDType state) {
  BATON_RETURN_IF_ERROR(CheckStateDType(config, state));
  LayoutSpec spec;
  spec.numerics_tag = numerics_tag;
  spec.extra = ExtraOf(state);
  KvGroup group;
  const bool windowed = config.attention.has_value() && config.attention->window > 0;
  group.name = windowed ? "window" : "full";
  if (windowed) group.window = static_cast<uint32_t>(config.attention->window);
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].attends()) group.layers.push_back(i);
    AddStateParts(config.layers[i].mixer, config, i, state, &spec);
  }
  if (!group.layers.empty()) {
    group.kv_heads = static_cast<uint32_t>(config.attention->kv_heads);
    group.head_dim = static_cast<uint32_t>(config.attention->head_dim);
    spec.groups.push_back(std::move(group));
  }
  return Layout::Build(std::move(spec));
}

}  // namespace baton::model
