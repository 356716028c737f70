#include "model/config.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/architecture.h"
#include "model/config_reader.h"

namespace baton::model {
namespace {

constexpr size_t kEosMax = 64;
// Over all layers; bounds the tables built from a config before any weight is seen.
constexpr int64_t kExpertMatricesMax = int64_t{1} << 16;

void ParseEos(ConfigReader* reader, ModelConfig* config) {
  const Json* eos = reader->Find({"eos_token_id"});
  if (eos == nullptr) return;
  const Json list = eos->is_array() ? *eos : Json::array({*eos});
  if (list.size() > kEosMax) return reader->Fail("\"eos_token_id\" lists more than 64 ids");
  for (const Json& id : list) {
    // Older files write -1 for "none".
    if (id.is_number_integer() && !id.is_number_unsigned()) continue;
    if (!id.is_number_unsigned()) return reader->Fail("\"eos_token_id\" is not a whole number");
    // An id outside the vocabulary can never be sampled; published files contain such ids.
    if (id.get<uint64_t>() < static_cast<uint64_t>(config->vocab_size))
      config->eos_token_ids.push_back(static_cast<TokenId>(id.get<uint64_t>()));
  }
}

// What choosing experts by group relies on.
void CheckRouting(ConfigReader* reader, const MoeConfig& m) {
  if (m.groups < 1 || m.groups > kExpertGroupsMax || m.experts % m.groups != 0) {
    return reader->Fail(absl::StrCat(m.experts, " experts do not fall into ", m.groups,
                                     " equal groups (1 to ", kExpertGroupsMax, ")"));
  }
  if (m.top_groups < 1 || m.top_groups > m.groups ||
      m.top_k > m.top_groups * (m.experts / m.groups)) {
    reader->Fail(absl::StrCat(m.top_k, " experts per token cannot come from ", m.top_groups, " of ",
                              m.groups, " groups of ", m.experts / m.groups));
  }
}

// The keys of the language model: where they lie in an object of their own, those of `whole` that
// it does not have stand for the model as a whole (dtype, quantisation); tied embeddings are said
// there.
Json TextPart(const Json& whole, const Architecture* architecture) {
  if (architecture == nullptr || architecture->text_part == nullptr) return whole;
  const auto part = whole.find(architecture->text_part);
  if (part == whole.end() || !part->is_object()) return whole;
  Json json = *part;
  for (const char* key : {"dtype", "torch_dtype", "quantization_config", "compression_config",
                          "tie_word_embeddings", "eos_token_id"}) {
    const auto it = whole.find(key);
    const bool here = json.contains(key) && !json[key].is_null();
    if (it != whole.end() && !it->is_null() && (!here || key == std::string("tie_word_embeddings")))
      json[key] = *it;
  }
  return json;
}

void RequireUsed(ConfigReader* reader, const ModelConfig& config) {
  bool mlp = false, moe = false;
  for (const LayerConfig& layer : config.layers) {
    mlp |= layer.mlp;
    moe |= layer.moe;
  }
  // Programmer's error in an architecture file, not the file's.
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kAttention) > 0) == config.attention.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kMamba2) > 0) == config.mamba2.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kMamba1) > 0) == config.mamba1.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kShortConv) > 0) == config.short_conv.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kLightning) > 0) == config.lightning.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kGatedDelta) > 0) == config.gated_delta.has_value());
  BATON_CHECK(!reader->ok() ||
              (config.CountMixers(Mixer::kRgLru) > 0) == config.rg_lru.has_value());
  BATON_CHECK(!reader->ok() || (mlp == config.mlp.has_value() && moe == config.moe.has_value()));
}

}  // namespace

int64_t ModelConfig::CountMixers(Mixer mixer) const {
  int64_t n = 0;
  for (const LayerConfig& layer : layers)
    n += mixer == Mixer::kAttention ? layer.attends() : layer.mixer == mixer;
  return n;
}

std::string SupportedModelTypes() {
  std::string out;
  for (const Architecture& a : Architectures())
    absl::StrAppend(&out, out.empty() ? "" : ", ", a.model_type);
  return out;
}

