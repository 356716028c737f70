#include "model/config_parts.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace baton::model {

void RequireSilu(ConfigReader* reader) {
  const std::string act = reader->Text({"hidden_act"}, "silu");
  if (act != "silu" && act != "swish")
    reader->Fail(absl::StrCat("\"hidden_act\" is \"", act, "\"; only \"silu\" is supported"));
}

AttentionConfig ParseAttention(ConfigReader* reader,
                               const ModelConfig& config,
                               std::optional<int64_t> kv_fallback,
                               int64_t heads_fallback) {
  AttentionConfig a;
  a.heads = reader->Int({"num_attention_heads"}, heads_fallback, kHeadsRange);
  a.kv_heads = reader->Int({"num_key_value_heads"}, kv_fallback.value_or(a.heads), kHeadsRange);
  if (a.heads % a.kv_heads != 0) {
    reader->Fail(absl::StrCat("\"num_attention_heads\" (", a.heads,
                              ") is no multiple of \"num_key_value_heads\" (", a.kv_heads, ")"));
  }
  if (reader->Find({"head_dim", "attention_head_dim"}) == nullptr &&
      config.hidden_size % a.heads != 0) {
    reader->Fail(absl::StrCat("\"hidden_size\" (", config.hidden_size,
                              ") is no multiple of \"num_attention_heads\" (", a.heads,
                              ") and \"head_dim\" is absent"));
  }
  a.head_dim = reader->Int({"head_dim", "attention_head_dim"}, config.hidden_size / a.heads,
                           kAttentionDimRange);
  if (a.head_dim < kAttentionDimRange.min || a.head_dim > kAttentionDimRange.max) {
    reader->Fail(absl::StrCat("hidden_size / num_attention_heads is ", a.head_dim,
                              "; a head has 1 to ", kAttentionDimRange.max, " dimensions"));
    a.head_dim = 1;
  }
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  a.bias = reader->Bool({"attention_bias"}, false);
  return a;
}

RopeConfig ParseRope(ConfigReader* reader, int64_t head_dim, double share, double theta) {
  RopeConfig rope;
  rope.dims = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (rope.dims % 2 != 0 || rope.dims == 0) {
    reader->Fail(absl::StrCat("rotated part of a head has ", rope.dims,
                              " dimensions; an even number above 0 is needed"));
  }
  // New files keep everything in rope_parameters, old ones theta at the top and the rest in
  // rope_scaling.
  static const Json kNone = Json::object();
  const Json* found = reader->Find({"rope_parameters", "rope_scaling"});
  if (found != nullptr && !found->is_object()) {
    reader->Fail("\"rope_parameters\" is not an object");
    found = nullptr;
  }
  ConfigReader inner(found == nullptr ? kNone : *found);
  rope.theta = inner.Positive({"rope_theta"}, reader->Positive({"rope_theta"}, theta));
  const std::string type = inner.Text({"rope_type", "type"}, "default");
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = inner.Positive({"factor"}, std::nullopt);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = inner.Positive({"factor"}, std::nullopt);
    rope.low_freq_factor = inner.Positive({"low_freq_factor"}, std::nullopt);
    rope.high_freq_factor = inner.Positive({"high_freq_factor"}, std::nullopt);
    rope.original_max_position = inner.Positive({"original_max_position_embeddings"}, std::nullopt);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      inner.Fail("\"high_freq_factor\" is not above \"low_freq_factor\"");
  } else if (type != "default") {
    inner.Fail(
        absl::StrCat("rope_type \"", type, "\" is not supported; default, linear and llama3 are"));
  }
  if (!inner.ok()) reader->Fail(std::string(inner.status().message()));
  return rope;
}

void ParseStepLimit(ConfigReader* reader, Mamba2Config* m) {
  m->dt_min = 0;
  m->dt_max = std::numeric_limits<float>::infinity();
  // time_step_min, _max and _floor say how dt_bias was drawn when training began; only the limit
  // acts on the step. It is usually (0, Infinity), written as a bare Infinity or as 1e308.
  const Json* limit = reader->Find({"time_step_limit", "mamba_dt_limit"});
  if (limit == nullptr) return;
  if (!limit->is_array() || limit->size() != 2 || !(*limit)[0].is_number() ||
      !(*limit)[1].is_number() || (*limit)[0].get<double>() < 0 ||
      (*limit)[1].get<double>() < (*limit)[0].get<double>())
    return reader->Fail("\"time_step_limit\" is not a list of two numbers, 0 <= low <= high");
  constexpr double kMax = std::numeric_limits<float>::max();
  const double high = (*limit)[1].get<double>();
  m->dt_min = static_cast<float>(std::min((*limit)[0].get<double>(), kMax));
  if (high < kMax) m->dt_max = static_cast<float>(high);
}

