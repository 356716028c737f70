#include "text/chat_template.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kTemplateBytesMax = size_t{4} << 20;
constexpr std::array<const char*, 7> kTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
constexpr std::array<const char*, 4> kReserved = {"messages", "tools", "documents",
                                                  "add_generation_prompt"};
// Marks where the last message ends when it is to be continued. Any text that does not occur in
// prompts will do; only its last occurrence counts.
constexpr std::string_view kContinueMark = "<<baton:continue-here>>";

// tokenizer_config.json, or an empty object if the directory has none.
StatusOr<Json> ReadTokenizerConfig(const std::string& dir) {
  StatusOr<Json> config = ReadJsonFile(dir + "/tokenizer_config.json");
  if (absl::IsNotFound(config.status())) return Json::object();
  if (config.ok() && !config->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, "/tokenizer_config.json: expected an object"));
  }
  return config;
}

StatusOr<SpecialTokens> TokensOf(const Json& config, const std::string& dir) {
  SpecialTokens tokens;
  for (const char* name : kTokenNames) {
    const auto it = config.find(name);
    if (it == config.end() || it->is_null()) continue;
    const Json* text = &*it;
    // An AddedToken object: {"content": "<s>", "lstrip": false, ...}.
    if (it->is_object() && it->contains("content")) text = &it->at("content");
    if (!text->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir, "/tokenizer_config.json: ", name,
                       " must be a string or an object with a \"content\" string"));
    }
    tokens[name] = text->get<std::string>();
  }
  return tokens;
}

struct Sources {
  std::string general;
  std::optional<std::string> with_tools;
};

// The templates inside tokenizer_config.json.
StatusOr<Sources> TemplatesOf(const Json& config, const std::string& dir) {
  const std::string where = dir + "/tokenizer_config.json: chat_template";
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) {
    return absl::NotFoundError(absl::StrCat("no chat template: neither ", dir,
                                            "/chat_template.jinja nor a chat_template in "
                                            "tokenizer_config.json; pass --chat-template"));
  }
  if (it->is_string()) return Sources{it->get<std::string>(), std::nullopt};
  if (!it->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " must be a string or a list"));
  }
  std::optional<std::string> general, with_tools;
  for (const Json& entry : *it) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["name"].is_string() || !entry["template"].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": every entry must be {\"name\": ..., \"template\": ...}"));
    }
    if (entry["name"] == "default") general = entry["template"].get<std::string>();
    if (entry["name"] == "tool_use") with_tools = entry["template"].get<std::string>();
  }
  if (general.has_value()) return Sources{*std::move(general), std::move(with_tools)};
  return absl::NotFoundError(absl::StrCat(where, " has no entry named \"default\""));
}

Status CheckInput(const OrderedJson& messages, const RenderOptions& options) {
  if (!messages.is_array()) return absl::InvalidArgumentError("messages must be a list");
  if (!options.tools.is_null() && !options.tools.is_array()) {
    return absl::InvalidArgumentError("tools must be a list");
  }
  if (!options.documents.is_null() && !options.documents.is_array()) {
    return absl::InvalidArgumentError("documents must be a list");
  }
  if (!options.extra.is_null() && !options.extra.is_object()) {
    return absl::InvalidArgumentError("chat_template_kwargs must be an object");
  }
  if (options.extra.is_object()) {
    for (const char* name : kReserved) {
      if (options.extra.contains(name)) {
        return absl::InvalidArgumentError(absl::StrCat("chat_template_kwargs must not contain \"",
                                                       name,
                                                       "\": it is a field of the request itself"));
      }
    }
  }
  return absl::OkStatus();
}

