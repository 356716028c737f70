#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "text/jinja_error.h"
#include "text/utf8.h"
#include "utf8proc.h"

namespace baton::jinja::internal {
namespace {

constexpr char kSyntax[] = "TemplateSyntaxError";

std::string NormalizeNewlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out.push_back(text[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  return out;
}

bool IsWordCodePoint(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> Run() {
    if (!IsValidUtf8(source_)) Fail(kSyntax, "the template is not valid UTF-8", 1);
    while (pos_ < source_.size()) LexData();
    Emit(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(pos_); }
  bool At(std::string_view text) const {
    return std::string_view(source_).substr(pos_, text.size()) == text;
  }
  [[noreturn]] void Error(std::string reason) const { Fail(kSyntax, std::move(reason), line_); }

  // Moves over n bytes, counting lines.
  void Advance(size_t n) {
    const std::string_view passed = std::string_view(source_).substr(pos_, n);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    pos_ += passed.size();
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
  }
  void SkipSpace() {
    const std::string_view rest = Rest();
    Advance(rest.size() - StripPythonSpace(rest, true, false).size());
  }
  void SkipNewline() {
    if (At("\n")) Advance(1);
  }
  Token& Emit(TokenType type) {
    Token token;
    token.type = type;
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }
  void EmitData(std::string_view text) {
    if (!text.empty()) Emit(TokenType::kData).text = std::string(text);
  }

  // The text before a tag, with what the tag's sign and lstrip_blocks take away.
  std::string_view BeforeTag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return StripPythonSpace(text, false, true);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return text;
    if (StripPythonSpace(text.substr(line_start)).empty()) return text.substr(0, line_start);
    return text;
  }

  // Text up to the next tag, then the tag.
  void LexData() {
    size_t at = pos_;
    for (;; ++at) {
      at = source_.find('{', at);
      if (at == std::string::npos || at + 1 >= source_.size()) {
        EmitData(Rest());
        Advance(source_.size());
        return;
      }
      if (std::strchr("{%#", source_[at + 1]) != nullptr) break;
    }
    const char kind = source_[at + 1];
    char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    const std::string_view text = std::string_view(source_).substr(pos_, at - pos_);
    EmitData(BeforeTag(text, sign, kind == '{'));
    Advance(text.size());
    const size_t opening = 2 + (sign != '\0' ? 1 : 0);
    if (kind == '%' && LexRaw(opening)) return;
    Advance(opening);
    if (kind == '#') {
      LexComment();
    } else if (kind == '{') {
      Emit(TokenType::kVariableBegin);
      LexTag(true);
    } else {
      Emit(TokenType::kBlockBegin);
      LexTag(false);
    }
  }

  void LexComment() {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) Error("Missing end of comment tag");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    Advance(end + 2 - pos_);
    AfterTag(sign);
  }

  // White space behind a block or comment whose sign before the closing brace is `sign`.
  void AfterTag(char sign) {
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+') {
      SkipNewline();
    }
  }

  // If the tag at pos_ is {% raw %}, takes all up to its end.
  bool LexRaw(size_t opening) {
    std::string_view tag = Rest().substr(opening);
    const auto skip_space = [&] { tag = StripPythonSpace(tag, true, false); };
    skip_space();
    if (tag.substr(0, 3) != "raw") return false;
    tag.remove_prefix(3);
    skip_space();
    const bool strip = tag.substr(0, 3) == "-%}";
    if (!strip && tag.substr(0, 2) != "%}") return false;
    tag.remove_prefix(strip ? 3 : 2);
    if (strip) skip_space();
    Advance(Rest().size() - tag.size());
    // The matching {% endraw %}.
    for (size_t at = source_.find("{%", pos_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      std::string_view end = std::string_view(source_).substr(at + 2);
      char open_sign = '\0';
      if (!end.empty() && (end[0] == '-' || end[0] == '+')) {
        open_sign = end[0];
        end.remove_prefix(1);
      }
      end = StripPythonSpace(end, true, false);
      if (end.substr(0, 6) != "endraw") continue;
      end = StripPythonSpace(end.substr(6), true, false);
      char close_sign = '\0';
      if (!end.empty() && (end[0] == '-' || end[0] == '+')) {
        close_sign = end[0];
        end.remove_prefix(1);
      }
      if (end.substr(0, 2) != "%}") continue;
      EmitData(BeforeTag(std::string_view(source_).substr(pos_, at - pos_), open_sign, false));
      Advance(source_.size() - (end.size() - 2) - pos_);
      AfterTag(close_sign);
      return true;
    }
    Error("Missing end of raw directive");
  }

  // Tokens up to the closing }} or %}.
  void LexTag(bool is_variable) {
    const std::string_view close = is_variable ? "}}" : "%}";
    std::string open_brackets;
    for (;;) {
      SkipSpace();
      if (pos_ >= source_.size()) {
        // jinja2's parser names the missing end; the lexer knows it as well.
        Error(absl::StrCat("unexpected end of template, expected '", absl::string_view(close.data(), close.size()), "'"));
      }
      if (open_brackets.empty() && LexTagEnd(is_variable, close)) return;
      LexToken(&open_brackets);
    }
  }

  bool LexTagEnd(bool is_variable, std::string_view close) {
    char sign = source_[pos_];
    const bool has_sign = sign == '-' || (sign == '+' && !is_variable);
    if (!has_sign) sign = '\0';
    if (std::string_view(source_).substr(pos_ + (has_sign ? 1 : 0), 2) != close) return false;
    Emit(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd);
    Advance(has_sign ? 3 : 2);
    if (!is_variable) {
      AfterTag(sign);
    } else if (sign == '-') {
      SkipSpace();
    }
    return true;
  }

  void LexToken(std::string* open_brackets) {
    const char c = source_[pos_];
    if (IsDigit(c) && LexNumber()) return;
    size_t after = pos_;
    if (IsWordCodePoint(NextCodePoint(source_, &after))) return LexName();
    if (c == '"' || c == '\'') return LexString(c);
    LexOperator(open_brackets);
  }

  void LexName() {
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsWordCodePoint(NextCodePoint(source_, &next))) break;
      end = next;
    }
    if (IsDigit(source_[pos_])) Error("Invalid character in identifier");
    Emit(TokenType::kName).text = source_.substr(pos_, end - pos_);
    Advance(end - pos_);
  }

