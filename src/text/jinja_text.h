// Python's str and float behaviour on UTF-8 text. All text is valid UTF-8.
// Thread rule: free functions.
#ifndef BATON_TEXT_JINJA_TEXT_H_
#define BATON_TEXT_JINJA_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja::internal {

// repr() of a float: shortest digits that read back, exponent below 1e-4 and from 1e16 on.
std::string FloatRepr(double value);
// repr() of a str: quotes chosen and non-printing code points escaped as Python does.
std::string StringRepr(std::string_view text);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);       // str.title
std::string ToCapitalized(std::string_view text);  // str.capitalize

bool IsUpperText(std::string_view text);  // str.isupper
bool IsLowerText(std::string_view text);  // str.islower
// str.isalpha, .isdigit, .isalnum, .isspace: all code points of a non-empty text.
bool IsAlphaText(std::string_view text);
bool IsDigitText(std::string_view text);
bool IsAlnumText(std::string_view text);
bool IsSpaceText(std::string_view text);

// str.strip(chars): code points in `chars` removed at the ends; white space if absent.
std::string_view StripChars(std::string_view text, std::optional<std::string_view> chars,
                            bool left, bool right);

// str.split: by `separator` (not empty), or by runs of white space if absent; `limit` < 0 is none.
std::vector<std::string> Split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit);
std::vector<std::string> SplitFromRight(std::string_view text,
                                        std::optional<std::string_view> separator, int64_t limit);
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);

// str.replace; `limit` < 0 is none. An empty `from` matches between all code points.
// Fails with LimitReached if the result would exceed `bytes_max`.
std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit, size_t bytes_max);

// The code points [from, to) of the text by index.
std::string_view SubstringByCodePoint(std::string_view text, size_t from, size_t to);

// markupsafe.escape.
std::string EscapeHtml(std::string_view text);

// int(text, base) and float(text), or nullopt where Python raises ValueError. Integers beyond 64
// bits fail with OverflowError.
std::optional<int64_t> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_TEXT_H_