void CheckMamba2(ConfigReader* reader, const Mamba2Config& m) {
  if (m.heads % m.groups != 0) {
    reader->Fail(absl::StrCat(m.heads, " Mamba-2 heads are no multiple of ", m.groups,
                              " groups of B and C"));
  }
}

Mamba2Config ParseMamba2(ConfigReader* reader,
                         const ModelConfig& config,
                         std::optional<int64_t> stated) {
  Mamba2Config m;
  m.heads = reader->Int({"mamba_n_heads"}, 128, kHeadsRange);
  m.groups = reader->Int({"mamba_n_groups"}, 1, kHeadsRange);
  m.state = reader->Int({"mamba_d_state"}, 256, kStateRange);
  m.conv_width = reader->Int({"mamba_d_conv"}, 4, kConvRange);
  const int64_t expanded = config.hidden_size * reader->Int({"mamba_expand"}, 2, Range{1, 64});
  const int64_t inner = stated.value_or(expanded);
  m.head_dim = reader->IntOrAuto({"mamba_d_head"}, kWidthRange).value_or(inner / m.heads);
  if (m.inner() != inner) {
    reader->Fail(absl::StrCat(
        "mamba_n_heads * mamba_d_head is ", m.inner(), ", but ",
        stated.has_value() ? "mamba_d_ssm is " : "mamba_expand * hidden_size is ", inner));
  }
  if (m.heads % m.groups != 0) {
    reader->Fail(absl::StrCat("\"mamba_n_heads\" (", m.heads,
                              ") is no multiple of \"mamba_n_groups\" (", m.groups, ")"));
  }
  m.conv_bias = reader->Bool({"mamba_conv_bias"}, true);
  m.proj_bias = reader->Bool({"mamba_proj_bias"}, false);
  ParseStepLimit(reader, &m);
  return m;
}

bool ParseLayerKinds(ConfigReader* reader,
                     std::initializer_list<LayerKind> kinds,
                     ModelConfig* config) {
  const std::vector<std::string> types =
      reader->Texts({"layers_block_type", "layer_types"}, kLayersRange.max);
  if (types.empty()) return false;
  if (types.size() != config->layers.size()) {
    reader->Fail(absl::StrCat("\"layers_block_type\" lists ", types.size(),
                              " layers, \"num_hidden_layers\" is ", config->layers.size()));
    return true;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    bool found = false;
    std::string supported;
    for (const LayerKind& kind : kinds) {
      absl::StrAppend(&supported, supported.empty() ? "\"" : ", \"", kind.name, "\"");
      if (types[i] != kind.name) continue;
      found = true;
      config->layers[i] = kind.layer;
    }
    if (!found) {
      reader->Fail(
          absl::StrCat("layer ", i, " has type \"", types[i], "\"; supported are ", supported));
      return true;
    }
  }
  return true;
}

void ParseDeltaLayers(ConfigReader* reader, int64_t count, int64_t interval, ModelConfig* config) {
  config->layers.resize(count, LayerConfig{.mixer = Mixer::kGatedDelta});
  const std::vector<std::string> types = reader->Texts({"layer_types"}, kLayersRange.max);
  if (types.empty()) {
    for (int64_t i = interval - 1; i < count; i += interval)
      config->layers[i].mixer = Mixer::kAttention;
    return;
  }
  if (static_cast<int64_t>(types.size()) != count) {
    return reader->Fail(absl::StrCat("\"layer_types\" lists ", types.size(),
                                     " layers, \"num_hidden_layers\" is ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (types[i] == "full_attention") {
      config->layers[i].mixer = Mixer::kAttention;
    } else if (types[i] != "linear_attention") {
      return reader->Fail(
          absl::StrCat("layer ", i, " has type \"", types[i],
                       "\"; \"linear_attention\" and \"full_attention\" are supported"));
    }
  }
}

GatedDeltaConfig ParseGatedDelta(ConfigReader* reader, const GatedDeltaDefaults& defaults) {
  GatedDeltaConfig g;
  g.key_heads = reader->Int({"linear_num_key_heads"}, defaults.key_heads, kHeadsRange);
  g.value_heads = reader->Int({"linear_num_value_heads"}, defaults.value_heads, kHeadsRange);
  g.key_dim = reader->Int({"linear_key_head_dim"}, defaults.key_dim, kStateRange);
  g.value_dim = reader->Int({"linear_value_head_dim"}, defaults.value_dim, kStateRange);
  g.conv_width = reader->Int({"linear_conv_kernel_dim"}, 4, kConvRange);
  if (g.value_heads % g.key_heads != 0) {
    reader->Fail(absl::StrCat("\"linear_num_value_heads\" (", g.value_heads,
                              ") is no multiple of \"linear_num_key_heads\" (", g.key_heads, ")"));
  }
  if (g.in_proj() > kWidthRange.max) {
    reader->Fail(absl::StrCat("the gated delta rule's projections are ", g.in_proj(),
                              " wide, at most ", kWidthRange.max, " are supported"));
  }
  return g;
}

}  // namespace baton::model
