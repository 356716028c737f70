#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace baton {
namespace {

// Oniguruma's \s is Unicode's White_Space; PCRE2's also has U+180E.
constexpr std::string_view kSpaceMembers =
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
// Oniguruma's \w; PCRE2's has no marks. The last six are Latin-1's superscripts and fractions.
constexpr std::string_view kWordMembers =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// Rewrites an Oniguruma pattern for PCRE2.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  StatusOr<std::string> Run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        BATON_RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        BATON_RETURN_IF_ERROR(InClass(c));
      } else if (c == '[') {
        Copy(1);
        in_class_ = true;
        if (Peek(0) == '^') Copy(1);
        if (Peek(0) == ']') Copy(1);  // a bracket in first place is a member
      } else if (c == '(' && Peek(1) == '?') {
        BATON_RETURN_IF_ERROR(Group());
      } else if (c == '(' && Peek(1) == '*') {
        return Refuse("(*VERB) control verbs");
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  char Peek(size_t n) const { return pos_ + n < in_.size() ? in_[pos_ + n] : '\0'; }
  void Copy(size_t n) {
    out_.append(in_.substr(pos_, n));
    pos_ += n;
  }
  Status Refuse(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("regular expression \"", std::string(in_),
                                                   "\": ", std::string(what),
                                                   " are not supported (at byte ", pos_, ")"));
  }

  Status InClass(char c) {
    if (c == '&' && Peek(1) == '&') return Refuse("class intersections (&&)");
    if (c == '[' && Peek(1) == ':') return Refuse("POSIX classes");
    if (c == '[') return Refuse("nested classes");
    if (c == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // "(?..." : groups, look-around and the i flag read alike in both.
  Status Group() {
    static constexpr std::array<std::string_view, 8> kSame = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)", "(?i:"};
    for (const std::string_view prefix : kSame) {
      if (in_.substr(pos_, prefix.size()) == prefix) {
        Copy(prefix.size());
        return absl::OkStatus();
      }
    }
    return Refuse("groups of this kind");
  }

  Status Escape() {
    const char c = Peek(1);
    const auto replace = [&](std::string_view members, bool negated) {
      if (in_class_) {
        out_.append(members);
      } else {
        out_ += absl::StrCat("[", negated ? "^" : "", std::string(members), "]");
      }
      pos_ += 2;
    };
    switch (c) {
      case 's':
        replace(kSpaceMembers, false);
        return absl::OkStatus();
      case 'w':
        replace(kWordMembers, false);
        return absl::OkStatus();
      case 'S':
      case 'W':
        if (in_class_) return Refuse("\\S and \\W inside a class");
        replace(c == 'S' ? kSpaceMembers : kWordMembers, true);
        return absl::OkStatus();
      case 'p':
      case 'P':
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'A':
      case 'z':
      case 'Z':
      case 'x':
        Copy(2);
        return absl::OkStatus();
      case 'u': {  // four hexadecimal digits
        const std::string_view digits = in_.substr(pos_ + 2, 4);
        out_ += absl::StrCat("\\x{", std::string(digits), "}");
        pos_ += 2 + digits.size();
        return absl::OkStatus();
      }
      default:
        break;
    }
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word || c == '\0') return Refuse(absl::StrCat("escapes like \\", std::string(1, c)));
    Copy(2);  // an escaped punctuation mark or a code point stands for itself
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct MatchDataDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  BATON_ASSIGN_OR_RETURN(const std::string translated, Translator(pattern).Run());
  return CompileTranslated(pattern, translated);
}

StatusOr<Regex> Regex::Literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (b < 0x80) {
      absl::StrAppend(&pattern, "\\x{", absl::Hex(b), "}");
    } else {
      pattern.push_back(c);
    }
  }
  return CompileTranslated(text, pattern);
}

StatusOr<Regex> Regex::CompileTranslated(std::string_view original, const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's anchors always see lines. The text is checked once, before it gets here.
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK;
  if (!IsValidUtf8(original)) {
    return absl::InvalidArgumentError("a regular expression is not valid UTF-8");
  }
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   flags, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression \"", std::string(original),
                     "\": ", reinterpret_cast<const char*>(message.data())));
  }
  // Without JIT (a build option of the library) matching is slower, nothing else.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::make_shared<const Code>(code));
}

namespace {

Status SearchFailed(int error, size_t at) {
  std::array<PCRE2_UCHAR, 256> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  return absl::ResourceExhaustedError(absl::StrCat(
      "a regular expression of the tokenizer gave up at byte ", at, " of the text: ",
      reinterpret_cast<const char*>(message.data()), "; shorten the text or send token ids"));
}

}  // namespace

StatusOr<std::vector<TextRange>> Regex::FindAll(std::string_view text) const {
  std::vector<TextRange> matches;
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  if (data == nullptr) {
    return absl::ResourceExhaustedError("no memory to search with a regular expression");
  }
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
  size_t at = 0;
  size_t last_end = SIZE_MAX;  // an empty match right behind the one before does not count
  while (at <= text.size()) {
    int found =
        pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      // The JIT's stack is small; the interpreter uses the heap.
      found = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          data.get(), nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return SearchFailed(found, at);
    const TextRange match{range[0], range[1]};
    if (match.end > match.begin || match.begin != last_end) matches.push_back(match);
    last_end = match.end;
    at = match.end;
    if (match.end == match.begin) {
      if (at == text.size()) break;
      at += Utf8Length(text[at]);
    }
  }
  return matches;
}

}  // namespace baton
