#include "text/generation_config.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace baton {
namespace {

constexpr int64_t kTokenIdLimit = int64_t{1} << 31;

// One file of the model directory; an absent file reads as an empty object.
struct ConfigFile {
  std::string path;
  Json values = Json::object();

  Status Error(std::string_view key, std::string_view reason) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::string(key), " ", std::string(reason)));
  }
  // The value of `key`, or null if it is absent or JSON null.
  const Json* Find(const char* key) const {
    const auto it = values.find(key);
    return it == values.end() || it->is_null() ? nullptr : &*it;
  }
};

StatusOr<ConfigFile> ReadConfig(const std::string& dir, const char* name) {
  ConfigFile file;
  file.path = dir + "/" + name;
  StatusOr<Json> values = ReadJsonFile(file.path);
  if (absl::IsNotFound(values.status())) return file;
  if (!values.ok()) return values.status();
  if (!values->is_object()) return file.Error("", "must hold an object");
  file.values = *std::move(values);
  return file;
}

StatusOr<TokenId> ReadTokenId(const ConfigFile& file, const char* key, const Json& value) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= kTokenIdLimit) {
    return file.Error(key, "must be a token id");
  }
  return static_cast<TokenId>(value.get<int64_t>());
}

// A token id or a list of them.
Status CollectIds(const ConfigFile& file, const char* key, std::set<TokenId>* ids) {
  const Json* value = file.Find(key);
  if (value == nullptr) return absl::OkStatus();
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    BATON_ASSIGN_OR_RETURN(const TokenId id, ReadTokenId(file, key, item));
    ids->insert(id);
  }
  return absl::OkStatus();
}

Status ReadOneId(const ConfigFile& file, const char* key, std::optional<TokenId>* out) {
  const Json* value = file.Find(key);
  if (value == nullptr || out->has_value()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(*out, ReadTokenId(file, key, *value));
  return absl::OkStatus();
}

struct Range {
  double low;
  double high;
};

Status ReadNumber(const ConfigFile& file, const char* key, Range range,
                  std::optional<double>* out) {
  const Json* value = file.Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number() || value->get<double>() < range.low ||
      value->get<double>() > range.high) {
    return file.Error(key, absl::StrCat("must be a number in ", range.low, "..", range.high));
  }
  *out = value->get<double>();
  return absl::OkStatus();
}

Status ReadInteger(const ConfigFile& file, const char* key, int64_t low,
                   std::optional<int64_t>* out) {
  const Json* value = file.Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number_integer() || value->get<int64_t>() < low) {
    return file.Error(key, absl::StrCat("must be an integer of at least ", low));
  }
  *out = value->get<int64_t>();
  return absl::OkStatus();
}

}  // namespace

StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& dir,
                                                    const Tokenizer* tokenizer) {
  BATON_ASSIGN_OR_RETURN(const ConfigFile generation, ReadConfig(dir, "generation_config.json"));
  BATON_ASSIGN_OR_RETURN(const ConfigFile config, ReadConfig(dir, "config.json"));
  // Multimodal wrappers keep the language model's values one level down.
  const Json* inner = config.Find("text_config");
  const ConfigFile text{config.path + ": text_config",
                        inner != nullptr && inner->is_object() ? *inner : Json::object()};

  GenerationDefaults defaults;
  std::set<TokenId> eos;
  for (const ConfigFile* file : {&generation, &config, &text}) {
    BATON_RETURN_IF_ERROR(CollectIds(*file, "eos_token_id", &eos));
    BATON_RETURN_IF_ERROR(ReadOneId(*file, "bos_token_id", &defaults.bos_token_id));
    BATON_RETURN_IF_ERROR(ReadOneId(*file, "pad_token_id", &defaults.pad_token_id));
  }
  if (tokenizer != nullptr) {
    BATON_ASSIGN_OR_RETURN(const SpecialTokens special, ReadSpecialTokens(dir));
    const auto token = special.find("eos_token");
    if (token != special.end()) {
      const std::optional<TokenId> id = tokenizer->TokenToId(token->second);
      if (!id.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(dir, "/tokenizer_config.json: eos_token \"",
                                                       token->second,
                                                       "\" is not in the vocabulary"));
      }
      eos.insert(*id);
    }
  }
  defaults.eos_token_ids.assign(eos.begin(), eos.end());

  BATON_RETURN_IF_ERROR(
      ReadNumber(generation, "temperature", {0, 100}, &defaults.temperature));
  BATON_RETURN_IF_ERROR(ReadInteger(generation, "top_k", -1, &defaults.top_k));
  BATON_RETURN_IF_ERROR(ReadNumber(generation, "top_p", {0, 1}, &defaults.top_p));
  BATON_RETURN_IF_ERROR(ReadNumber(generation, "min_p", {0, 1}, &defaults.min_p));
  BATON_RETURN_IF_ERROR(
      ReadNumber(generation, "repetition_penalty", {1e-6, 1e6}, &defaults.repetition_penalty));
  BATON_RETURN_IF_ERROR(ReadInteger(generation, "max_new_tokens", 1, &defaults.max_new_tokens));
  return defaults;
}

}  // namespace baton
