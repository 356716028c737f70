// The case and class functions of jinja_text.h, on utf8proc's Unicode data.
#include <algorithm>
#include <iterator>

#include "text/jinja_case_table.h"
#include "text/jinja_text.h"
#include "text/utf8.h"
#include "utf8proc.h"

namespace baton::jinja::internal {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t c) {
  // Other_Lowercase among the modifier letters and the ordinal indicators.
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2C0 && c <= 0x2C1) || (c >= 0x2E0 && c <= 0x2E4);
}
bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Word-internal code points that do not end a word for the final-sigma rule.
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018;
  }
}

const SpecialCase* FindSpecial(char32_t c) {
  const auto* it = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), c,
      [](const SpecialCase& entry, char32_t value) { return entry.code_point < value; });
  return it != std::end(kSpecialCases) && it->code_point == c ? it : nullptr;
}

void AppendUpper(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecial(c)) {
    out->append(special->upper);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecial(c)) {
    out->append(special->title);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// A sigma is final if a cased letter stands before it in the word and none after it.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  char32_t c = 0;
  bool before = false;
  while (begin > 0) {
    c = PreviousCodePoint(text, &begin);
    if (IsCaseIgnorable(c)) continue;
    before = IsCased(c);
    break;
  }
  if (!before) return false;
  while (end < text.size()) {
    c = NextCodePoint(text, &end);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

// Lower case of the code point text[begin, end).
void AppendLower(std::string_view text, size_t begin, size_t end, char32_t c, std::string* out) {
  if (c == kCapitalSigma) {
    AppendUtf8(IsFinalSigma(text, begin, end) ? kFinalSigma : kSmallSigma, out);
  } else if (c == 0x130) {
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

template <class Fn>
void ForEachCodePoint(std::string_view text, const Fn& fn) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, &pos);
    fn(c, begin, pos);
  }
}

template <class Predicate>
bool AllOf(std::string_view text, const Predicate& predicate) {
  bool all = !text.empty();
  ForEachCodePoint(text, [&](char32_t c, size_t, size_t) { all = all && predicate(c); });
  return all;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

}  // namespace

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCodePoint(text, [&](char32_t c, size_t, size_t) { AppendUpper(c, &out); });
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCodePoint(text, [&](char32_t c, size_t begin, size_t end) {
    AppendLower(text, begin, end, c, &out);
  });
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool after_cased = false;
  ForEachCodePoint(text, [&](char32_t c, size_t begin, size_t end) {
    if (after_cased) {
      AppendLower(text, begin, end, c, &out);
    } else {
      AppendTitle(c, &out);
    }
    after_cased = IsCased(c);
  });
  return out;
}

std::string ToCapitalized(std::string_view text) {
  std::string out;
  ForEachCodePoint(text, [&](char32_t c, size_t begin, size_t end) {
    if (begin == 0) {
      AppendTitle(c, &out);
    } else {
      AppendLower(text, begin, end, c, &out);
    }
  });
  return out;
}

bool IsUpperText(std::string_view text) {
  bool cased = false, lower = false;
  ForEachCodePoint(text, [&](char32_t c, size_t, size_t) {
    cased = cased || IsUpper(c);
    lower = lower || IsLower(c) || IsTitle(c);
  });
  return cased && !lower;
}

bool IsLowerText(std::string_view text) {
  bool cased = false, upper = false;
  ForEachCodePoint(text, [&](char32_t c, size_t, size_t) {
    cased = cased || IsLower(c);
    upper = upper || IsUpper(c) || IsTitle(c);
  });
  return cased && !upper;
}

bool IsAlphaText(std::string_view text) { return AllOf(text, IsAlpha); }
bool IsDigitText(std::string_view text) { return AllOf(text, IsDigit); }
bool IsAlnumText(std::string_view text) {
  return AllOf(text, [](char32_t c) { return IsAlpha(c) || IsNumeric(c); });
}
bool IsSpaceText(std::string_view text) { return AllOf(text, IsPythonSpace); }

}  // namespace baton::jinja::internal
