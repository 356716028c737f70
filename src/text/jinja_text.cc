#include "text/jinja_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_error.h"
#include "text/utf8.h"
#include "utf8proc.h"

namespace baton::jinja::internal {
namespace {

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<std::string> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string> out;
  text = StripPythonSpace(text, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.emplace_back(text);
      break;
    }
    size_t end = 0;
    for (size_t pos = 0; pos < text.size(); end = pos) {
      if (IsPythonSpace(NextCodePoint(text, &pos))) break;
    }
    out.emplace_back(text.substr(0, end));
    text = StripPythonSpace(text.substr(end), true, false);
  }
  return out;
}

std::vector<std::string> SplitSpaceFromRight(std::string_view text, int64_t limit) {
  std::vector<std::string> out;
  text = StripPythonSpace(text, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.emplace_back(text);
      break;
    }
    size_t begin = text.size();
    for (size_t pos = text.size(); pos > 0; begin = pos) {
      if (IsPythonSpace(PreviousCodePoint(text, &pos))) break;
    }
    out.emplace_back(text.substr(begin));
    text = StripPythonSpace(text.substr(0, begin), false, true);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Removes Python's underscores between digits; false if one stands elsewhere.
bool RemoveUnderscores(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const auto alnum = [&](size_t k) {
      return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k])) != 0;
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return false;
  }
  return true;
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits in scientific form, then laid out by Python's rule.
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) absl::StrAppend(&out, ".", digits.substr(1));
    const int magnitude = std::abs(exponent);
    absl::StrAppend(&out, exponent < 0 ? "e-" : "e+", magnitude < 10 ? "0" : "", magnitude);
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (count <= exponent + 1) {
    absl::StrAppend(&out, digits, std::string(static_cast<size_t>(exponent + 1 - count), '0'),
                    ".0");
  } else {
    const auto point = static_cast<size_t>(exponent + 1);
    absl::StrAppend(&out, digits.substr(0, point), ".", digits.substr(point));
  }
  return out;
}

std::string StringRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, &pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out.append(text.substr(begin, pos - begin));
    } else {
      std::array<char, 16> escape{};
      std::snprintf(escape.data(), escape.size(),
                    c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x",
                    static_cast<unsigned>(c));
      out += escape.data();
    }
  }
  out.push_back(quote);
  return out;
}

std::string_view StripChars(std::string_view text, std::optional<std::string_view> chars,
                            bool left, bool right) {
  if (!chars.has_value()) return StripPythonSpace(text, left, right);
  // Code points are self-synchronising: a whole one found in `chars` is one of them.
  while (left && !text.empty()) {
    const std::string_view first = text.substr(0, Utf8Length(text[0]));
    if (chars->find(first) == std::string_view::npos) break;
    text.remove_prefix(first.size());
  }
  while (right && !text.empty()) {
    size_t pos = text.size();
    PreviousCodePoint(text, &pos);
    if (chars->find(text.substr(pos)) == std::string_view::npos) break;
    text = text.substr(0, pos);
  }
  return text;
}

std::vector<std::string> Split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit) {
  if (!separator.has_value()) return SplitSpace(text, limit);
  std::vector<std::string> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = text.find(*separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  out.emplace_back(text);
  return out;
}

std::vector<std::string> SplitFromRight(std::string_view text,
                                        std::optional<std::string_view> separator, int64_t limit) {
  if (!separator.has_value()) return SplitSpaceFromRight(text, limit);
  std::vector<std::string> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = text.rfind(*separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  out.emplace_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, &pos);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    out.emplace_back(text.substr(start, (keep_ends ? pos : begin) - start));
    start = pos;
  }
  if (start < text.size()) out.emplace_back(text.substr(start));
  return out;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit, size_t bytes_max) {
  std::string out;
  int64_t done = 0;
  const auto append = [&](std::string_view part) {
    if (out.size() + part.size() > bytes_max) {
      Fail(kLimit, absl::StrCat("a string would exceed ", bytes_max, " bytes"));
    }
    out.append(part);
  };
  size_t pos = 0;
  while (limit < 0 || done < limit) {
    if (from.empty()) {
      append(to);
      ++done;
      if (pos == text.size()) return out;
      const size_t n = Utf8Length(text[pos]);
      append(text.substr(pos, n));
      pos += n;
      continue;
    }
    const size_t at = text.find(from, pos);
    if (at == std::string_view::npos) break;
    append(text.substr(pos, at - pos));
    append(to);
    pos = at + from.size();
    ++done;
  }
  append(text.substr(pos));
  return out;
}

std::string_view SubstringByCodePoint(std::string_view text, size_t from, size_t to) {
  size_t begin = 0;
  size_t index = 0;
  for (; index < from && begin < text.size(); ++index) begin += Utf8Length(text[begin]);
  size_t end = begin;
  for (; index < to && end < text.size(); ++index) end += Utf8Length(text[end]);
  return text.substr(begin, end - begin);
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  text = StripPythonSpace(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char prefix = static_cast<char>(text[1] | 0x20);
    const int prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  std::string digits = negative ? "-" : "";
  if (!RemoveUnderscores(text, &digits)) return std::nullopt;
  if (base == 0) base = 10;
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, value, base);
  if (error == std::errc::result_out_of_range) {
    Fail("OverflowError", "an integer is beyond 64 bits");
  }
  if (text.empty() || text[0] == '-' || error != std::errc() || last != end) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripPythonSpace(text);
  std::string digits;
  if (text.empty() || !RemoveUnderscores(text, &digits)) return std::nullopt;
  // Python knows no hexadecimal floats here.
  if (digits.find_first_of("xXpP") != std::string::npos) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(digits, &value)) return std::nullopt;
  return value;
}

}  // namespace baton::jinja::internal
