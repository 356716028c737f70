#include "text/utf8.h"

namespace baton {

Utf8Unit ReadUtf8(std::string_view text) {
  using State = Utf8Unit::State;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {State::kValid, 1, lead};
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // allowed range of the second byte (Unicode table 3-7)
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {State::kInvalid, 1, 0xFFFD};
  }
  char32_t c = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto have = static_cast<uint8_t>(i);
    if (i == text.size()) return {State::kIncomplete, have, 0xFFFD};
    if (byte(i) < low || byte(i) > high) return {State::kInvalid, have, 0xFFFD};
    c = (c << 6) | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {State::kValid, static_cast<uint8_t>(length), c};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Unit unit = ReadUtf8(text);
    if (unit.state != Utf8Unit::State::kValid) return false;
    text.remove_prefix(unit.bytes);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = ReadUtf8(text);
    if (unit.state == Utf8Unit::State::kValid) {
      out.append(text.substr(0, unit.bytes));
    } else {
      out.append(kReplacementCharacter);
    }
    text.remove_prefix(unit.bytes);
  }
  return out;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [&](char32_t b) { out->push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

char32_t NextCodePoint(std::string_view text, size_t* pos) {
  const Utf8Unit unit = ReadUtf8(text.substr(*pos));
  *pos += unit.bytes;
  return unit.code_point;
}

char32_t PreviousCodePoint(std::string_view text, size_t* pos) {
  size_t start = *pos - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  *pos = start;
  size_t unused = start;
  return NextCodePoint(text, &unused);
}

size_t CountCodePoints(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

bool IsPythonSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view StripPythonSpace(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t pos = 0;
    if (!IsPythonSpace(NextCodePoint(text, &pos))) break;
    text.remove_prefix(pos);
  }
  while (right && !text.empty()) {
    size_t pos = text.size();
    if (!IsPythonSpace(PreviousCodePoint(text, &pos))) break;
    text = text.substr(0, pos);
  }
  return text;
}

}  // namespace baton
