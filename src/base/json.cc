#include "base/json.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace baton {
namespace {

// What a bare token of Python's json module is replaced by before the real parser sees the text.
struct BareToken {
  std::string_view found;
  std::string_view replacement;
};
constexpr BareToken kBareTokens[] = {
    {"Infinity", "1.7976931348623157e308"},
    {"NaN", "null"},
};

struct ScanOptions {
  size_t depth_max;
  size_t members_max;  // per object
  bool replace_bare_tokens;
};

// One pass over the text that bounds it and replaces bare tokens. It knows strings and brackets
// only; whether the text is JSON is for the parser to say.
class Scanner {
 public:
  Scanner(std::string_view text, const ScanOptions& options) : text_(text), options_(options) {}

  Status Run() {
    size_t copied = 0;
    for (size_t i = 0; i < text_.size();) {
      const char c = text_[i];
      if (c == '"') {
        i = SkipString(i);
        continue;
      }
      if (c == '{' || c == '[') {
        if (members_.size() == options_.depth_max) {
          return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ",
                                                         options_.depth_max, " at byte ", i));
        }
        members_.push_back(0);
      } else if ((c == '}' || c == ']') && !members_.empty()) {
        members_.pop_back();
      } else if (c == ':' && !members_.empty() && ++members_.back() > options_.members_max) {
        return absl::InvalidArgumentError(absl::StrCat(
            "JSON object with more than ", options_.members_max, " members at byte ", i));
      } else if (options_.replace_bare_tokens && (c == 'I' || c == 'N')) {
        if (const BareToken* token = TokenAt(i)) {
          out_.append(text_, copied, i - copied);
          out_.append(token->replacement);
          i += token->found.size();
          copied = i;
          shifts_.emplace_back(out_.size(), i);
          continue;
        }
      }
      ++i;
    }
    if (copied > 0) out_.append(text_, copied, text_.size() - copied);
    return absl::OkStatus();
  }

  std::string_view text() const { return shifts_.empty() ? text_ : std::string_view(out_); }

  // Offset in the text as given of an offset in text().
  size_t OriginalOffset(size_t offset) const {
    size_t base_out = 0, base_in = 0;
    for (const auto& [out, in] : shifts_) {
      if (out > offset) break;
      base_out = out;
      base_in = in;
    }
    return std::min(text_.size(), base_in + (offset - base_out));
  }

 private:
  size_t SkipString(size_t i) const {
    for (++i; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        return i + 1;
      }
    }
    return text_.size();
  }

  // A token must stand alone: "Infinityx" is left for the parser to refuse.
  const BareToken* TokenAt(size_t i) const {
    const auto is_word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
             c == '_' || c == '.';
    };
    for (const BareToken& token : kBareTokens) {
      if (text_.substr(i, token.found.size()) != token.found) continue;
      const size_t end = i + token.found.size();
      if (end < text_.size() && is_word(text_[end])) continue;
      if (i > 0 && is_word(text_[i - 1])) continue;
      if (i > 0 && text_[i - 1] == '-' && token.found == "NaN") continue;
      return &token;
    }
    return nullptr;
  }

  std::string_view text_;
  ScanOptions options_;
  std::string out_;
  std::vector<size_t> members_;                    // one entry per open bracket
  std::vector<std::pair<size_t, size_t>> shifts_;  // (offset in out_, offset in text_) after each
};

// nlohmann's messages start with "[json.exception.parse_error.101] parse error at line 1, column
// 5: ": only what follows is of use to a reader.
std::string_view Explanation(std::string_view what) {
  const size_t colon = what.find(": ");
  return colon == std::string_view::npos ? what : what.substr(colon + 2);
}

template <class Value>
StatusOr<Value> Parse(std::string_view text, const ScanOptions& options) {
  Scanner scanner(text, options);
  BATON_RETURN_IF_ERROR(scanner.Run());
  const std::string_view clean = scanner.text();
  try {
    return Value::parse(clean.begin(), clean.end());
  } catch (const nlohmann::detail::parse_error& e) {
    // `byte` counts from 1 and points behind the last byte read.
    const size_t byte = scanner.OriginalOffset(e.byte > 0 ? e.byte - 1 : 0);
    return absl::InvalidArgumentError(
        absl::StrCat("malformed JSON at byte ", byte, ": ", std::string(Explanation(e.what()))));
  } catch (const nlohmann::detail::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed JSON: ", std::string(Explanation(e.what()))));
  }
}

}  // namespace

StatusOr<Json> ParseJsonLenient(std::string_view text, size_t depth_max) {
  return Parse<Json>(text, {depth_max, SIZE_MAX, true});
}

StatusOr<OrderedJson> ParseJsonOrdered(std::string_view text, size_t depth_max) {
  return Parse<OrderedJson>(text, {depth_max, kOrderedJsonMembersMax, false});
}

StatusOr<Json> ReadJsonFile(const std::string& path, size_t bytes_max) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, bytes_max));
  StatusOr<Json> value = ParseJsonLenient(text);
  if (!value.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", value.status().message()));
  }
  return value;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DumpJson(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace baton