// Puts the mark behind the text of the last message.
Status AppendMark(OrderedJson* messages, bool add_generation_prompt) {
  if (add_generation_prompt) {
    return absl::InvalidArgumentError(
        "continue_final_message and add_generation_prompt exclude each other");
  }
  if (messages->empty() || !messages->back().is_object()) {
    return absl::InvalidArgumentError("continue_final_message needs a last message");
  }
  const auto content = messages->back().find("content");
  OrderedJson* text = content == messages->back().end() ? nullptr : &*content;
  if (text != nullptr && text->is_array() && !text->empty() && text->back().is_object() &&
      text->back().contains("text")) {
    text = &text->back()["text"];
  }
  if (text == nullptr || !text->is_string()) {
    return absl::InvalidArgumentError(
        "continue_final_message needs a last message whose content is text");
  }
  *text = text->get<std::string>() + std::string(kContinueMark);
  return absl::OkStatus();
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Template tmpl, SpecialTokens tokens)
    : template_(std::move(tmpl)), tokens_(std::move(tokens)) {}

StatusOr<ChatTemplate> ChatTemplate::FromString(std::string_view source, SpecialTokens tokens) {
  BATON_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source));
  return ChatTemplate(std::move(parsed), std::move(tokens));
}

StatusOr<ChatTemplate> ChatTemplate::FromModelDir(const std::string& dir) {
  BATON_ASSIGN_OR_RETURN(const Json config, ReadTokenizerConfig(dir));
  BATON_ASSIGN_OR_RETURN(SpecialTokens tokens, TokensOf(config, dir));
  const std::string path = dir + "/chat_template.jinja";
  Sources sources;
  if (FileExists(path)) {
    BATON_ASSIGN_OR_RETURN(sources.general, ReadFileBytes(path, kTemplateBytesMax));
  } else {
    BATON_ASSIGN_OR_RETURN(sources, TemplatesOf(config, dir));
  }
  const auto named = [&](const char* name, const Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(name, " of ", dir, ": ", status.message()));
  };
  StatusOr<ChatTemplate> made = FromString(sources.general, std::move(tokens));
  if (!made.ok()) return named("chat template", made.status());
  if (sources.with_tools.has_value()) {
    StatusOr<jinja::Template> parsed = jinja::Template::Parse(*sources.with_tools);
    if (!parsed.ok()) return named("chat template \"tool_use\"", parsed.status());
    made->with_tools_ = *std::move(parsed);
  }
  return made;
}

StatusOr<std::string> ChatTemplate::Render(const OrderedJson& messages,
                                           const RenderOptions& options) const {
  BATON_RETURN_IF_ERROR(CheckInput(messages, options));
  jinja::RenderInput input;
  input.now = options.now;
  input.limits = options.limits;
  OrderedJson& variables = input.variables = OrderedJson::object();
  variables["messages"] = messages;
  variables["tools"] = options.tools;
  variables["documents"] = options.documents;
  variables["add_generation_prompt"] = options.add_generation_prompt;
  for (const auto& [name, token] : tokens_) variables[name] = token;
  if (options.extra.is_object()) {
    for (const auto& [name, value] : options.extra.items()) variables[name] = value;
  }
  if (options.continue_final_message) {
    BATON_RETURN_IF_ERROR(AppendMark(&variables["messages"], options.add_generation_prompt));
  }
  const bool tools = !options.tools.is_null() && !options.tools.empty();
  const jinja::Template& chosen = tools && with_tools_.has_value() ? *with_tools_ : template_;
  BATON_ASSIGN_OR_RETURN(std::string text, chosen.Render(input));
  if (!options.continue_final_message) return text;
  const size_t mark = text.rfind(kContinueMark);
  if (mark == std::string::npos) {
    return absl::InvalidArgumentError(
        "continue_final_message: the template does not print the last message");
  }
  return text.substr(0, mark);
}

StatusOr<SpecialTokens> ReadSpecialTokens(const std::string& dir) {
  BATON_ASSIGN_OR_RETURN(const Json config, ReadTokenizerConfig(dir));
  return TokensOf(config, dir);
}

}  // namespace baton
