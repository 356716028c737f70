#include "text/post_processor.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {

StatusOr<PostProcessor> PostProcessor::Read(const JsonNode& node) {
  PostProcessor post;
  if (!node.is_null()) BATON_RETURN_IF_ERROR(post.Append(node, 0));
  return post;
}

Status PostProcessor::Append(const JsonNode& node, int depth) {
  if (depth > 8) return node.Error("sequences nested too deeply");
  BATON_ASSIGN_OR_RETURN(const std::string type, node.TextMember("type"));
  if (type == "ByteLevel") return absl::OkStatus();  // changes offsets only
  if (type == "Sequence") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "processors"}));
    BATON_ASSIGN_OR_RETURN(const JsonNode list, node.Require("processors"));
    BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) BATON_RETURN_IF_ERROR(Append(item, depth + 1));
    return absl::OkStatus();
  }
  if (type == "TemplateProcessing") return AppendTemplate(node);
  return node.Unsupported(absl::StrCat("the post-processor \"", type, "\""));
}

Status PostProcessor::AppendTemplate(const JsonNode& node) {
  // "pair" is for two texts, which are never encoded together here.
  BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "single", "pair", "special_tokens"}));
  BATON_ASSIGN_OR_RETURN(const JsonNode single, node.Require("single"));
  BATON_ASSIGN_OR_RETURN(const JsonNode special, node.Require("special_tokens"));
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, single.Items());
  std::vector<TokenId> before;
  std::vector<TokenId> behind;
  bool seen_text = false;
  for (const JsonNode& part : parts) {
    if (const std::optional<JsonNode> text = part.Find("Sequence")) {
      BATON_ASSIGN_OR_RETURN(const std::string id, text->TextMember("id"));
      if (id != "A" || seen_text) return text->Unsupported("more than one text");
      seen_text = true;
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const JsonNode token, part.Require("SpecialToken"));
    BATON_ASSIGN_OR_RETURN(const std::string name, token.TextMember("id"));
    BATON_ASSIGN_OR_RETURN(const JsonNode entry, special.Require(name));
    BATON_ASSIGN_OR_RETURN(const JsonNode list, entry.Require("ids"));
    BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> ids, list.Items());
    for (const JsonNode& item : ids) {
      BATON_ASSIGN_OR_RETURN(const int64_t id, item.Integer());
      if (id < 0 || id > INT32_MAX) return item.Error("not a token id");
      (seen_text ? behind : before).push_back(static_cast<TokenId>(id));
    }
  }
  if (!seen_text) return single.Error("the text itself is missing");
  // A later processor wraps what an earlier one made.
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
  return absl::OkStatus();
}

}  // namespace baton
