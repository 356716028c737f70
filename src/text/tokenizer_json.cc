#include "text/tokenizer_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {

namespace {
constexpr int kDepthMax = 64;
}

Status JsonNode::Error(std::string_view reason) const {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", path_.empty() ? "/" : path_,
                                                 ": ", std::string(reason)));
}

Status JsonNode::Unsupported(std::string_view what) const {
  return Error(absl::StrCat(std::string(what), " is not supported"));
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  simdjson::dom::element member;
  if (!element_.is_object() || element_[key].get(member) != simdjson::SUCCESS ||
      member.is_null()) {
    return std::nullopt;
  }
  return JsonNode(member, absl::StrCat(path_, "/", std::string(key)));
}

StatusOr<JsonNode> JsonNode::Require(std::string_view key) const {
  if (!is_object()) return Error("expected an object");
  std::optional<JsonNode> found = Find(key);
  if (!found.has_value()) return Error(absl::StrCat("\"", std::string(key), "\" is missing"));
  return *found;
}

StatusOr<std::vector<JsonNode>> JsonNode::Items() const {
  simdjson::dom::array array;
  if (element_.get(array) != simdjson::SUCCESS) return Error("expected a list");
  std::vector<JsonNode> items;
  size_t i = 0;
  for (const simdjson::dom::element item : array) {
    items.emplace_back(item, absl::StrCat(path_, "/", i++));
  }
  return items;
}

StatusOr<std::string> JsonNode::Text() const {
  std::string_view text;
  if (element_.get(text) != simdjson::SUCCESS) return Error("expected a string");
  return std::string(text);
}

StatusOr<int64_t> JsonNode::Integer() const {
  int64_t value = 0;
  if (element_.get(value) != simdjson::SUCCESS) return Error("expected an integer");
  return value;
}

StatusOr<bool> JsonNode::Flag(std::string_view key, bool otherwise) const {
  const std::optional<JsonNode> member = Find(key);
  if (!member.has_value()) return otherwise;
  bool value = false;
  if (member->element_.get(value) != simdjson::SUCCESS) {
    return member->Error("expected true or false");
  }
  return value;
}

StatusOr<std::string> JsonNode::TextMember(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const JsonNode member, Require(key));
  return member.Text();
}

Status JsonNode::AllowMembers(std::initializer_list<std::string_view> names) const {
  simdjson::dom::object object;
  if (element_.get(object) != simdjson::SUCCESS) return Error("expected an object");
  for (const auto field : object) {
    if (std::find(names.begin(), names.end(), field.key) == names.end()) {
      return Unsupported(absl::StrCat("the setting \"", std::string(field.key), "\""));
    }
  }
  return absl::OkStatus();
}

StatusOr<Regex> JsonNode::Pattern(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const JsonNode node, Require(key));
  BATON_RETURN_IF_ERROR(node.AllowMembers({"String", "Regex"}));
  const bool literal = node.Find("String").has_value();
  BATON_ASSIGN_OR_RETURN(const std::string text, node.TextMember(literal ? "String" : "Regex"));
  StatusOr<Regex> regex = literal ? Regex::Literal(text) : Regex::Compile(text);
  if (!regex.ok()) {
    return node.Error(std::string_view(regex.status().message().data(),
                                       regex.status().message().size()));
  }
  return regex;
}

StatusOr<std::unique_ptr<JsonDocument>> JsonDocument::Parse(std::string_view text) {
  auto document = std::make_unique<JsonDocument>();
  if (document->parser_.allocate(std::max<size_t>(text.size(), 64), kDepthMax) !=
      simdjson::SUCCESS) {
    return absl::ResourceExhaustedError("tokenizer.json: no memory to parse it");
  }
  const auto error = document->parser_.parse(text.data(), text.size()).get(document->root_);
  if (error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.json: malformed JSON: ", simdjson::error_message(error)));
  }
  return document;
}

}  // namespace baton