StatusOr<ModelConfig> ParseConfig(const Json& whole) {
  if (!whole.is_object()) return absl::InvalidArgumentError("config.json is not a JSON object");
  ModelConfig config;
  config.model_type = ConfigReader(whole).Text({"model_type"}, "");
  const Architecture* architecture = FindArchitecture(config.model_type);
  const Json json = TextPart(whole, architecture);
  ConfigReader reader(json);
  if (architecture == nullptr) {
    return absl::UnimplementedError(absl::StrCat("model_type \"", config.model_type,
                                                 "\" is not supported; supported are ",
                                                 SupportedModelTypes()));
  }
  BATON_ASSIGN_OR_RETURN(config.block_scales, ReadQuantisation(json));
  config.stated_dtype = reader.Text({"dtype", "torch_dtype"}, "");
  config.vocab_size = reader.Int({"vocab_size"}, std::nullopt, kVocabRange);
  config.hidden_size = reader.Int({"hidden_size"}, std::nullopt, kWidthRange);
  config.tie_word_embeddings = reader.Bool({"tie_word_embeddings"}, false);
  ParseEos(&reader, &config);
  architecture->parse(&reader, &config);
  if (config.moe.has_value() &&
      config.moe->experts * static_cast<int64_t>(config.layers.size()) > kExpertMatricesMax) {
    reader.Fail(absl::StrCat(config.moe->experts, " experts in ", config.layers.size(),
                             " layers are more than ", kExpertMatricesMax, " in all"));
  }
  if (config.moe.has_value()) CheckRouting(&reader, *config.moe);
  BATON_RETURN_IF_ERROR(reader.status());
  RequireUsed(&reader, config);
  return config;
}

StatusOr<ModelConfig> ReadConfig(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) {
    return absl::UnimplementedError(absl::StrCat(
        "\"", path, "\" is a GGUF file, which is not supported; use the safetensors release"));
  }
  std::error_code error;
  const std::string file =
      std::filesystem::is_directory(path, error) ? path + "/config.json" : path;
  BATON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(file));
  StatusOr<ModelConfig> config = ParseConfig(json);
  if (!config.ok()) {
    return Status(config.status().code(),
                  absl::StrCat("\"", file, "\": ", config.status().message()));
  }
  return config;
}

namespace {

void AppendMlp(const MlpConfig& m, std::string* out) {
  absl::StrAppendFormat(out, "mlp width=%d bias=%d act=%d gated=%d gate=%a down=%a\n", m.width,
                        m.bias, static_cast<int>(m.form.act), m.form.gated, m.form.gate_multiplier,
                        m.form.down_multiplier);
}

}  // namespace

