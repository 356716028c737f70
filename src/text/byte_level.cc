#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace baton {
namespace {

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<int16_t, 0x200> bytes{};  // by letter; -1 if it is none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& b : alphabet.bytes) b = -1;
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t letter = prints ? static_cast<char32_t>(b) : next++;
    alphabet.letters[static_cast<size_t>(b)] = letter;
    alphabet.bytes[letter] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t ByteLetter(uint8_t byte) { return kAlphabet.letters[byte]; }

std::optional<uint8_t> LetterByte(char32_t letter) {
  if (letter >= kAlphabet.bytes.size() || kAlphabet.bytes[letter] < 0) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.bytes[letter]);
}

std::string BytesToLetters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char b : bytes) AppendUtf8(ByteLetter(static_cast<uint8_t>(b)), &out);
  return out;
}

std::optional<std::string> LettersToBytes(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const std::optional<uint8_t> byte = LetterByte(NextCodePoint(text, &pos));
    if (!byte.has_value()) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
  }
  return out;
}

}  // namespace baton
