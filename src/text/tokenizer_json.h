// Reading tokenizer.json: a JSON value that knows its path, so that every refusal names it. Built
// on simdjson, because vocabularies are megabytes of JSON (10 MB: 30 ms against 400 ms).
// Thread rule: a node must not outlive the JsonDocument; one thread.
#ifndef BATON_TEXT_TOKENIZER_JSON_H_
#define BATON_TEXT_TOKENIZER_JSON_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "simdjson.h"
#include "text/regex.h"

namespace baton {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool is_null() const { return element_.is_null(); }
  bool is_object() const { return element_.is_object(); }
  bool is_array() const { return element_.is_array(); }
  bool is_string() const { return element_.is_string(); }

  // The member `key`, or nullopt if it is absent or null.
  std::optional<JsonNode> Find(std::string_view key) const;
  StatusOr<JsonNode> Require(std::string_view key) const;
  // Of a list.
  StatusOr<std::vector<JsonNode>> Items() const;

  StatusOr<std::string> Text() const;
  StatusOr<int64_t> Integer() const;
  // A member with a value for when it is absent or null.
  StatusOr<bool> Flag(std::string_view key, bool otherwise) const;
  StatusOr<std::string> TextMember(std::string_view key) const;
  // Refuses members other than these: a setting that is not understood must not be dropped.
  Status AllowMembers(std::initializer_list<std::string_view> names) const;
  // {"String": literal} or {"Regex": pattern}.
  StatusOr<Regex> Pattern(std::string_view key) const;

  // "tokenizer.json: PATH: reason"
  Status Error(std::string_view reason) const;
  Status Unsupported(std::string_view what) const;

  simdjson::dom::element element() const { return element_; }

 private:
  simdjson::dom::element element_;
  std::string path_;
};

class JsonDocument {
 public:
  static StatusOr<std::unique_ptr<JsonDocument>> Parse(std::string_view text);
  JsonNode root() const { return JsonNode(root_, ""); }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

}  // namespace baton

#endif  // BATON_TEXT_TOKENIZER_JSON_H_