  // Digits with single underscores between them, from `at`; returns the end.
  size_t DigitsEnd(size_t at) const {
    while (at < source_.size() &&
           (IsDigit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                     IsDigit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  bool LexNumber() {
    const auto plain = [&](size_t end) {
      std::string digits = source_.substr(pos_, end - pos_);
      digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
      return digits;
    };
    size_t end = DigitsEnd(pos_);
    const auto is_digit_at = [&](size_t i) { return i < source_.size() && IsDigit(source_[i]); };
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    bool is_float = false;
    if (!after_dot && end < source_.size() && source_[end] == '.' && is_digit_at(end + 1)) {
      end = DigitsEnd(end + 1);
      is_float = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (is_digit_at(exponent)) {
        end = DigitsEnd(exponent);
        is_float = true;
      }
    }
    const std::string digits = plain(end);
    if (is_float) {
      double value = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      Emit(TokenType::kFloat).number = value;
      Advance(end - pos_);
      return true;
    }
    return LexInteger(digits, end);
  }

  bool LexInteger(std::string digits, size_t end) {
    int base = 10;
    if (digits == "0" && end < source_.size()) {
      const char prefix = static_cast<char>(source_[end] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    }
    if (base != 10) {
      digits.clear();
      for (++end; end < source_.size() && (IsWordCodePoint(static_cast<uint8_t>(source_[end])));
           ++end) {
        if (source_[end] != '_') digits.push_back(source_[end]);
      }
    } else if (digits.size() > 1 && digits[0] == '0' &&
               digits.find_first_not_of('0') != std::string::npos) {
      return false;  // "012" is a name to jinja2, and refused as such
    }
    int64_t value = 0;
    const auto [last, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || last != digits.data() + digits.size() || digits.empty()) {
      Error("malformed integer, or one beyond 64 bits");
    }
    Emit(TokenType::kInteger).integer = value;
    Advance(end - pos_);
    return true;
  }

  void LexString(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Error(absl::StrCat("unexpected char ", std::string(1, quote)));
    Emit(TokenType::kString).text =
        Unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1));
    Advance(end + 1 - pos_);
  }

  // Python's "unicode-escape" codec.
  std::string Unescape(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 == raw.size()) {
        out.push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kFrom = "abfnrtv\\'\"";
      static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out.push_back(kTo[simple]);
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        AppendEscape(raw.substr(i + 1, digits), digits, 16, &out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && i + n < raw.size() && raw[i + n] >= '0' && raw[i + n] <= '7') ++n;
        AppendEscape(raw.substr(i, n), n, 8, &out);
        i += n - 1;
      } else if (c == 'N') {
        Error("\\N{...} escapes are not supported");
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  void AppendEscape(std::string_view digits, size_t expected, int base, std::string* out) const {
    uint32_t value = 0;
    const auto [last, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.size() != expected || error != std::errc() || last != digits.data() + expected) {
      Error("truncated escape sequence in a string");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      Error("an escape sequence in a string is not a Unicode scalar value");
    }
    AppendUtf8(value, out);
  }

  void LexOperator(std::string* open_brackets) {
    static constexpr std::string_view kOperators[] = {
        "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') {
        open_brackets->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open_brackets->empty()) Error(absl::StrCat("unexpected '", std::string(1, c), "'"));
        if (open_brackets->back() != c) {
          Error(absl::StrCat("unexpected '", std::string(1, c), "', expected '",
                             std::string(1, open_brackets->back()), "'"));
        }
        open_brackets->pop_back();
      }
      Emit(TokenType::kOperator).text = std::string(op);
      Advance(op.size());
      return;
    }
    Error(absl::StrCat("unexpected char '", source_.substr(pos_, Utf8Length(source_[pos_])), "'"));
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace baton::jinja::internal
