// UTF-8 as sequences of code points. Functions that take "valid" text must be given text that
// passed IsValidUtf8 or came from ReplaceInvalidUtf8. Thread rule: free functions.
#ifndef BATON_TEXT_UTF8_H_
#define BATON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What starts at one byte of possibly broken text.
struct Utf8Unit {
  enum class State : uint8_t {
    kValid,       // a whole code point of `bytes` bytes
    kInvalid,     // `bytes` bytes (>= 1) that no continuation can complete: one U+FFFD
    kIncomplete,  // the text ends within what may still become a code point
  };
  State state;
  uint8_t bytes;
  char32_t code_point;  // U+FFFD unless valid
};

// `text` must not be empty.
Utf8Unit ReadUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// Each maximal invalid subpart becomes one U+FFFD, as in Python's errors="replace".
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// Bytes of the code point starting with `lead`, in valid text.
constexpr size_t Utf8Length(char lead) {
  const auto b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// The code point at text[*pos] of valid text; *pos moves behind it.
char32_t NextCodePoint(std::string_view text, size_t* pos);
// The code point before text[*pos] of valid text (*pos > 0); *pos moves onto it.
char32_t PreviousCodePoint(std::string_view text, size_t* pos);

size_t CountCodePoints(std::string_view text);

// White space as Python's str.isspace and the \s of its regular expressions see it.
bool IsPythonSpace(char32_t c);

// Code points of white space removed at the ends.
std::string_view StripPythonSpace(std::string_view text, bool left = true, bool right = true);

}  // namespace baton

#endif  // BATON_TEXT_UTF8_H_
