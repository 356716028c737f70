// json.dumps.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace baton::jinja::internal {
namespace {

class Writer {
 public:
  explicit Writer(const JsonOptions& options) : options_(options) {}

  std::string Run(const Value& value) {
    Write(value, 0);
    return std::move(out_);
  }

 private:
  void Append(std::string_view text) {
    if (out_.size() + text.size() > options_.bytes_max) {
      Fail(kLimit, absl::StrCat("a text would exceed ", options_.bytes_max, " bytes"));
    }
    out_.append(text);
  }

  void Write(const Value& v, int level) {
    if (v.is_none()) return Append("null");
    if (v.is_bool()) return Append(v.boolean() ? "true" : "false");
    if (v.is_int()) return Append(absl::StrCat(v.integer()));
    if (v.is_float()) return Append(FloatText(v.number()));
    if (v.str() != nullptr) return WriteText(v.str()->text);
    if (v.is_list() || v.is_tuple()) return WriteList(v.sequence()->items, level);
    if (v.dict() != nullptr) return WriteDict(*v.dict(), level);
    TypeError(absl::StrCat("Object of type ", TypeName(v), " is not JSON serializable"));
  }

  static std::string FloatText(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(d);
  }

  void NewLine(int level) {
    if (!options_.indent.has_value()) return;
    Append("\n");
    for (int i = 0; i < level; ++i) Append(*options_.indent);
  }

  void WriteList(const std::vector<Value>& items, int level) {
    if (items.empty()) return Append("[]");
    Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Append(options_.item_separator);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    Append("]");
  }

  static std::string KeyText(const Value& key) {
    if (key.str() != nullptr) return key.str()->text;
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.boolean() ? "true" : "false";
    if (key.is_int()) return absl::StrCat(key.integer());
    if (key.is_float()) return FloatText(key.number());
    TypeError(absl::StrCat("keys must be str, int, float, bool or None, not ", TypeName(key)));
  }

  void WriteDict(const Dict& dict, int level) {
    if (dict.entries().empty()) return Append("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (options_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return Less(a->first, b->first); });
    }
    Append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) Append(options_.item_separator);
      NewLine(level + 1);
      WriteText(KeyText(entries[i]->first));
      Append(options_.key_separator);
      Write(entries[i]->second, level + 1);
    }
    NewLine(level);
    Append("}");
  }

  void WriteText(std::string_view text) {
    std::string quoted = "\"";
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      const char32_t c = NextCodePoint(text, &pos);
      AppendCodePoint(c, text.substr(begin, pos - begin), &quoted);
    }
    quoted += '"';
    Append(quoted);
  }

  void AppendCodePoint(char32_t c, std::string_view bytes, std::string* out) const {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t escape = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (escape != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kLetters[escape]);
    } else if (c < 0x20 || (options_.ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      AppendHex(c, out);
    } else if (options_.ensure_ascii && c >= 0x10000) {
      AppendHex(0xD800 + ((c - 0x10000) >> 10), out);
      AppendHex(0xDC00 + ((c - 0x10000) & 0x3FF), out);
    } else {
      out->append(bytes);
    }
  }

  static void AppendHex(char32_t c, std::string* out) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(c));
    out->append(buffer);
  }

  const JsonOptions& options_;
  std::string out_;
};

}  // namespace

std::string ToJson(const Value& value, const JsonOptions& options) {
  return Writer(options).Run(value);
}

}  // namespace baton::jinja::internal