std::string CanonicalText(const ModelConfig& c) {
  // %a prints a float exactly.
  std::string out = absl::StrFormat(
      "type=%s vocab=%d hidden=%d eps=%a tied=%d embed=%a residual=%a logits=%a\n", c.model_type,
      c.vocab_size, c.hidden_size, c.rms_norm_eps, c.tie_word_embeddings, c.embedding_multiplier,
      c.residual_multiplier, c.logits_divisor);
  if (c.logits_soft_cap > 0) absl::StrAppendFormat(&out, "cap=%a\n", c.logits_soft_cap);
  for (const LayerConfig& l : c.layers)
    absl::StrAppendFormat(&out, "layer mixer=%d mlp=%d moe=%d attention=%d\n",
                          static_cast<int>(l.mixer), l.mlp, l.moe, l.attention);
  if (c.attention.has_value()) {
    const AttentionConfig& a = *c.attention;
    absl::StrAppendFormat(
        &out, "attention q=%d kv=%d dim=%d scale=%a bias=%d qkn=%d gate=%d post=%d window=%d\n",
        a.heads, a.kv_heads, a.head_dim, a.scale, a.bias, static_cast<int>(a.qk_norm),
        a.output_gate, c.attention_post_norm, a.window);
    if (a.input != 0 || a.key_multiplier != 1)
      absl::StrAppendFormat(&out, "attention input=%d key=%a\n", a.input, a.key_multiplier);
    if (a.rope.has_value()) {
      const RopeConfig& r = *a.rope;
      absl::StrAppendFormat(&out, "rope theta=%a dims=%d scaling=%d %a %a %a %a\n", r.theta, r.dims,
                            static_cast<int>(r.scaling), r.factor, r.low_freq_factor,
                            r.high_freq_factor, r.original_max_position);
    }
  }
  if (c.mamba2.has_value()) {
    const Mamba2Config& m = *c.mamba2;
    absl::StrAppendFormat(&out, "mamba2 h=%d p=%d n=%d g=%d ng=%d k=%d cb=%d pb=%d dt=%a,%a\n",
                          m.heads, m.head_dim, m.state, m.groups, m.norm_groups, m.conv_width,
                          m.conv_bias, m.proj_bias, m.dt_min, m.dt_max);
    absl::StrAppendFormat(&out, "mamba2 gate=%d eps=%a by", static_cast<int>(m.gate_norm),
                          m.norm_eps);
    for (const float f : m.multipliers) absl::StrAppendFormat(&out, " %a", f);
    absl::StrAppend(&out, "\n");
  }
  if (c.mamba1.has_value()) {
    const Mamba1Config& m = *c.mamba1;
    absl::StrAppendFormat(&out, "mamba1 i=%d n=%d r=%d k=%d cb=%d pb=%d\n", m.inner, m.state,
                          m.dt_rank, m.conv_width, m.conv_bias, m.proj_bias);
    absl::StrAppendFormat(&out, "mamba1 heads=%d norm=%d eps=%a\n", m.heads,
                          static_cast<int>(m.part_norm), m.part_eps);
  }
  if (c.short_conv.has_value())
    absl::StrAppendFormat(&out, "short_conv k=%d bias=%d\n", c.short_conv->width,
                          c.short_conv->bias);
  if (c.lightning.has_value())
    absl::StrAppendFormat(&out, "lightning h=%d d=%d\n", c.lightning->heads, c.lightning->head_dim);
  if (c.rg_lru.has_value())
    absl::StrAppendFormat(&out, "rg_lru w=%d b=%d k=%d\n", c.rg_lru->width, c.rg_lru->blocks,
                          c.rg_lru->conv_width);
  if (c.normed_residual.has_value()) {
    const NormedResidualConfig& r = *c.normed_residual;
    for (const ResidualShares& s : {r.attention, r.linear, r.ffn})
      absl::StrAppendFormat(&out, "shares %a %a\n", s.residual, s.output);
  }
  if (c.gated_delta.has_value()) {
    const GatedDeltaConfig& g = *c.gated_delta;
    absl::StrAppendFormat(&out, "gated_delta hk=%d hv=%d dk=%d dv=%d k=%d beta=%a eps=%a\n",
                          g.key_heads, g.value_heads, g.key_dim, g.value_dim, g.conv_width,
                          g.beta_scale, g.norm_eps);
  }
  if (c.mlp.has_value()) AppendMlp(*c.mlp, &out);
  if (c.parallel.has_value()) {
    const ParallelConfig& p = *c.parallel;
    absl::StrAppendFormat(&out, "parallel mixer=%a,%a attention=%a,%a\n", p.mixer_in, p.mixer_out,
                          p.attention_in, p.attention_out);
  }
  if (c.shared_block.has_value()) {
    const SharedBlockConfig& s = *c.shared_block;
    absl::StrAppendFormat(&out, "shared blocks=%d ranks=%d,%d ", s.blocks, s.mlp_rank,
                          s.attention_rank);
    AppendMlp(s.mlp, &out);
  }
  if (c.moe.has_value()) {
    const MoeConfig& m = *c.moe;
    absl::StrAppendFormat(&out, "moe e=%d k=%d width=%d router=%d cb=%d norm=%d,%a scale=%a",
                          m.experts, m.top_k, m.width, static_cast<int>(m.router), m.correction,
                          m.renormalise, m.renormalise_eps, m.scale);
    absl::StrAppendFormat(&out, " groups=%d,%d gated=%d latent=%d shared=%d,%d\n", m.groups,
                          m.top_groups, m.gated, m.latent, m.shared_width, m.shared_gate);
  }
  return out;
}

}  // namespace baton::model
